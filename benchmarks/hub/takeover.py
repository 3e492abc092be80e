"""Measure how soon another machine leads the hub, and what becomes of the load meanwhile.

Two control planes, a vehicle that keeps readings, and an operator's commands that never cease, on one machine and
one disk: with one server, and with three. The control plane that leads is killed (kill -9), stood still (SIGSTOP,
and SIGCONT once the other one leads), and told to hand over. Counted is the time until the other one answers
`hub.status` as the leader, which is asked every 20 ms. Just before each a vehicle is revoked; once the other machine leads it tries
to come in at every server. A message of the former leader can be stored over its term's logins alone, so the connections
that servers still have of those are counted. By the new leader's log the time is divided into the silence, until it wrote that it leads,
and its start, until it answered.

`--ways "kill -9" --servers 1 --times 4` runs some. With all around it a takeover takes some 7 s, so that 50 of each with one server take 20 minutes.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_codec.protocol.credentials import parse_credentials
from backhaul_codec.protocol.identity import Identity, decode_identity
from backhaul_hub.nats.system_requests import ask_all
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from benchmarks.gateway.options import CHOSEN, WAYS
from tests.security.leaf_client import RawLeaf
from tests.support.command_storm import settings
from tests.support.rig.cluster import ClusterRig
from tests.support.rig.parts import DeviceRig, HubRig, program, run_to_end
from tests.support.rig.standby import Machines
from tests.support.rig.vehicle import DEVICE, Vehicle
from tests.support.takeover_load import BATCH, BATCH_S, COMMAND_S, Load
from tests.support.waiting import until

_TIMES = 50
_LOOK_S = 0.02
_LEADS_S_MAX = 120.0
_TAKEOVER_S_MAX = 5.0
_CONNECTIONS_MAX = 10_000


@dataclass(slots=True)
class _Outcome:
    took_s: dict[str, list[float]] = field(default_factory=dict)
    start_s: dict[str, list[float]] = field(default_factory=dict)
    """Of it the new leader's start."""
    lost: int = 0
    twice: int = 0
    let_in: int = 0
    unfenced: int = 0


def run(*, quick: bool) -> dict[str, object]:
    """Take over so many times in each way, on one server and on three. Raises: BenchmarkError: it never came to rest."""
    chosen = CHOSEN.get()
    times = chosen.times or (1 if quick else _TIMES)
    hubs: dict[int, tuple[type[HubRig], str]] = {
        1: (HubRig, "one server"),
        3: (ClusterRig, "three"),
    }
    figures: list[Figure] = []
    with scratch.directory("takeover") as directory:
        for kind, name in (hubs[servers] for servers in chosen.servers):
            place = directory / name.replace(" ", "-")
            place.mkdir()
            figures += _figures(name, asyncio.run(_Trial(place, chosen.ways, times).run(kind)))
    load = f"{BATCH / BATCH_S:g} readings/s and {1 / COMMAND_S:g} commands/s at most"
    return report("takeovers", figures, times=times, load=load)


def _figures(name: str, made: _Outcome) -> list[Figure]:
    figures = []
    for way, each in made.took_s.items():
        note = f"{len(each)} times"
        figures.append(Figure(f"{name}: {way}, median", median(each), "s", note=note))
        figures.append(Figure(f"{name}: {way}, worst", max(each), "s", at_most(_TAKEOVER_S_MAX)))
        start_s = made.start_s[way]
        for what, value in (("median", median(start_s)), ("worst", max(start_s))):
            figures.append(Figure(f"{name}: {way}, of it the start, {what}", value, "s"))
    return [
        *figures,
        Figure(f"{name}: lost", made.lost, "", at_most(0), note="messages of lanes, and commands"),
        Figure(f"{name}: commands started twice", made.twice, "", at_most(0)),
        Figure(f"{name}: revoked let in", made.let_in, "", at_most(0), note="vehicles, by servers"),
        Figure(
            f"{name}: connections left", made.unfenced, "", at_most(0), note="of former leaders"
        ),
    ]


class _Trial:
    """One hub, and all takeovers on it."""

    def __init__(self, place: Path, ways: Collection[str], times: int) -> None:
        self._place = place
        self._ways = ways
        self._times = times
        self._made = _Outcome()
        self._to_revoke: list[Identity] = []

    async def run(self, kind: type[HubRig]) -> _Outcome:
        """Make the hub, take over, and count what became of the load."""
        log = self._place / "started"
        log.touch()
        async with AsyncExitStack() as stack:
            self._hub = hub = kind(self._place / "hub", watermark_interval_s=1.0)
            await hub.init()
            stack.push_async_callback(hub.stop)
            await hub.start()
            device = await DeviceRig.add(hub, DEVICE, self._place / DEVICE)
            with device.agent_toml.open("a") as file:
                file.write(f"\n{settings(log)}")
            stack.push_async_callback(device.stop)
            await device.start()
            for number in range(len(self._ways) * self._times):
                await self._enrol(f"VID-R{number:03}")
            await hub.control.stop()
            self._machines = machines = Machines(hub)
            stack.push_async_callback(machines.stop)
            operator = await stack.enter_async_context(machines.client())
            await machines.start()
            load = Load(Vehicle(hub, device), operator)
            async with asyncio.TaskGroup() as group:
                group.create_task(load.command())
                group.create_task(load.keep())
                await self._all(operator)
                load.over.set()
            try:
                await until(load.settled, "commands and readings come to their ends")
            except AssertionError as error:
                raise BenchmarkError(str(error)) from error
            await self._count(operator, load, Counter(log.read_text().split()))
        return self._made

    async def _all(self, operator: Client) -> None:
        ways: dict[str, Callable[[str, Client], Awaitable[None]]] = dict(
            zip(WAYS, (self._kill, self._stand_still, self._hand_over), strict=True)
        )
        ways = {way: take for way, take in ways.items() if way in self._ways}
        async with self._hub.connection("system", max_reconnect_attempts=-1) as system:
            for _ in range(self._times):
                for way, take in ways.items():
                    leader = await self._machines.ready(operator)
                    revoked = self._to_revoke.pop()
                    if not await self._lets_in(revoked):
                        raise BenchmarkError(f"{revoked.device} was shut out before it was revoked")
                    await _ask(operator, "revoke", {"device": revoked.device})
                    logins = self._logins(leader)
                    if not await self._connections(system, logins):
                        raise BenchmarkError(f"{leader} leads without its term's logins")
                    log = self._machines.parts[self._machines.other(leader)]
                    seen = log.logged_bytes
                    took_s = await self._took_s(operator, leader, take)
                    answered_s = SystemClock().now_ns() / 1e9
                    self._made.took_s.setdefault(way, []).append(took_s)
                    start_s = answered_s - _led_at_s(log.logged(seen))
                    self._made.start_s.setdefault(way, []).append(start_s)
                    self._made.let_in += await self._lets_in(revoked)
                    self._made.unfenced += await self._connections(system, logins)
                    await self._go_on(leader)
                    await self._machines.ready(operator)
                    self._made.unfenced += await self._connections(system, logins)

    async def _took_s(
        self, operator: Client, leader: str, take: Callable[[str, Client], Awaitable[None]]
    ) -> float:
        """End a leader's term; return after how many seconds the other machine has answered as the leader."""
        loop, led = asyncio.get_running_loop(), asyncio.Event()

        async def heard(message: Msg) -> None:
            with suppress(
                ValueError, AttributeError
            ):  # that nobody is there, says an empty message
                if json.loads(message.data)["standby"]["leads"] != leader:
                    led.set()

        inbox = operator.new_inbox()
        subscription = await operator.subscribe(inbox, cb=heard)
        began_s = loop.time()
        await take(leader, operator)
        try:
            async with asyncio.timeout(_LEADS_S_MAX):
                while not led.is_set():
                    await operator.publish("hub.status", b"", reply=inbox)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(led.wait(), _LOOK_S)
        except TimeoutError:
            raise BenchmarkError(f"nobody leads in {_LEADS_S_MAX:g} s") from None
        took_s = loop.time() - began_s
        await subscription.unsubscribe()
        return took_s

    async def _kill(self, leader: str, _: Client) -> None:
        await self._machines.parts[leader].stop(signal.SIGKILL)

    async def _stand_still(self, leader: str, _: Client) -> None:
        self._machines.parts[leader].send(signal.SIGSTOP)

    async def _hand_over(self, _: str, operator: Client) -> None:
        await _ask(operator, "hand-over", {})

    async def _go_on(self, leader: str) -> None:
        """Have the machine that led run again, and follow."""
        part = self._machines.parts[leader]
        if part.runs:
            part.send(signal.SIGCONT)
        else:
            await part.start()

    def _logins(self, machine: str) -> set[str]:
        """Return the public keys of the logins of the term of a machine that leads."""
        files = (self._machines.places[machine] / "creds" / "leader").glob("*/*.creds")
        found = {parse_credentials(each.read_text()).public_key for each in files}
        if len(found) != len(("HUB", "SYS")):
            raise BenchmarkError(f"machine {machine} has {len(found)} logins of its term")
        return found

    async def _connections(self, system: Client, logins: set[str]) -> int:
        servers = len(self._hub.addresses())
        asked = {"auth": True, "limit": _CONNECTIONS_MAX}
        answers = await ask_all(system, "CONNZ", servers, asked)
        found = [each for answer in answers for each in answer["data"].get("connections") or []]
        if not any(each.get("authorized_user") for each in found):
            raise BenchmarkError("the servers do not say whose their connections are")
        return sum(each.get("authorized_user") in logins for each in found)

    async def _enrol(self, device: str) -> None:
        """Enrol a vehicle that is to be revoked; its document is gone with that."""
        directory = self._hub.directory
        add = ["add-device", device, "--dir", str(directory)]
        await run_to_end([program("backhaul-hub"), *add])
        document = directory / "devices" / device / "identity.json"
        self._to_revoke.append(decode_identity(document.read_text()))

    async def _lets_in(self, identity: Identity) -> int:
        """Return how many servers let a vehicle in."""
        hub = self._hub
        ports = hub.leaf_ports.values() if isinstance(hub, ClusterRig) else [hub.leaf_port]
        count = 0
        for port in ports:
            leaf = RawLeaf.of(identity, "127.0.0.1", port)
            try:
                await leaf.open(wait=False)
                count += await leaf.flush()
            finally:
                await leaf.close()
        return count

    async def _count(self, operator: Client, load: Load, starts: Counter[str]) -> None:
        answer = await _ask(operator, "devices", None)
        [lanes] = [each["lanes"] for each in answer["devices"] if each["device"] == DEVICE]
        for lane in lanes.values():
            self._made.lost += lane["lost"] + len(lane["gaps"])
        self._made.lost += sum(not starts[each] for each in load.commands)
        self._made.twice = sum(starts[each] > 1 for each in load.commands)


def _led_at_s(logged: bytes) -> float:
    """Return when a machine wrote that it leads, in seconds since the Unix epoch. Raises: BenchmarkError: it did not."""
    for line in logged.decode().splitlines():
        if '"event": "leads"' in line:
            return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
    raise BenchmarkError("the new leader's log does not say since when it leads")


async def _ask(operator: Client, service: str, question: dict[str, str] | None) -> dict[str, Any]:
    body = b"" if question is None else json.dumps(question).encode()
    answer = await operator.request(f"hub.{service}", body, timeout=30)
    found: dict[str, Any] = json.loads(answer.data)
    if error := found.get("error"):
        raise BenchmarkError(f"{service}: {error}")
    return found
