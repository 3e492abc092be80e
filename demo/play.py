"""`make play`: a fleet of twelve simulated vehicles in a made-up town, with a page to look at it, until Ctrl-C.

A hub and a real agent with its leaf server for each vehicle. Something is wrong with some of them, links are cut and heal,
and now and then an operator sends a command.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.testing import CliRunner
from nats.errors import Error as NatsError

import backhaul_agent.cli.main
import backhaul_hub.cli.main
from backhaul_agent.client import connect
from tests.support.rig import patient
from tests.support.rig.parts import DeviceRig, HubRig, RigError
from tests.support.rig.ports import free_port
from tests.support.rig.relay import Relay

from .feeds import simulated
from .simulate import Fault, Vehicle
from .town_map import write_town

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.client import Agent

FAULTS: dict[int, Fault] = {3: "hot-fridge", 6: "weak-battery", 9: "stuck-sensor"}
"""By the vehicle's number."""
_JAMMED = 5
"""The vehicle whose door does not open."""
_GROUPS = ("depot-north", "depot-south", "workshop")
_PERSON = "olga"
_PASSES_A_SECOND, _PASSES_A_BATCH = 1.0, 2
_HOT_C, _LOW_SOC = 8.0, 15.0
# Brief cuts are to be seen; the hub waits five minutes where it is told nothing.
_PAGE = '[page]\nmap = "town.pmtiles"\nunits = { "battery.soc" = "%", temp = "°C", speed = "km/h", voltage = "V", current = "A", power = "kW", odometer = "km" }\n'
_HEALTH = "\n[health]\ninterval_s = 1\nlink_down_after_s = 3\nagent_down_after_s = 20\n"
_FILES = Path(backhaul_hub.cli.main.__file__).parents[1] / "page" / "files"


@dataclass(frozen=True, slots=True)
class PlayPlan:
    """When something happens, in seconds."""

    cut_after_s: float = 20.0
    cut_s: float = 45.0
    cut_every_s: float = 75.0
    command_every_s: float = 30.0


@dataclass(slots=True)
class Player:
    """One vehicle of the play."""

    rig: DeviceRig
    relay: Relay
    vehicle: Vehicle


class Play:
    """One run.

    Args:
        out: an empty directory for everything that the run makes.
        number: of vehicles.
        seed: of their journeys.
        say: prints one line.
    """

    def __init__(
        self, out: Path, number: int, seed: int, plan: PlayPlan, say: Callable[[str], None]
    ) -> None:
        self._out, self._number, self._plan, self._say = out, number, plan, say
        self._seed = seed
        self._dice = random.Random(seed)  # noqa: S311 - a play
        self._players: dict[str, Player] = {}

    async def run(self) -> None:
        """Play until cancelled, and end every process that the play has started.

        Raises:
            RigError: a part did not start.
        """
        try:
            async with AsyncExitStack() as stack:
                hub = await self._set_out(stack)
                stack.callback(self._say, "ending the fleet and its hub ...")
                self._say(await self._link(hub))
                self._say("Ctrl-C ends all of it.\n")
                async with asyncio.TaskGroup() as tasks:
                    for player in self._players.values():
                        tasks.create_task(self._drive(player))
                    tasks.create_task(self._cut_links())
                    tasks.create_task(self._command(hub))
        finally:
            self._say(f"all has ended; logs are in {self._out}")

    async def _set_out(self, stack: AsyncExitStack) -> HubRig:
        hub = HubRig(self._out / "hub", run=run_quietly)
        hub.server.before = hub.control.before = ends_with_us()
        await hub.init("--page-port", str(free_port()), "--websocket-port", str(free_port()))
        toml = hub.directory / "hub.toml"
        text = toml.read_text().replace("[page]\n", _PAGE, 1)
        toml.write_text(text + _HEALTH)
        write_town(hub.directory / "town.pmtiles")
        stack.push_async_callback(hub.stop)
        await hub.start()
        self._say(f"a hub is up; starting {self._number} vehicles ...")
        stack.push_async_callback(self._stop_vehicles)
        async with asyncio.TaskGroup() as tasks:
            for number in range(1, self._number + 1):
                device = f"VID-{number:03}"
                relay = await stack.enter_async_context(Relay("127.0.0.1", hub.leaf_port))
                rig = await DeviceRig.add(hub, device, self._out / device, link_port=relay.port)
                rig.leaf.before = rig.agent.before = ends_with_us()
                vehicle = Vehicle(device, self._seed, FAULTS.get(number))
                self._players[device] = Player(rig, relay, vehicle)
                # While the next one is enrolled.
                tasks.create_task(rig.start())
        for number, group in enumerate(_GROUPS):
            await self._operator(hub, "node", "create", group)
            for device in list(self._players)[number :: len(_GROUPS)]:
                await self._operator(hub, "node", "move", device, "--to", group)
        self._say(
            f"{self._number} vehicles are up: a hub server, {self._number} leaf servers and agents"
        )
        return hub

    async def _stop_vehicles(self) -> None:
        await asyncio.gather(*(player.rig.stop() for player in self._players.values()))

    async def _link(self, hub: HubRig) -> str:
        """Return a sentence with a link that logs a browser in, or what to do for one."""
        if not (_FILES / "built.json").exists():
            return "\nThe page is not built, so there is no link: run tools/page, then make play again.\n"
        await self._operator(hub, "user", "add", _PERSON, "--group", "fleet", "--may", "command")
        said = await self._operator(hub, "user", "link", _PERSON, "--for", "24h", "--json")
        url = json.loads(said)["url"]
        return f"\nLook at it (this link logs one browser in, once):\n\n  {url}\n"

    async def _operator(self, hub: HubRig, *words: str) -> str:
        return await hub.run(["backhaul-hub", *words, "--dir", str(hub.directory)])

    async def _drive(self, player: Player) -> None:
        """Publish a vehicle's readings, report what happens to it, and do what it is told."""
        vehicle = player.vehicle
        feed = simulated(
            vehicle,
            time.time_ns,
            passes_a_second=_PASSES_A_SECOND,
            passes_a_batch=_PASSES_A_BATCH,
        )
        async with connect(player.rig.url, wait_s=patient.PATIENCE_S) as agent:
            await self._introduce(agent, vehicle)
            noted: dict[str, bool] = {}
            async for batch in feed:
                for node, points in batch.items():
                    await agent.publish_batch(node, points)
                await self._report(agent, vehicle, noted)

    async def _introduce(self, agent: Agent, vehicle: Vehicle) -> None:
        number = int(vehicle.device[-3:])
        await agent.publish("vehicle", "model", f"VAN-{number % 2 + 1}", lane="live")
        await agent.publish("vehicle", "firmware", "4.2" if number % 3 else "4.1", lane="live")

        async def flash(command: dict[str, Any]) -> Any:
            times = (command["params"] or {}).get("times", 1)
            await asyncio.sleep(min(int(times), 10) * 0.4)
            return {"flashed": times}

        async def unlock(command: dict[str, Any]) -> Any:
            if number == _JAMMED:
                raise RigError("the door is jammed")
            vehicle.door = "open"
            return {"door": vehicle.door}

        await agent.on_command("lights.flash", flash)
        await agent.on_command("door.unlock", unlock)

    async def _report(self, agent: Agent, vehicle: Vehicle, noted: dict[str, bool]) -> None:
        """Report what has begun or ended since, as a program on the vehicle would."""
        now = {
            "fridge-hot": vehicle.box_c > _HOT_C,
            "battery-low": vehicle.soc < _LOW_SOC,
            "charging": vehicle.charging,
        }
        for kind, holds in now.items():
            if holds and not noted.get(kind, False):
                data = {"box_c": round(vehicle.box_c, 1), "soc": round(vehicle.soc, 1)}
                await agent.event(kind, data=data)
            noted[kind] = holds

    async def _cut_links(self) -> None:
        await asyncio.sleep(self._plan.cut_after_s)
        while True:
            device = self._dice.choice(list(self._players))
            relay = self._players[device].relay
            await relay.cut()
            self._tell(f"CUT   the link of {device} is gone; it goes on taking readings")
            await asyncio.sleep(self._plan.cut_s)
            await relay.heal()
            self._tell(f"HEAL  the link of {device} is back")
            await asyncio.sleep(max(self._plan.cut_every_s - self._plan.cut_s, 1.0))

    async def _command(self, hub: HubRig) -> None:
        commands = (("lights.flash", {"times": 3}), ("door.unlock", None))
        async with hub.connection(max_reconnect_attempts=-1) as client:
            jetstream = client.jetstream()
            for count in range(1, sys.maxsize):
                await asyncio.sleep(self._plan.command_every_s)
                device = self._dice.choice(list(self._players))
                name, params = commands[count % len(commands)]
                body = {"params": params, "deadline_s": 60, "who": _PERSON}
                subject = f"fleet.prod.veh.{device}.cmd.{name}"
                try:
                    await jetstream.publish(subject, json.dumps(body).encode())
                except NatsError as error:
                    self._tell(f"      the hub does not take a command: {error!r}")
                else:
                    self._tell(f"SEND  {name} to {device}")

    def _tell(self, what: str) -> None:
        self._say(f"{time.strftime('%H:%M:%S')}  {what}")


def ends_with_us() -> tuple[str, ...]:
    """Return the words before a command by which its process ends with this one, even if this one is killed; none where that cannot be had."""
    setpriv = shutil.which("setpriv")
    return () if setpriv is None else (setpriv, "--pdeathsig", "TERM", "--")


async def run_quietly(arguments: list[str]) -> str:
    """Run a command of ours in this process, and return what it printed: a Python for each takes most of a second.

    Raises:
        RigError: it failed.
    """
    commands = {
        "backhaul-agent": backhaul_agent.cli.main.cli,
        "backhaul-hub": backhaul_hub.cli.main.cli,
    }
    name, *words = arguments
    # In a thread, as commands have an event loop of their own.
    done = await asyncio.to_thread(CliRunner().invoke, commands[Path(name).name], words)
    if done.exit_code != 0:
        why = done.exception if done.exception is not None else ""
        raise RigError(f"{Path(name).name} {words[0]} failed: {done.output} {why}")
    return done.stdout


@click.command()
@click.option("--vehicles", default=12, show_default=True, type=click.IntRange(1, 40))
@click.option("--seed", default=1, show_default=True, help="Another seed, other journeys.")
@click.option("--cut-after", default=20.0, show_default=True, help="Seconds until a link is cut.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("play-out"),
    show_default=True,
    help="Where everything that the run makes is put; emptied first.",
)
def main(vehicles: int, seed: int, cut_after: float, out: Path) -> None:
    """Run a fleet and its hub on this machine until Ctrl-C, and print a link to its page."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    plan = PlayPlan(cut_after_s=cut_after)
    try:
        asyncio.run(_play(Play(out.absolute(), vehicles, seed, plan, _say)))
    except* RigError as errors:
        print(f"\nplay: {errors.exceptions[0]}", file=sys.stderr)
        sys.exit(1)


async def _play(play: Play) -> None:
    loop, playing = asyncio.get_running_loop(), asyncio.ensure_future(play.run())
    told = asyncio.Event()

    def end() -> None:
        told.set()
        playing.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    await asyncio.wait([playing])
    # Ctrl-C reaches the parts, too: one that has ended for it is no error.
    if not told.is_set():
        playing.result()
    elif not playing.cancelled():
        playing.exception()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
