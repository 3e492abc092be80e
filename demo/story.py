"""The story that `make demo` tells, in the order in which it happens."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backhaul_agent.client import connect
from backhaul_codec import Point
from tests.support.rig import patient
from tests.support.rig.parts import DeviceRig, HubRig, program, run_to_end
from tests.support.rig.relay import Relay

from .account import Account, Verdict
from .picture import Progress, draw, read_series
from .view import HubView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    Feed = AsyncIterator[dict[str, list[Point]]]

_LOOK_INTERVAL_S = 0.2
_LOOKS_A_REPORT = 15
_DRAIN_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each chapter takes, in seconds."""

    before_cut_s: float = 8.0
    cut_s: float = 20.0
    after_drain_s: float = 4.0


@dataclass(slots=True)
class Vehicle:
    """One vehicle of the story, and the radio link that can fail it."""

    rig: DeviceRig
    relay: Relay
    connected: bool = True


class Story:
    """One run of the demonstration.

    Args:
        out: an empty directory for everything that the run makes.
        feeds: device to its readings, a batch (node to points) at a time, at their own pace.
        series: the (node, type, key) that the plot at the end shows.
        say: prints one line.
    """

    def __init__(
        self,
        out: Path,
        feeds: dict[str, Feed],
        series: tuple[str, str, str],
        plan: Plan,
        say: Callable[[str], None],
    ) -> None:
        self._out = out
        self._feeds = feeds
        self._series = series
        self._plan = plan
        self._say = say
        self._account = Account()
        self._view = HubView()
        self._vehicles: dict[str, Vehicle] = {}
        self._unlucky = list(feeds)[1 % len(feeds)]
        self._progress = Progress(self._unlucky)
        self._start_s = asyncio.get_running_loop().time()

    async def run(self) -> bool:
        """Tell the story; return whether every acknowledged reading is in the history once."""
        async with AsyncExitStack() as stack:
            hub = await self._set_out(stack)
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._view.watch(hub)),
                    tasks.create_task(self._report()),
                ]
                driving = [tasks.create_task(self._drive(vid, stop)) for vid in self._vehicles]
                await asyncio.sleep(self._plan.before_cut_s)
                await self._cut_and_heal()
                await asyncio.sleep(self._plan.after_drain_s)
                stop.set()
                await asyncio.wait(driving)
                for device in self._vehicles:
                    await self._drained(device)
                for task in background:
                    task.cancel()
            self._tell("the vehicles have stopped, and the hub holds all that they kept:\n")
            self._say(await run_to_end(_hub("devices", hub.directory)))
            await self._write_history(hub)
            completeness = await self._completeness()
        return self._settle(completeness)

    async def _set_out(self, stack: AsyncExitStack) -> HubRig:
        hub = HubRig(self._out / "hub")
        await hub.init()
        stack.push_async_callback(hub.stop)
        await hub.start()
        for device in self._feeds:
            relay = await stack.enter_async_context(Relay("127.0.0.1", hub.leaf_port))
            rig = await DeviceRig.add(hub, device, self._out / device, link_port=relay.port)
            stack.push_async_callback(rig.stop)
            self._vehicles[device] = Vehicle(rig, relay)
        async with asyncio.TaskGroup() as tasks:
            for vehicle in self._vehicles.values():
                tasks.create_task(vehicle.rig.start())
        self._tell(f"a hub and {len(self._vehicles)} vehicles are up; readings are being taken")
        return hub

    async def _drive(self, device: str, stop: asyncio.Event) -> None:
        """Publish a vehicle's readings as programs on it would, and note what is kept."""
        url = self._vehicles[device].rig.url
        waiting = connect(url, wait_s=patient.PATIENCE_S)
        async with waiting as agent, asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(self._beat(device, url))
            async for batch in self._feeds[device]:
                for node, points in batch.items():
                    await agent.publish_batch(node, points)
                    self._account.kept(device, points)
                if stop.is_set():
                    break
            beating.cancel()

    async def _beat(self, device: str, url: str) -> None:
        """Publish as a program in any other language would: plain NATS, plain JSON, once a second.

        On the live lane, which goes ahead of telemetry.
        """
        client = await patient.connect(url)
        try:
            for count in itertools.count(1):
                point = Point("watchdog", "beat", time.time_ns(), float(count))
                body = {"value": count, "time": point.time, "lane": "live"}
                beat = json.dumps(body).encode()
                answer = await client.request("app.watchdog.beat", beat)
                if json.loads(answer.data) == {"kept": 1}:
                    self._account.kept(device, [point])
                await asyncio.sleep(1)
        finally:
            await client.close()

    async def _cut_and_heal(self) -> None:
        device = self._unlucky
        vehicle = self._vehicles[device]
        await vehicle.relay.cut()
        vehicle.connected = False
        cut_s = self._now_s()
        self._tell(f"CUT   the link of {device} is gone; the vehicle goes on taking readings")
        await asyncio.sleep(self._plan.cut_s)
        arrived = self._arrived(device)
        behind = self._kept(device) - arrived
        await vehicle.relay.heal()
        vehicle.connected = True
        healed_s = self._now_s()
        self._progress.cut_s = (cut_s, healed_s)
        self._tell(f"HEAL  the link of {device} is back; {behind:,} readings wait on the vehicle")
        await self._view.until(lambda: self._arrived(device) > arrived, _DRAIN_TIMEOUT_S)
        self._tell(f"      resumed after {self._now_s() - healed_s:.1f} s")
        await self._view.until(lambda: self._arrived(device) >= arrived + behind, _DRAIN_TIMEOUT_S)
        took_s = self._now_s() - healed_s
        self._tell(f"      drained after {took_s:.1f} s: nothing of the cut is missing")

    async def _drained(self, device: str) -> None:
        """Wait until the hub has all that a vehicle has kept."""
        kept = self._kept(device)
        await self._view.until(lambda: self._arrived(device) >= kept, _DRAIN_TIMEOUT_S)

    async def _report(self) -> None:
        """Say every few seconds how much each vehicle has kept, and what the hub still lacks."""
        for look in itertools.count(1):
            await asyncio.sleep(_LOOK_INTERVAL_S)
            self._progress.note(
                self._now_s(), self._kept(self._unlucky), self._arrived(self._unlucky)
            )
            if look % _LOOKS_A_REPORT:
                continue
            parts = []
            for device, vehicle in self._vehicles.items():
                kept, arrived = self._kept(device), self._arrived(device)
                link = "" if vehicle.connected else " (cut)"
                parts.append(f"{device}{link} {kept:,}/{kept - arrived:,}")
            self._tell("kept/not yet at hub:  " + "   ".join(parts))

    async def _write_history(self, hub: HubRig) -> None:
        tables = self._out / "history"
        at_tables = ["--table-root", str(tables)]
        self._tell("Spark reads the hub's streams into the fleet's history ...")
        ingest = ["ingest", "--hub-dir", str(hub.directory), *at_tables, "--once"]
        await run_to_end(_spark(*ingest), log=self._out / "spark-ingest.log")
        await run_to_end(_spark("rollup", *at_tables), log=self._out / "spark-rollup.log")
        name = ".".join(part for part in self._series if part)
        self._say(f"\nFleet history, {name} by the minute:\n")
        for device in self._vehicles:
            command = ["history", *at_tables, "--device", device, "--series", name]
            self._say(await run_to_end(_spark(*command, "--resolution", "1m")))
        points = tables / "points"
        fleet = {device: read_series(points, device, self._series) for device in self._vehicles}
        draw(self._out / "fleet.png", name, fleet, self._progress)

    async def _completeness(self) -> list[dict[str, Any]]:
        tables = str(self._out / "history")
        answer = await run_to_end(_spark("completeness", "--table-root", tables, "--json"))
        found: list[dict[str, Any]] = json.loads(answer)["lanes"]
        return found

    def _settle(self, completeness: Sequence[dict[str, Any]]) -> bool:
        verdicts = self._account.close(self._out / "history" / "points")
        self._say("Completeness, every acknowledged reading against the history:\n")
        for device in self._vehicles:
            verdict = verdicts.get(device, Verdict())
            lanes = [lane for lane in completeness if lane["device"] == device]
            holes = sum(len(lane["holes"]) for lane in lanes)
            self._say(
                f"  {device}  acknowledged {verdict.acknowledged:>7,}   in history"
                f" {verdict.in_history:>7,}   missing {verdict.missing}   doubled"
                f" {verdict.doubled}   gaps {holes}   {'complete' if verdict.sound else 'BROKEN'}"
            )
        sound = all(verdict.sound for verdict in verdicts.values())
        self._say("")
        return sound and len(verdicts) == len(self._vehicles)

    def _kept(self, device: str) -> int:
        return self._account.per_device[device]

    def _arrived(self, device: str) -> int:
        return self._view.points[device]

    def _tell(self, what: str) -> None:
        self._say(f"[{self._now_s():5.1f} s] {what}")

    def _now_s(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - self._start_s


def _hub(command: str, directory: Path) -> list[str]:
    return [program("backhaul-hub"), command, "--dir", str(directory)]


def _spark(*arguments: str) -> list[str]:
    return [program("backhaul-spark"), *arguments]
