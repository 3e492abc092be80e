"""What the hub answers about the time, to whom, and how often."""

from __future__ import annotations

import json

import pytest

from backhaul_hub.errors import HubError
from backhaul_hub.links.clock_service import ClockService
from backhaul_hub.nats.rate_limit import BURST, REFILL_S, RateLimiter
from tests.hub.clock_wire import TOKENS, HubClock, Wire, serving
from tests.support.waiting import until


async def test_an_answer_goes_where_the_hub_knows_and_never_to_the_reply_subject() -> None:
    wire, _, _ = await serving()
    await wire.question("VID-001", b'{"t1": -5}', reply="in.VID-002.s.restamp")
    assert wire.sent == [("clkr.VID-001.tok1", {"t1": -5, "t2": 10**18 + 7, "t3": 10**18 + 14})]


async def test_a_question_whose_subject_may_be_forged_is_not_answered() -> None:
    wire, _, service = await serving()
    await wire.question("VID-001", b'{"t1": 1}', reply="$JS.ACK.a.b.1.1.1.1.0")
    assert (wire.sent, service.refused) == ([], 1)


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[]", b"{}", b'{"t1": "1"}', b'{"t1": 1.5}', b'{"t1": 99999999999999999999}'],
)
async def test_garbage_is_not_answered(body: bytes) -> None:
    wire, _, service = await serving()
    await wire.question("VID-001", body)
    assert wire.sent == []
    assert (service.answered, service.refused) == (0, 1)


async def test_lanes_that_stand_still_are_passed_on_and_the_time_is_told() -> None:
    wire, heard = Wire(), []
    service = ClockService(
        wire,  # type: ignore[arg-type]
        HubClock(),
        TOKENS.get,
        on_still=lambda *said: heard.append(said),
    )
    await service.listen(wire)  # type: ignore[arg-type]
    await wire.question("VID-001", b'{"t1": 1, "epoch": 42, "lanes": {"bulk": 9}}')
    assert heard == [("VID-001", 42, {"bulk": 9})]
    for body in (
        b'{"t1": 1, "lanes": {"bulk": 9}}',
        b'{"t1": 1, "epoch": 42, "lanes": {}}',
        b'{"t1": 1, "epoch": 0, "lanes": {"bulk": 9}}',
        b'{"t1": 1, "epoch": 42, "lanes": {"bulk": 0}}',
        b'{"t1": 1, "epoch": 42, "lanes": {"bulk": 4611686018427387904}}',
        b'{"t1": 1, "epoch": 42, "lanes": [9]}',
    ):
        await wire.question("VID-001", body)
    await wire.question("VID-003", b'{"t1": 1, "epoch": 42, "lanes": {"bulk": 9}}')
    assert len(heard) == 1
    assert (service.answered, service.refused) == (3, 5)


async def test_who_reads_terse_watermarks_says_so_in_each_question() -> None:
    wire, heard = Wire(), list[tuple[str, bool]]()

    def terse(device: str, reads: bool) -> bool:
        heard.append((device, reads))
        return reads

    service = ClockService(
        wire,  # type: ignore[arg-type]
        HubClock(),
        TOKENS.get,
        on_terse=terse,
    )
    await service.listen(wire)  # type: ignore[arg-type]
    for word in (b'{"epoch": 7, "lanes": {}, "terse": true}', b'{"epoch": 7, "lanes": {}}'):
        await wire.question("VID-001", b'{"t1": 1, "push": %s}' % word)
    await wire.question("VID-001", b'{"t1": 2}')
    assert heard == [("VID-001", True), ("VID-001", False), ("VID-001", False)]
    assert [answer.get("terse") for _, answer in wire.sent] == [True, None, None]


async def test_whoever_does_not_speak_of_pushes_pushes_nothing() -> None:
    """An older agent, in the place of one whose lanes are not sourced."""
    wire, heard = Wire(), list[tuple[object, ...]]()

    def push(*said: object) -> list[str]:
        heard.append(said)
        return []

    service = ClockService(
        wire,  # type: ignore[arg-type]
        HubClock(),
        TOKENS.get,
        on_push=push,
    )
    await service.listen(wire)  # type: ignore[arg-type]
    await wire.question("VID-001", b'{"t1": 1, "push": {"epoch": 7, "lanes": {"bulk": 3}}}')
    await wire.question("VID-001", b'{"t1": 2}')
    assert heard == [("VID-001", 7, {"bulk": 3}), ("VID-001", 0, {})]
    assert [answer.get("push") for _, answer in wire.sent] == [[], None]


async def test_what_a_vehicle_says_of_itself_is_passed_on_and_never_costs_it_the_time() -> None:
    wire, heard = Wire(), list[tuple[str, bytes]]()

    def hear(device: str, report: bytes) -> float:
        heard.append((device, report))
        return 7.5 if report == b"17" else 0.0

    service = ClockService(
        wire,  # type: ignore[arg-type]
        HubClock(),
        TOKENS.get,
        on_heard=hear,
    )
    await service.listen(wire)  # type: ignore[arg-type]
    said = [b'{"m":"aa","b":"","r":"","v":""}', b"17", b'"x"', b"null", b"[[]]"]
    for each in said:
        await wire.question("VID-001", b'{"t1": 1, "vehicle": ' + each + b"}")
    await wire.question("VID-001", b'{"t1": 1}')
    assert heard == [("VID-001", each) for each in (*said, b"")]
    assert [body.get("yield_s") for _, body in wire.sent] == [None, 8, None, None, None, None]
    assert (service.answered, service.refused) == (6, 0)
    await wire.question("VID-003", b'{"t1": 1}')
    assert len(heard) == 6, "who is not known is not heard"


async def test_where_down_ends_is_told_whom_asks_and_nobody_is_kept_waiting_by_a_server() -> None:
    wire, ends = Wire(), [{"": 41, "n_gps": 7}, None]

    async def down_ends(device: str) -> dict[str, int] | None:
        assert device == "VID-001"
        if not ends:
            raise HubError("no answer")
        return ends.pop(0)

    service = ClockService(
        wire,  # type: ignore[arg-type]
        HubClock(),
        TOKENS.get,
        on_push=lambda *_: ["bulk"],
        down_ends=down_ends,
    )
    await service.listen(wire)  # type: ignore[arg-type]
    words = [b'"in":true', b'"in":true', b'"in":true', b'"in":false', b'"x":1']
    for number, word in enumerate(words, start=1):
        question = b'{"t1": %d, "push": {"epoch": 7, "lanes": {}, %s}}' % (number, word)
        await wire.question("VID-001", question)
        await until(lambda number=number: service.answered == number)  # type: ignore[misc]
    assert [body.get("downs") for _, body in wire.sent] == [{"": 41, "n_gps": 7}, *4 * [None]]
    assert all(body["push"] == ["bulk"] for _, body in wire.sent)


async def test_a_device_that_is_not_known_is_not_answered() -> None:
    wire, _, service = await serving()
    await wire.question("VID-003", b'{"t1": 1}')
    assert (wire.sent, service.refused) == ([], 1)


async def test_a_device_that_asks_too_often_is_passed_over_and_others_are_not() -> None:
    wire, clock, service = await serving()
    for number in range(BURST + 5):
        await wire.question("VID-001", json.dumps({"t1": number}).encode())
    assert [body["t1"] for _, body in wire.sent] == list(range(BURST))
    assert service.refused == 5
    await wire.question("VID-002", b'{"t1": 100}')
    assert wire.sent[-1][0] == "clkr.VID-002.tok2"
    clock.s += REFILL_S
    for number in (200, 201):
        await wire.question("VID-001", json.dumps({"t1": number}).encode())
    assert wire.sent[-1][1]["t1"] == 200


def test_an_allowance_is_never_more_than_a_burst() -> None:
    allowance = RateLimiter()
    assert allowance.take("a", 0.0)
    taken = [allowance.take("a", 1e6) for _ in range(BURST + 1)]
    assert taken == [True] * BURST + [False]
