"""Looks at a world from outside once its faults are over: streams, reports, heads, commands, tables."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from backhaul_codec.assurance.completeness import HOUR_NS, hours_between
from backhaul_codec.kinds import LIVE
from backhaul_codec.subjects import DICTIONARY_STREAM
from backhaul_hub.db.store import Registry
from backhaul_hub.health.conditions import TWO_MACHINES
from backhaul_hub.lane_records.completeness import hour_reports_of
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.streams.twin_streams import EVENTS
from tests.chaos.evidence import Found, Uplinks, heads_of, twin_event
from tests.chaos.faults_ledger import note_set_aside
from tests.support.command_storm import OVER, waiting
from tests.support.rig.parts import RigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.nats.stream_reader import Stored
    from tests.chaos.evidence import Place
    from tests.chaos.world import Vehicle, World

_READ_MESSAGES, _READ_S = 500, 10.0
_LEARN_S, _LOOK_S = 180.0, 0.05
_COMMANDS_MAX = 1_000
"""That the hub tells at a time."""
UP = "UP_00"
_OPEN = (
    *("staged_points", "suspect_points", "former_epochs_owed", "quarantined_rows"),
    *("full", "disk_full"),
)
"""Of a ledger: at rest all of these are 0, or not so."""


class Look:
    """Looks again and again; what streams hold is read once, as nothing is taken out of them.

    Args:
        world: what to look at.
        begin_ns: from when on hours are looked at.
        healed_ns: when all faults were over.
        epochs: of the ledgers at the start, by device.
        sent: the ids of all commands that may have come to the hub.
    """

    def __init__(
        self,
        world: World,
        begin_ns: int,
        healed_ns: int,
        epochs: dict[str, int],
        sent: Collection[str],
    ) -> None:
        self._world = world
        self._healed_ns = healed_ns
        self._begin_ns = begin_ns
        self._epochs = epochs
        self._sent = sent
        self._commands: dict[str, dict[str, Any]] = {}
        self._read = Counter[str]()
        self._up = Uplinks()
        self._twin_events: Counter[Place] = Counter()

    async def take(self, now_ns: int) -> Found:
        """Return what is found now.

        Raises:
            NatsError, OSError: a server did not answer.
            RigError: it answered with an error.
            HubError, sqlite3.Error: hub.db or a ledger could not be read.
        """
        world = self._world
        async with world.hub.connection() as hub:
            # Before the report: what it says of them may then only be newer.
            statuses = {
                device: await _status(vehicle) for device, vehicle in world.vehicles.items()
            }
            report = await _ask(hub, "hub.devices")
            found = Found(up=self._up, twin_events=self._twin_events, report=report)
            found.machines = {device: each["machine"] for device, each in statuses.items()}
            await self._take_streams(hub)
            world.told_two |= two_machines(await _ask(hub, "hub.status"))
            for device in world.vehicles:
                heads = (await _ask(hub, "hub.get", device=device, deleted=True))["points"]
                found.heads[device] = heads_of(heads), statuses[device]["heads"]
            ask = partial(_ask_for_commands, hub)
            await take_commands(self._commands, ask, world.vehicles, self._sent)
            found.commands = self._commands
        for vehicle in world.vehicles.values():
            if vehicle.starts.exists():
                found.starts.update(vehicle.starts.read_text().split())
        found.deaths = Counter({device: world.deaths(device) for device in world.vehicles})
        found.rolled_back = [(each.since_ns, each.until_ns) for each in world.rollbacks]
        found.damages = world.damages
        found.clones, found.told_two = world.clones, world.told_two
        found.store_losses = world.store_losses
        found.lost_registries, found.not_refused = world.lost_registries, world.not_refused
        found.expanding = world.expanding
        found.copies = world.copies
        note_set_aside(world)
        found.span, found.epochs = (self._begin_ns, now_ns), self._epochs
        found.healed_ns = self._healed_ns
        found.filled = world.filled
        found.jumps = {device: each.wall.jumps for device, each in world.vehicles.items()}
        found.complete_hours = await self._complete_hours(now_ns)
        damaged = {damage.device for damage in world.damages}
        for device, status in statuses.items():
            found.restless += restless(device, status, report, damaged=device in damaged)
        for device, vehicle in world.vehicles.items():
            found.restless += commands_waiting(device, vehicle.rig.agent_toml.parent)
        if world.ingest is not None:
            table = await asyncio.to_thread(world.ingest.table)
            found.history, found.history_expanding = table
        return found

    async def _take_streams(self, hub: Client) -> None:
        async for message in self._rest_of(hub, EVENTS):
            if (place := twin_event(message.subject, message.body)) is not None:
                self._twin_events[place] += 1
        # A UP that lost a dictionary may hold messages that are packed against it.
        async for message in self._rest_of(hub, DICTIONARY_STREAM):
            self._up.add_dictionary(message.subject, message.body)
        async for message in self._rest_of(hub, UP):
            self._up.add(message.subject, message.body)

    async def _rest_of(self, hub: Client, stream: str) -> AsyncIterator[Stored]:
        # Not one by one over one inbox: while that is subscribed, the server keeps a little for each.
        reader = StoredReader(hub, stream, timeout_s=_READ_S)
        while batch := await reader.read(self._read[stream] + 1, _READ_MESSAGES):
            for message in batch:
                yield message
            self._read[stream] = batch[-1].seq

    async def _complete_hours(self, now_ns: int) -> dict[str, list[int]]:
        # The one that is not over yet, too, and the next: neither can be complete.
        hours = hours_between(self._begin_ns - HOUR_NS, now_ns + HOUR_NS)
        async with await Registry.open_existing(self._world.hub.directory / "hub.db") as registry:
            return {
                device: [
                    each.hour_ns
                    for each in await hour_reports_of(registry, device, hours)
                    if each.state == "complete"
                ]
                for device in self._world.vehicles
            }


async def epochs_in_time(world: World) -> dict[str, int]:
    """Return the epoch of each vehicle's ledger once the hub has heard that it knows the time.

    Raises:
        RigError: one does not, for longer than anything takes.
    """
    deadline_s = asyncio.get_running_loop().time() + _LEARN_S
    async with world.hub.connection() as hub:
        while True:
            devices = (await _ask(hub, "hub.devices"))["devices"]
            synced = [each for each in devices if (each["clock"] or {}).get("quality") == "synced"]
            if {each["device"] for each in synced} == world.vehicles.keys():
                return {each["device"]: each["lanes"][LIVE]["epoch"] for each in synced}
            if asyncio.get_running_loop().time() > deadline_s:
                raise RigError(f"not all vehicles learned the time: {devices}")
            await asyncio.sleep(_LOOK_S)


def two_machines(status: dict[str, Any]) -> set[str]:
    """Return the devices of which the hub's status says that two machines use their identity."""
    return {each["device"] for each in status["conditions"] if each["code"] == TWO_MACHINES}


async def _status(vehicle: Vehicle) -> dict[str, Any]:
    async with vehicle.rig.connection() as leaf:
        status = await _ask(leaf, "agent.status")
        heads = (await _ask(leaf, "agent.get", deleted=True))["points"]
        return status | {"heads": heads_of(heads)}


def restless(
    device: str, status: dict[str, Any], report: dict[str, Any], *, damaged: bool
) -> list[str]:
    """Say what a vehicle has still to do; rows of a damaged ledger may well be set aside."""
    ledger = status["ledger"]
    open_ = [what for what in _OPEN if not (damaged and what == "quarantined_rows")]
    wrong = [f"{device}: {ledger[what]} {what}" for what in open_ if ledger[what]]
    wrong += [f"{device}: {why}" for why in status["leaf"]["failed_streams"].items()]
    [said] = [each for each in report["devices"] if each["device"] == device]
    for name, lane in status["lanes"].items():
        at_hub = said["lanes"].get(name, {})
        watermark = at_hub["watermark"] if at_hub.get("epoch") == status["epoch"] else 0
        if watermark < lane["last_seq"]:
            last = lane["last_seq"]
            wrong.append(f"{device} {name}: the ledger ends at {last}, proved up to {watermark}")
    return wrong


async def _ask_for_commands(hub: Client, **which: Any) -> list[dict[str, Any]]:
    commands: list[dict[str, Any]] = (await _ask(hub, "hub.commands", **which))["commands"]
    return commands


async def take_commands(
    commands: dict[str, dict[str, Any]],
    ask: Callable[..., Awaitable[list[dict[str, Any]]]],
    devices: Iterable[str],
    sent: Collection[str],
) -> None:
    """Take in all commands of `sent`, by their ids; of what is over, only what is new.

    The hub tells the newest of a device, and any other by its id.
    """
    newest: set[str] = set()
    more = False
    for device in devices:
        answer = await ask(device=device, limit=_COMMANDS_MAX)
        commands |= {command["id"]: command for command in answer}
        newest |= {command["id"] for command in answer}
        more |= len(answer) == _COMMANDS_MAX
    over = {id_ for id_, command in commands.items() if command["state"] in OVER}
    for id_ in sorted(set(sent) - newest - over) if more else ():
        commands |= {command["id"]: command for command in await ask(id=id_)}


def commands_waiting(device: str, directory: Path) -> list[str]:
    """Say how many commands a vehicle has yet to carry out. Raises: sqlite3.Error."""
    many = waiting(directory / "backhaul-agent" / "ledger.db")
    return [f"{device}: {many} commands wait or run"] if many else []


async def _ask(client: Client, subject: str, **question: Any) -> dict[str, Any]:
    message = await client.request(subject, json.dumps(question).encode(), timeout=10)
    answer: dict[str, Any] = json.loads(message.data)
    if "error" in answer:
        raise RigError(f"{subject}: {answer['error']}")
    return answer
