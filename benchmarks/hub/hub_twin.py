"""Measure what the hub's picture of a vehicle costs the control plane: newest readings, rebroadcast.

One vehicle streams frames at a steady pace; then it has a backlog and drains it. The processor time
of the control plane is taken for each frame, and the messages counted that a listener at the top of
the tree hears, once for each setting: nothing kept; newest readings kept (`[twin] newest`); the same
published to TWIN_STATE (`[twin] state`); the same told along the tree (`[tree] rebroadcast = "all"`),
with two groups above the vehicle; and both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_codec import encode_frame
from backhaul_codec.subjects import encode_token
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, report
from tests.support.numbered_points import NODE, points
from tests.support.rig.parts import program, run_to_end
from tests.support.rig.vehicle import DEVICE, VehicleRig, cpu_s, vehicle

FRAME_POINTS = 125
_IN_FLIGHT = 64
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to set up a hub."""

    name: str
    newest: bool
    rebroadcast: str
    state: bool = False


_SETTINGS = (
    Setting("nothing kept", newest=False, rebroadcast="live"),
    Setting("newest kept", newest=True, rebroadcast="live"),
    Setting("newest published", newest=True, rebroadcast="live", state=True),
    Setting("newest told", newest=True, rebroadcast="all"),
    Setting("both", newest=True, rebroadcast="all", state=True),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one load has cost the control plane."""

    frames: int
    elapsed_s: float
    control_s: float
    server_s: float
    told: int

    def figures(self, name: str) -> list[Figure]:
        """Return what goes into the table."""
        return [
            Figure(f"{name}: frames", self.frames / self.elapsed_s, "frames/s"),
            Figure(f"{name}: told", self.told / self.elapsed_s, "messages/s"),
            Figure(f"{name}: control plane", self.control_s / self.frames * 1e6, "us/frame"),
            Figure(f"{name}: control plane", self.control_s / self.elapsed_s, "cores"),
            Figure(f"{name}: server", self.server_s / self.elapsed_s, "cores"),
        ]


def run(*, quick: bool) -> dict[str, object]:
    """Measure every setting, print the table, and return it."""
    figures: list[Figure] = []
    for setting in _SETTINGS:
        with scratch.directory("hub_twin") as directory:
            steady, drain = asyncio.run(
                _measure(
                    directory,
                    setting,
                    seconds=5 if quick else 15,
                    frames=5_000 if quick else 20_000,
                )
            )
            figures += steady.figures(f"{setting.name}, 200 frames/s")
            figures += drain.figures(f"{setting.name}, backlog")
    return report(
        f"hub_twin: frames of {FRAME_POINTS} points, 8 series, 4 ancestors and the node itself",
        figures,
    )


async def _measure(
    directory: Path, setting: Setting, *, seconds: int, frames: int
) -> tuple[Cost, Cost]:
    async with vehicle(directory, hub_sync_interval="2m") as rig:
        await _set_up(rig, setting)
        async with rig.device.connection() as leaf, rig.hub.connection() as hub:
            await rig.sourced(hub)
            told = await _listen(hub)
            steady = await _cost(rig, hub, leaf, told, _steadily(leaf, 0, seconds))
            await rig.relay.cut()
            await _publish(leaf, 200 * seconds, frames)
            drain = await _cost(rig, hub, leaf, told, rig.relay.heal())
    return steady, drain


async def _set_up(rig: VehicleRig, setting: Setting) -> None:
    path = rig.hub.directory / "hub.toml"
    twin = f"[twin]\nnewest = {_toml(setting.newest)}\nstate = {_toml(setting.state)}\n"
    tree = f'\n[tree]\nrebroadcast = "{setting.rebroadcast}"\n'
    path.write_text(path.read_text().replace("[twin]\n", twin) + tree)
    await rig.hub.control.stop()
    await rig.hub.start_control()
    for arguments in (
        ("create", "region"),
        ("create", "depot", "--under", "region"),
        ("move", DEVICE, "--to", "depot"),
    ):
        await run_to_end(
            [program("backhaul-hub"), "node", *arguments, "--dir", str(rig.hub.directory)]
        )


def _toml(flag: bool) -> str:
    return "true" if flag else "false"


async def _listen(hub: Client) -> list[int]:
    told = [0]

    async def count(_: Msg) -> None:
        told[0] += 1

    # What all ancestors are told, though nobody would listen to all of them.
    await hub.subscribe("up.>", cb=count, pending_bytes_limit=1 << 30, pending_msgs_limit=1 << 30)
    await hub.flush()
    return told


async def _cost(
    rig: VehicleRig, hub: Client, leaf: Client, told: list[int], load: Coroutine[Any, Any, None]
) -> Cost:
    clock = asyncio.get_running_loop()
    before = await rig.bulk_at_hub(hub)
    pids = rig.hub.control.pid, rig.hub.server.pid
    used_s, told_before, start_s = [cpu_s(pid) for pid in pids], told[0], clock.time()
    await load
    status = await rig.appended(leaf)
    lane = await rig.proved(hub, status["lanes"]["bulk"]["last_seq"], _TIMEOUT_S)
    elapsed_s = clock.time() - start_s
    control_s, server_s = (cpu_s(pid) - used for pid, used in zip(pids, used_s, strict=True))
    frames = lane["watermark"] - before.get("watermark", 0)
    await hub.flush()
    return Cost(frames, elapsed_s, control_s, server_s, told[0] - told_before)


async def _steadily(leaf: Client, first: int, seconds: int) -> None:
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    for tenth in range(10 * seconds):
        await _publish(leaf, first + 20 * tenth, 20)
        due_s += 0.1
        await asyncio.sleep(max(0.0, due_s - loop.time()))


async def _publish(leaf: Client, first: int, count: int) -> None:
    """Have the agent keep `count` frames, each with later readings than the one before."""
    remaining = iter(range(first, first + count))

    async def one_after_another() -> None:
        for number in remaining:
            body = encode_frame(points(FRAME_POINTS, number * FRAME_POINTS), epoch=0, seq=0)
            answer = await leaf.request(f"app.{encode_token(NODE)}", body, timeout=30)
            if b"kept" not in answer.data:
                raise BenchmarkError(f"the agent refused a frame: {answer.data!r}")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(_IN_FLIGHT, count)):
            tasks.create_task(one_after_another())
