"""What people may ask and hear at a real hub, and how what they may not is answered.

One hub for all tests here, so each leaves the tree as it found it.
"""

from __future__ import annotations

import json

import pytest

from .people_hub import (
    ANNA,
    MINE,
    THEIRS,
    WAIT_S,
    People,
    next_told,
)

pytestmark = [pytest.mark.nats, pytest.mark.asyncio(loop_scope="module")]


async def test_one_sets_and_sees_what_is_below_the_group(people: People) -> None:
    answer = await people.anna.ask(
        "set", device=MINE, node="gps", points=[{"type": "rate", "value": 5}]
    )
    (point,) = answer["points"]
    assert point["origin"] == "hub:anna"
    for guest in (people.anna, people.berta, people.carl):
        (seen,) = (await guest.ask("get", device=MINE, paths=["gps.rate"]))["points"]
        assert (seen["value"], seen["origin"]) == (5.0, "hub:anna")
    assert await people.dora.error("get", device=MINE) == (
        "dora may command below depot only (VID-001 is not below it)"
    )


async def test_the_tree_and_the_devices_end_where_the_right_does(people: People) -> None:
    tree = await people.berta.ask("tree")
    assert [each["node"] for each in tree["nodes"]] == ["VID-001", "VID-001/gps", "plant-7"]
    assert "VID-002" not in json.dumps(tree)
    report = await people.berta.ask("devices")
    assert [each["device"] for each in report["devices"]] == [MINE]
    assert report["streams"] == []
    whole = await people.carl.ask("devices")
    assert [each["device"] for each in whole["devices"]] == [MINE, THEIRS]


async def test_what_changes_is_heard_below_the_group_alone(people: People) -> None:
    heard = await people.berta.client.subscribe(people.berta.person.live)
    await people.berta.client.flush()
    await people.do("set", device=THEIRS, node="gps", points=[{"type": "rate", "value": 1}])
    await people.do("set", device=MINE, node="gps", points=[{"type": "rate", "value": 2}])
    message = await next_told(heard)
    assert message.subject == "up.plant-7.VID-001%2Fgps.rate.%"
    assert json.loads(message.data)["value"] == 2.0
    await heard.unsubscribe()


async def test_a_device_that_moves_is_lost_and_found_at_once(people: People) -> None:
    heard = await people.berta.client.subscribe(people.berta.person.live)
    await people.berta.client.flush()
    await people.node("move", MINE, under="depot")
    try:
        assert "berta may read below plant-7 only" in await people.berta.error("get", device=MINE)
        assert (await people.berta.ask("devices"))["devices"] == []
        assert (await people.dora.ask("get", device=MINE))["device"] == MINE
        await people.do("set", device=MINE, node="gps", points=[{"type": "rate", "value": 77}])
        await people.do("set", device="fleet", node="plant-7", points=[{"type": "end", "value": 1}])
        said: list[tuple[str, str | None]] = []
        while not said or said[-1][0] != "end":
            point = json.loads((await next_told(heard)).data)
            said.append((point["type"], point.get("parent")))
        # Its way out is the last that is heard of it; and not where it went.
        assert said == [("nodeType", "plant-7"), ("end", None)]
    finally:
        await heard.unsubscribe()
        await people.node("move", MINE, under="plant-7")
    assert (await people.berta.ask("get", device=MINE))["device"] == MINE


async def test_a_device_that_is_added_below_is_seen_without_a_new_right(people: People) -> None:
    await people.node("mirror", THEIRS, under="plant-7")
    try:
        report = await people.berta.ask("devices")
        assert [each["device"] for each in report["devices"]] == [MINE, THEIRS]
    finally:
        await people.node("delete", THEIRS, under="plant-7")
    assert "VID-002 is not below it" in await people.berta.error("get", device=THEIRS)


async def test_points_of_groups_are_those_of_ones_own(people: People) -> None:
    for group in ("plant-7", "depot"):
        await people.do("set", device="fleet", node=group, points=[{"type": "cap", "value": 3}])
    answer = await people.anna.ask("get", device="fleet")
    assert {(each["node"], each.get("parent", "")) for each in answer["points"]} == {
        ("plant-7", ""),
        ("VID-001", "plant-7"),
    }
    points = [{"type": "cap", "value": 9}]
    assert "error" not in await people.anna.ask(
        "set", device="fleet", node="plant-7", points=points
    )
    assert "depot is not below it" in await people.anna.error(
        "set", device="fleet", node="depot", points=points
    )


async def test_nobody_pulls_a_device_below_their_group(people: People) -> None:
    edge = [{"type": "nodeType", "value": "device"}]
    for node in (THEIRS, MINE, "plant-7"):
        said = await people.anna.error(
            "set", device="fleet", node=node, parent="plant-7", points=edge
        )
        assert "for operators to change" in said
    assert "for operators" in await people.anna.error(
        "set", device="fleet", node=f"{MINE}/gps", points=edge
    )
    assert "there is no service 'node'" in await people.anna.error(
        "node", do="move", address=THEIRS, under="plant-7"
    )


async def test_a_right_to_read_writes_nothing(people: People) -> None:
    before = await people.values(MINE)
    for service, question in (
        ("set", {"device": MINE, "node": "gps", "points": [{"type": "rate", "value": 666}]}),
        ("desire", {"device": MINE, "points": [{"node": "gps", "type": "rate", "value": 666}]}),
        ("revert", {"id": 1}),
        ("command", {"device": MINE, "name": "door.unlock"}),
    ):
        said = await people.berta.error(service, **question)
        assert "berta may read below plant-7 only, and this takes the right to" in said
    assert "the right to command" in await people.anna.error(
        "command", device=MINE, name="door.unlock"
    )
    assert await people.values(MINE) == before


async def test_who_writes_cannot_be_said(people: People) -> None:
    points = [{"type": "rate", "value": 1}]
    said = await people.anna.error("set", device=MINE, node="gps", points=points, who="berta")
    assert "who writes is anna, not 'berta'" in said
    assert "who" in await people.carl.error("command", device=MINE, name="a", who="anna")


async def test_a_command_is_its_senders_and_its_device_below(people: People) -> None:
    question = {"device": MINE, "name": "door.unlock", "params": {"n": 1}, "id": "once"}
    sent = await people.carl.ask("command", **question)
    while "not taken yet" in sent.get("error", {}).get(
        "message", ""
    ):  # under its id it is the same
        sent = await people.carl.ask("command", **question)
    assert (sent["who"], sent["params"]) == ("carl", {"n": 1})
    assert sent["state"] in ("queued", "sent")
    listed = (await people.berta.ask("commands"))["commands"]
    assert [each["id"] for each in listed] == [sent["id"]]
    assert (await people.dora.ask("commands"))["commands"] == []
    assert "VID-001 is not below" in await people.dora.error("command", device=MINE, name="a")
    assert "VID-001 is not below" in await people.dora.error("commands", device=MINE)


@pytest.mark.parametrize("device", ["VID-404", "*", ">", "a.b", "", "VID-001/gps"])
async def test_what_is_no_device_is_refused_and_harms_nothing(people: People, device: str) -> None:
    for service, question in (
        ("get", {}), ("state", {}), ("shadow", {}), ("events", {"since_ns": 0}), ("commands", {}),
        ("desire", {"points": []}), ("command", {"name": "a"}), ("conflicts", {}),
    ):  # fmt: skip
        for guest in (people.carl, people.dora):
            assert "error" in await guest.ask(service, device=device, **question), service
    assert (await people.carl.ask("get", device=MINE))["device"] == MINE


async def test_garbage_is_answered_and_the_control_plane_goes_on(people: People) -> None:
    for body in (b"[]", b"{", b"\xff", b"[" * 100_000, b'{"device": 1}', b'{"x": 1}'):
        message = await people.anna.client.request(ANNA.ask("get"), body, timeout=WAIT_S)
        assert "error" in json.loads(message.data)
    assert (await people.anna.ask("get", device=MINE))["device"] == MINE
