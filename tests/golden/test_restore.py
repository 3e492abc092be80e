"""A backup made before issue 16 is put back, and its vehicle goes on with the ledger of that time.

Real servers, the real command line. The vehicle's OUT streams are not there any more: a new leaf server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_codec import decode, hash_of, peek
from backhaul_codec.subjects import parse_uplink
from tests.support.rig.parts import DeviceRig, HubRig, RigError, program, run_to_end

from .files import HERE, lines, restore, rows, unpack
from .make_world import SETTINGS, dump
from .world_messages import values

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.nats]
TABLES = {
    *("device", "device_node", "person", "rotation", "revocation", "mark", "ended_epoch"),
    *("conflict", "import_source", "import_epoch", "import_hour"),
}
"""Those of hub.db that a start of the control plane, without vehicles, has no reason to write in."""
CREATED = {"position", "import_stream"}
"""Those that name streams by when they were made: a server calls what it put back a new stream."""
GENERATIONS = "account_generation"
EQUAL = [
    "get VID-001 --json",
    "get VID-009 --json",
    "conflicts list --settled --json",
    "tree --json",
]
EQUAL += ["user ls --json"]


async def command(hub: HubRig, *words: str) -> str:
    return await run_to_end([program("backhaul-hub"), *words, "--dir", str(hub.directory)])


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubRig]:
    """A hub that was put back from the backup; its server runs, its control plane not yet."""
    unpack("backup", tmp_path / "backup")
    hub = HubRig(tmp_path / "hub")
    with pytest.raises(RigError, match="configuration of this hub is back"):
        await command(hub, "restore", str(tmp_path / "backup"))
    place(hub)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(hub.stop)
        await hub.server.start()
        await hub.server.wait_listening(hub.client_port)
        assert "All of it was checked" in await command(hub, "restore", str(tmp_path / "backup"))
        yield hub


def place(hub: HubRig) -> None:
    """Have a hub listen where this one does, and store where it stands: what `restore` asks to look at."""
    conf = hub.directory / "hub.conf"
    toml = hub.directory / "hub.toml"
    [client, leaf] = re.findall(
        r'(?m)^(?:url|leaf_url) = "\w+(?:-leaf)?://127.0.0.1:(\d+)"', toml.read_text()
    )
    [store] = re.findall(r'store_dir: "(.*)/jetstream"', conf.read_text())
    ports = {client: str(hub.client_port), leaf: str(hub.leaf_port)}
    for path in (conf, toml, *hub.directory.glob("devices/*/identity.json")):
        text = path.read_text().replace(store, str(hub.directory))
        path.write_text(re.sub(rf"\b({client}|{leaf})\b", lambda found: ports[found[1]], text))


async def up(hub: HubRig, path: Path) -> list[tuple[str, bytes]]:
    """Return all that UP holds."""
    await dump(hub, path)
    found = map(json.loads, path.read_text().splitlines())
    return [(subject, base64.b64decode(body)) for subject, body in found]


def captured() -> list[tuple[str, bytes]]:
    return [(each[0], base64.b64decode(each[1])) for each in map(json.loads, lines())]


async def test_the_backup_gives_the_rows_streams_and_answers_that_the_hub_had(
    hub: HubRig, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    had, now = rows(backup / "hub.db"), rows(hub.directory / "hub.db")
    for enrolment in (*had["enrolment"], *now["enrolment"]):
        # Nobody knows whether a token was used since.
        del enrolment["voided_ns"], enrolment["why_voided"]
    # Accounts have other rights in this version, so some are of a newer generation.
    numbers = [
        {row["account"]: row["generation"] for row in them[GENERATIONS]} for them in (had, now)
    ]
    assert all(numbers[1][name] >= number for name, number in numbers[0].items())
    for name in had.keys() - CREATED - {GENERATIONS}:
        assert now[name] == had[name], name
    assert await up(hub, tmp_path / "up.jsonl") == captured()

    await hub.start_control()
    expected = json.loads((HERE / "answers.json").read_text())
    said = await asyncio.gather(*(command(hub, *words.split()) for words in EQUAL))
    for words, answer in zip(EQUAL, said, strict=True):
        assert json.loads(answer) == expected[words], words
    commands = json.loads(await command(hub, "commands", "--json"))
    assert over(commands) == over(expected["commands --json"])
    later = rows(hub.directory / "hub.db")
    # It reads on where the backup ends: no stream is another one, or began elsewhere.
    assert b"up_is_not_as_it_was_read" not in hub.control.logged()
    for name in CREATED:
        assert but_created(later[name]) == but_created(had[name]), name
    shadow = json.loads(await command(hub, "shadow", "show", "VID-001", "--json"))
    assert shadow["desired"] == expected["shadow show VID-001 --json"]["desired"]
    assert shadow["config"]["fields"] == expected["shadow show VID-001 --json"]["config"]["fields"]
    await command(hub, "artifact", "get", "map.bin", str(tmp_path / "map.bin"))
    assert (tmp_path / "map.bin").read_bytes() == bytes(range(256)) * 8
    assert {name: later[name] for name in TABLES} == {name: had[name] for name in TABLES}


async def test_the_vehicle_goes_on_with_its_ledger_at_the_hub_that_was_put_back(
    hub: HubRig, tmp_path: Path
) -> None:
    await hub.start_control()
    directory = tmp_path / "VID-001"
    directory.mkdir()
    rig = DeviceRig.of(hub, "VID-001", directory)
    await rig.enrol("--port", str(rig.client_port), "--state-dir", str(directory), "--open")
    configure(rig)
    (directory / "backhaul-agent").mkdir(exist_ok=True)
    ledger = restore("ledger-4", directory / "backhaul-agent" / "ledger.db")
    lanes = {lane["id"]: lane for lane in rows(ledger)["lanes"]}
    owed = [row for row in rows(ledger)["messages"] if row["seq"] > lanes[row["lane"]]["watermark"]]
    epoch = max(lanes.values(), key=lambda lane: lane["id"])["epoch"]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(rig.stop)
        await rig.start()
        async with connect(rig.url) as agent:
            await settled(agent)
            await agent.publish_frame("battery", values(random.Random(7), 400))
            await settled(agent)
            assert (await agent.status())["epoch"] == epoch
        async with asyncio.timeout(60):
            while not is_over(await command(hub, "commands", "--json")):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        found = await up(hub, tmp_path / "up.jsonl")
    of_one = [each for each in found if each[0].startswith("up.VID-001.")]
    bodies = {body for _, body in of_one}
    assert len(owed) > 30
    assert [row["seq"] for row in owed if row["body"] not in bodies] == []
    linked = {lane["name"]: 0 for lane in lanes.values()}
    last: dict[str, tuple[int, bytes]] = {}
    for subject, body in sorted(of_one, key=lambda each: peek(each[1]).seq):
        leaf = subject.removeprefix("up.VID-001.")
        header, lane = peek(body), parse_uplink(subject).lane
        if header.epoch == epoch:
            if lane in last and last[lane][0] == header.seq - 1:
                assert header.link == last[lane][1], (lane, header.seq)
                linked[lane] += 1
            last[lane] = (header.seq, hash_of(leaf, body))
    assert all(count > 50 for count in linked.values()), linked
    # What an older agent had staged of one node goes in a bundle.
    # One that was pushed while its lane was sourced stands in UP twice.
    bundles = [decode(body) for subject, body in sorted(set(of_one)) if subject == "up.VID-001.b"]
    motor = [point for each in bundles for point in each.points if point.node == "motor"]
    assert [(point.type, point.value) for point in motor] == [("rpm", 0), ("rpm", 1), ("rpm", 2)]
    [device] = [
        each
        for each in json.loads(await command(hub, "devices", "--json"))["devices"]
        if each["device"] == "VID-001"
    ]
    assert {name: (lane["gaps"], lane["lost"]) for name, lane in device["lanes"].items()} == {
        "live": ([], 0),
        "bulk": ([], 0),
    }


def but_created(positions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how far streams were read; DOWN begins anew."""
    kept = (each for each in positions if each["stream"] != "DOWN_00")
    return [{name: value for name, value in each.items() if name != "created"} for each in kept]


def over(commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those that were over when the backup was made, but for the code that errors have by now."""
    ended = (each for each in commands if each["id"] != "id-away")
    return [{name: value for name, value in each.items() if name != "code"} for each in ended]


def is_over(said: str) -> bool:
    """Whether the command that waited in the backup was carried out; a year later it is too late."""
    [command] = [each for each in json.loads(said) if each["id"] == "id-away"]
    return command["state"] in ("done", "expired")


def configure(rig: DeviceRig) -> None:
    more = SETTINGS.format(frame_age=0.1, ledger_age=0.0, directory=rig.agent_toml.parent)
    tables = [
        each for each in rig.agent_toml.read_text().split("\n[") if not each.startswith("ledger]")
    ]
    rig.agent_toml.write_text("\n[".join(tables) + more)


async def settled(agent: Any) -> None:
    """Wait until the hub has confirmed all that the vehicle has."""
    async with asyncio.timeout(60):
        while True:
            status = await agent.status()
            lanes = status["lanes"].values()
            if not status["ledger"]["staged_points"] and all(
                lane["watermark"] == lane["last_seq"] for lane in lanes
            ):
                return
            await asyncio.sleep(0.05)
