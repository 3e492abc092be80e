"""Random faults, from a seed: every acknowledged reading is at the hub once, and it knows.

`faults.py` says what is modelled and what is not, `publishers.py` who publishes. A failure prints
its seed and its faults; run it again, or others, with BACKHAUL_SEEDS=7 or 10-30 or 1,5,10-12.
How processes meet is not repeated exactly by a seed: run a failing one several times.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error as NatsError

from backhaul_codec import decode
from backhaul_codec.subjects import parse_uplink
from demo.rig import RigError

from .conftest import World, lane
from .faults import Fault, Kind, schedule
from .publishers import Publishers, Reading, Word

if TYPE_CHECKING:
    from collections.abc import Collection

    from nats.js import JetStreamContext

    from demo.relay import Relay
    from demo.rig import DeviceRig, Part

DEVICES = ("VID-001", "VID-002")
LANES = ("live", "bulk")
LENGTH_S = 25.0
PAUSE_S = 0.8
SETTLE_S = 90.0  # a source that stands still is set up again after 15 s, more than once perhaps
FLAP_S = 0.15
GETS_AT_ONCE = 64

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]


def seeds() -> list[int]:
    """Return what BACKHAUL_SEEDS asks for: numbers and ranges, with commas between."""
    chosen: list[int] = []
    for part in os.environ.get("BACKHAUL_SEEDS", "1,2").split(","):
        low, _, high = part.partition("-")
        chosen += range(int(low), int(high or low) + 1)
    return chosen


@dataclass(slots=True)
class Vehicle:
    """One vehicle and its link."""

    rig: DeviceRig
    relay: Relay


class Trouble:
    """Brings a schedule's faults about, and ends them."""

    def __init__(self, world: World, vehicles: dict[str, Vehicle]) -> None:
        self.died: Counter[str] = Counter()
        """Programs that ended by themselves; systemd would start them again, and so do we."""
        self._world = world
        self._vehicles = vehicles
        # A busy machine takes longer to end a part than the schedule has between its faults.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, faults: list[Fault]) -> None:
        """Bring all faults about, each at its time; return when the last one is over."""
        start_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._at(start_s + fault.at_s, fault))

    async def revive(self) -> None:
        """Start again what has ended by itself, as systemd does, for ever (or cancelled)."""
        parts = [self._world.hub.control, *(each.rig.agent for each in self._vehicles.values())]
        while True:
            await asyncio.sleep(0.2)
            for part in parts:
                async with self._turns[part.name]:
                    try:
                        part.assert_alive()
                    except RigError:
                        self.died[part.name] += 1
                        await part.start()

    async def _at(self, begin_s: float, fault: Fault) -> None:
        await asyncio.sleep(begin_s - asyncio.get_running_loop().time())
        match fault.kind:
            case Kind.CUT:
                await self._cut(fault, fault.length_s, fault.length_s)
            case Kind.FLAP:
                await self._cut(fault, fault.length_s, FLAP_S)
            case Kind.AGENT_KILL:
                await self._kill(self._vehicles[fault.device].rig.agent, fault)
            case Kind.LEAF_KILL | Kind.LEAF_WIPE:
                await self._kill(self._vehicles[fault.device].rig.leaf, fault)
            case Kind.LEAF_FREEZE:
                await self._freeze(self._vehicles[fault.device].rig.leaf, fault)
            case Kind.HUB_KILL:
                await self._kill(self._world.hub.server, fault)
            case Kind.HUB_FREEZE:
                await self._freeze(self._world.hub.server, fault)
            case Kind.CONTROL_KILL:
                await self._kill(self._world.hub.control, fault)

    async def _cut(self, fault: Fault, length_s: float, each_s: float) -> None:
        relay = self._vehicles[fault.device].relay
        end_s = asyncio.get_running_loop().time() + length_s
        async with self._turns[fault.part]:
            while (left_s := end_s - asyncio.get_running_loop().time()) > 0:
                await relay.cut()
                await asyncio.sleep(min(left_s, each_s))
                await relay.heal()
                await asyncio.sleep(FLAP_S)

    async def _kill(self, part: Part, fault: Fault) -> None:
        async with self._turns[part.name]:
            await part.stop(signal.SIGKILL)
            if fault.kind is Kind.LEAF_WIPE:
                directory = self._vehicles[fault.device].rig.agent_toml.parent
                await asyncio.to_thread(shutil.rmtree, directory / "backhaul-leaf")
            await asyncio.sleep(fault.length_s)
            await part.start()

    async def _freeze(self, part: Part, fault: Fault) -> None:
        async with self._turns[part.name]:
            os.kill(part.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(fault.length_s)
            finally:
                os.kill(part.pid, signal.SIGCONT)


@dataclass(slots=True)
class History:
    """UP, read from outside."""

    bodies: dict[tuple[str, str, int, int], bytes] = field(default_factory=dict)
    """By (device, lane, epoch, seq): what a message is, for ever."""
    repeats: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    changed: list[tuple[str, str, int, int]] = field(default_factory=list)
    """Identities under which two different messages came."""
    readings: dict[Reading, list[tuple[str, str, int, int]]] = field(default_factory=dict)
    """Where each reading stands."""

    def add(self, subject: str, body: bytes) -> None:
        """Take in one message of UP."""
        uplink = parse_uplink(subject)
        node, type_, key = uplink.node, uplink.type, uplink.key
        message = decode(body, node=node, type=type_, key=key)
        identity = (uplink.device, uplink.lane, message.epoch, message.seq)
        if (known := self.bodies.setdefault(identity, body)) is not body:
            self.repeats[identity[:3]] += 1
            if known != body:
                self.changed.append(identity)
            return
        if uplink.letter != "e":
            for point in message.points:
                assert isinstance(point.value, float)
                reading = Reading(uplink.device, point.node, point.time, point.value)
                self.readings.setdefault(reading, []).append(identity)


async def read_history(jetstream: JetStreamContext) -> History:
    """Read all of UP, message by message."""
    last = (await jetstream.stream_info("UP_00")).state.last_seq
    history = History()
    for first in range(1, last + 1, GETS_AT_ONCE):
        wanted = range(first, min(first + GETS_AT_ONCE, last + 1))
        for message in await asyncio.gather(
            *(jetstream.get_msg("UP_00", seq, direct=True) for seq in wanted)
        ):
            assert message.subject is not None
            assert message.data is not None
            history.add(message.subject, message.data)
    return history


async def ledger_ends(world: World, vehicles: dict[str, Vehicle]) -> dict[tuple[str, str], int]:
    """Wait until every agent has framed what it holds; return each lane's last seq."""
    ends: dict[tuple[str, str], int] = {}
    deadline_s = asyncio.get_running_loop().time() + SETTLE_S
    for device, vehicle in vehicles.items():
        client = await world.leaf_client(vehicle.rig)
        while True:
            status: dict[str, Any] = {}
            with suppress(NatsError):
                status = json.loads((await client.request("agent.status", b"", timeout=2)).data)
            if status and not status["ledger"]["staged_points"]:
                break
            if asyncio.get_running_loop().time() > deadline_s:
                pytest.fail(f"{device} does not come to rest: {status}")
            await asyncio.sleep(0.1)
        ends |= {(device, name): status["lanes"][name]["last_seq"] for name in LANES}
    return ends


def complaints(word: Word, history: History, report: dict[str, Any]) -> list[str]:
    """Return what is wrong, in words; nothing, where every promise was kept."""
    found = set(history.readings)
    twice = [item for item in history.readings.items() if len(item[1]) > 1]
    wrong: dict[str, Collection[Any]] = {
        "acknowledged, and not at the hub": word.kept - found,
        "at the hub under two seqs": twice,
        "refused, and yet at the hub": word.refused & found,
        "at the hub, and never published": found - word.kept - word.refused - word.unknown,
        "two messages of one identity": history.changed,
    }
    said = [f"{len(each)} {what}: {sorted(each)[:5]}" for what, each in wrong.items() if each]
    if report["streams"][0]["quarantined"]:
        said.append("messages were quarantined at the hub")
    for device in DEVICES:
        # A vehicle that starts while nobody can vouch for its ledger begins a new epoch; its first
        # message is on the live lane, and others may have none of it.
        epoch = lane(report, device, "live").get("epoch", 0)
        for name in LANES:
            hub_says = lane(report, device, name)
            place = device, name, hub_says.get("epoch", epoch)
            bodies = {i: body for i, body in history.bodies.items() if i[:3] == place}
            if not bodies and not hub_says and epoch:
                continue
            is_so = {
                "watermark": max((identity[3] for identity in bodies), default=0),
                "highest_seq": max((identity[3] for identity in bodies), default=0),
                "gaps": [],
                "explained": [],
                "messages": len(bodies),
                "repeats": history.repeats[place],
                "bytes": sum(map(len, bodies.values())),
            }
            said += [
                f"{device} {name}: {what}: the hub says {hub_says.get(what)}, UP holds {value}"
                for what, value in is_so.items()
                if hub_says.get(what) != value
            ]
    return said


async def compared(world: World, word: Word) -> tuple[History, list[str]]:
    """Return UP and what is wrong, once nothing is; at the latest when all should have settled.

    All seqs of the current epochs are there, but what is sent again may still come, and the hub
    counts each message; and what is left of former epochs may still be asked for.
    """
    jetstream = (await world.hub_client()).jetstream(prefix="upapi")
    clock = asyncio.get_running_loop()
    deadline_s = clock.time() + SETTLE_S
    while True:
        report = await world.report()
        history = await read_history(jetstream)
        wrong = complaints(word, history, report)
        if not wrong or clock.time() > deadline_s:
            return history, wrong
        await asyncio.sleep(0.2)


async def under_fire(world: World, seed: int, faults: list[Fault]) -> list[str]:
    """Publish while the faults come and go, heal everything, and return what is wrong then."""
    vehicles: dict[str, Vehicle] = {}
    words = {device: Word() for device in DEVICES}
    stop = asyncio.Event()
    for device in DEVICES:
        vehicles[device] = Vehicle(*await world.vehicle(device))
    trouble = Trouble(world, vehicles)
    clock = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        reviving = group.create_task(trouble.revive())
        publishing = [
            group.create_task(Publishers(device, each.rig.url, seed, words[device]).run(stop))
            for device, each in vehicles.items()
        ]
        await trouble.run(faults)
        healed_s = clock.time()
        stop.set()
        await asyncio.wait(publishing)
        ends = await ledger_ends(world, vehicles)
        log.warning("the ledgers end at %s", ends)
        await world.until(
            lambda report: all(
                lane(report, *key).get("watermark", 0) >= end for key, end in ends.items()
            ),
            deadline_s=SETTLE_S,
        )
        settled_s = clock.time() - healed_s
        reviving.cancel()
    word = Word()
    for each in words.values():
        word.kept |= each.kept
        word.refused |= each.refused
        word.unknown |= each.unknown
    history, wrong = await compared(world, word)
    log.warning(
        "seed %d: %d faults, %d kept, %d unknown (%d of them arrived), %d refused, %d messages, "
        "%d repeats; settled in %.1f s; ended by themselves: %s",
        seed,
        len(faults),
        len(word.kept),
        len(word.unknown),
        len(word.unknown & set(history.readings)),
        len(word.refused),
        len(history.bodies),
        history.repeats.total(),
        settled_s,
        dict(trouble.died),
    )
    return wrong


def test_a_seed_says_what_happens_and_faults_of_one_part_never_overlap() -> None:
    for seed in range(100):
        faults = schedule(seed, DEVICES, length_s=LENGTH_S, pause_s=PAUSE_S)
        assert faults == schedule(seed, DEVICES, length_s=LENGTH_S, pause_s=PAUSE_S)
        free_at_s: dict[str, float] = {}
        for fault in faults:
            assert free_at_s.get(fault.part, 0.0) <= fault.at_s <= fault.end_s <= LENGTH_S
            free_at_s[fault.part] = fault.end_s


@pytest.mark.parametrize("seed", seeds())
async def test_every_acknowledged_reading_arrives_once_whatever_fails(
    world: World, seed: int
) -> None:
    faults = schedule(seed, DEVICES, length_s=LENGTH_S, pause_s=PAUSE_S)
    log.warning("seed %d; begin, length, whose, what:\n%s", seed, "\n".join(map(str, faults)))
    assert await under_fire(world, seed, faults) == []
