"""Operators' commands under kill -9 of everything: each started once, or said not to have been.

An operator sends commands at random moments and repeats a publish that got no answer; agent, leaf, hub
server and control plane are killed (SIGKILL) at random moments and started again. Each handler's first
act is a line appended to a file, synced: what the file says is what happened.

NOT covered: power cuts (a kill leaves the page cache whole), a ledger that is lost, clocks that jump.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from tests.support.errors import TrialError
from tests.support.rig import patient
from tests.support.rig.parts import RigError, wait_for_log
from tests.support.rig.vehicle import DEVICE, VehicleRig

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.rig.parts import HubRig, Part

DEADLINE_S = 180.0
SHORT_DEADLINE_S = 3.0
SHORT_EVERY = 20
SAFE_EVERY = 4
RUN_S = 0.03
PAUSE_S = 1.2
DOWN_S_MAX = 1.0
SETTLE_S_MAX = 400.0
RUNS_MAX = 3
OVER = {"done", "failed", "expired", "interrupted"}


@dataclass(slots=True)
class Storm:
    """What was sent, what was killed, and what became of it."""

    sent: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    settled_s: float = 0.0

    def complaints(self) -> list[str]:
        """Return what broke a promise, in words; nothing where all was kept."""
        wrong = []
        for id_ in self.sent:
            found, starts = self.commands.get(id_), self.starts[id_]
            if found is None or found["state"] not in OVER:
                wrong.append(f"{id_}: no end at the hub: {found}")
                continue
            least, most = _starts_allowed(found)
            if not least <= starts <= most:
                wrong.append(f"{id_}: {found['name']} is {found['state']}, started {starts} times")
        unknown = self.starts.keys() - set(self.sent)
        return wrong + [f"{id_}: started, and never sent" for id_ in sorted(unknown)]

    def states(self) -> Counter[str]:
        """Count the ends."""
        return Counter(command["state"] for command in self.commands.values())


def starts_max(name: str) -> int:
    """Return how often one ledger starts a command at most."""
    return RUNS_MAX if name == "safe" else 1


def _starts_allowed(command: dict[str, Any]) -> tuple[int, int]:
    most = starts_max(command["name"])
    return {"done": (1, most), "expired": (0, 0), "interrupted": (0, most)}.get(
        command["state"], (1, 0)
    )


def settings(log: Path) -> str:
    """Return the tables of agent.toml: two handlers that write down that they were started."""
    mark = f"echo $BACKHAUL_COMMAND_ID | dd of={log} oflag=append conv=notrunc,fsync status=none"
    run = json.dumps(["/bin/sh", "-c", f"{mark}; sleep {RUN_S}"])
    return (
        f'[[command]]\nname = "once"\nrun = {run}\n'
        f'[[command]]\nname = "safe"\nrun = {run}\nidempotent = true\n'
    )


async def storm(
    rig: VehicleRig, log: Path, *, commands: int, length_s: float, seed: int, kills_min: int = 0
) -> Storm:
    """Send commands while everything is killed now and then, heal, and see what became of them.

    Raises:
        TrialError: it does not come to rest.
    """
    random, made = Random(seed), Storm()
    await _since(rig)
    clock = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        killing = group.create_task(_kill(rig, made, Random(seed + 1)))
        times = sorted(random.uniform(0, length_s) for _ in range(commands))
        client = await _operator(rig.hub)
        start_s = clock.time()
        for number, at_s in enumerate(times):
            await asyncio.sleep(start_s + at_s - clock.time())
            made.sent.append(await _send(client, seed, number))
        while made.kills.total() < kills_min:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        killing.cancel()
    healed_s = clock.time()
    await _rest(rig, client, made, healed_s + SETTLE_S_MAX)
    made.settled_s = clock.time() - healed_s
    await client.close()
    made.starts.update((await asyncio.to_thread(log.read_text)).split())
    return made


async def _operator(hub: HubRig) -> Client:
    async def killed_again(_: Exception) -> None:
        """Say nothing: it is what we are here for."""

    return await hub.connect(
        max_reconnect_attempts=-1, reconnect_time_wait=0.2, error_cb=killed_again
    )


async def _send(client: Client, seed: int, number: int) -> str:
    """Publish a command until the stream has it; under one id that does no harm."""
    id_ = f"s{seed}-{number}"
    name = "once" if number % SAFE_EVERY else "safe"
    deadline_s = DEADLINE_S if number % SHORT_EVERY else SHORT_DEADLINE_S
    body = json.dumps({"id": id_, "deadline_s": deadline_s, "params": number}).encode()
    while True:
        try:
            await client.jetstream(timeout=2).publish(f"fleet.prod.veh.{DEVICE}.cmd.{name}", body)
        except (NatsError, OSError):
            await asyncio.sleep(0.1)
        else:
            return id_


async def _kill(rig: VehicleRig, made: Storm, random: Random) -> None:
    """Kill one part after the other until cancelled; then all of them run."""
    parts: list[Part] = [rig.device.agent, rig.device.leaf, rig.hub.server, rig.hub.control]
    # What is killed most is what a vehicle loses most; and it is where exactly-once is decided.
    weights = [4, 2, 1, 2]
    try:
        while True:
            await asyncio.sleep(random.expovariate(1 / PAUSE_S))
            if not _alive(rig.hub.control):  # it ended itself: systemd would start it again
                await rig.hub.control.start()
            part = random.choices(parts, weights)[0]
            await part.stop(signal.SIGKILL)
            made.kills[part.name.removeprefix(f"{DEVICE} ")] += 1
            await asyncio.sleep(random.uniform(0.0, DOWN_S_MAX))
            await part.start()
            if part is rig.hub.control:  # which does not wait for its server, as systemd would
                await _control_runs(rig)
    finally:
        for part in parts:
            if not _alive(part):
                await part.start()


async def _control_runs(rig: VehicleRig) -> None:
    for _ in range(5):
        with contextlib.suppress(RigError):
            await wait_for_log(rig.hub.control, '"event": "ready"', timeout_s=10)
            return
        await rig.hub.control.start()


def _alive(part: Part) -> bool:
    try:
        return bool(part.pid)
    except RigError:
        return False


async def _since(rig: VehicleRig) -> None:
    """Wait until the agent's ledger is older than now, by the hub's clock."""
    async with await patient.connect(rig.device.url) as client:
        for _ in range(2400):
            status = await rig.status(client)
            clock, since_ns = status["clock"], status["commands"]["since_ns"]
            if since_ns is not None and clock["time_ns"] - clock["error_ns"] > since_ns:
                return
            await asyncio.sleep(0.05)
    raise TrialError("the agent does not learn the time")


async def _rest(rig: VehicleRig, client: Client, made: Storm, by_s: float) -> None:
    """Wait until all commands are over at both ends, and the hub has heard all that was said."""
    ledger = rig.device.agent_toml.parent / "backhaul-agent" / "ledger.db"
    while asyncio.get_running_loop().time() < by_s:
        if not _alive(rig.hub.control):
            await rig.hub.control.start()
        with contextlib.suppress(NatsError, OSError, sqlite3.Error, TrialError):
            made.commands = await _recorded(client)
            open_ = [each for each in made.commands.values() if each["state"] not in OVER]
            if len(made.commands) == len(made.sent) and not open_ and not waiting(ledger):
                await _heard(rig, client)
                made.commands = await _recorded(client)
                return
        await asyncio.sleep(0.5)
    raise TrialError(f"it does not come to rest: {made.states()}")


async def _recorded(client: Client) -> dict[str, dict[str, Any]]:
    answer = await client.request("hub.commands", b'{"limit": 1000}', timeout=10)
    return {each["id"]: each for each in json.loads(answer.data)["commands"]}


def waiting(ledger: Path) -> int:
    """Return how many commands an agent's ledger still has to carry out. Raises: sqlite3.Error."""
    db = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
    try:
        query = "SELECT count(*) FROM commands WHERE state IN ('waiting', 'running')"
        return int(db.execute(query).fetchone()[0])
    finally:
        db.close()


async def _heard(rig: VehicleRig, client: Client) -> None:
    """Wait until the hub holds the live lane as far as the agent has written it."""
    local = await patient.connect(rig.device.url)
    try:
        last_seq = (await rig.status(local))["lanes"]["live"]["last_seq"]
    finally:
        await local.close()
    for _ in range(600):
        answer = await client.request("hub.devices", b"", timeout=10)
        (device,) = json.loads(answer.data)["devices"]
        if device["lanes"]["live"]["watermark"] >= last_seq:
            return
        await asyncio.sleep(0.1)
    raise TrialError(f"the hub has not heard live up to {last_seq}")
