"""What a fleet of vehicles needs: computed, each figure from a measured one.

Every constant names the benchmark or the note it comes from (docs/benchmarks.md, docs/scaling.md);
change one here and the table follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FLEETS = (1_000, 10_000, 100_000)

# What a vehicle does.
FRAMES_PER_MINUTE = 6
POINTS_PER_FRAME = 25


@dataclass(frozen=True, slots=True)
class Measured:
    """A constant, and where it was measured."""

    value: float
    unit: str
    source: str


SHARD = Measured(
    500, "vehicles a stream", "a source more: 8 ms in a stream of 100, 260 ms of 1,000"
)
LANES_UP = Measured(2, "sources a vehicle", "live and bulk; ARCHITECTURE.md")
SOURCE_KB = Measured(25, "kB a source", "1,000 sources: +25 MB of resident memory")
SOURCE_CORES = Measured(18e-6, "core a source", "1,000 idle sources: 1.8% of a core")
CONSUMER_KB = Measured(44, "kB a consumer", "5,000 durable consumers: +219 MB")
LINK_KB = Measured(1_200, "kB a link", "`thousand_leafs`: 1,000 leaf links, buffers of S2")
IDLE_LINK_CORES = Measured(118e-6, "core a link", "`thousand_leafs --unpacked`: 69 and 49 us")
SOURCED_BYTES_S = Measured(27_100 / 60, "bytes/s a vehicle", "`gateway --sourced`, idle")
IDLE_BYTES_S = Measured(1.8e6 / 8 / 100_000, "bytes/s a vehicle", "`gateway`, idle, of 120")
BODY_BYTES = Measured(4.0, "bytes a point", "`backhaul-hub simulate --per-frame 25`")
MESSAGE_BYTES = Measured(150, "bytes a message", "the same: what UP holds beside the body")
SYNCED_FRAMES_S = Measured(5_400, "frames/s a disk", "`hub_drain`, `sync_interval: always`")
CONTROL_US = Measured(107, "us a frame", "`hub_fleet`, 100,000 vehicles, all told; one core")
# Two equations: 6,080 frames of 200 points a second on two cores (`spark_ingest`), and 125 us for
# each of 70,000 simulated messages of 16.5 points on average.
INGEST_FRAME_US = Measured(106, "us a frame", "`spark_ingest`, and simulated frames")
INGEST_POINT_US = Measured(1.1, "us a point", "the same")
TWIN_CORES = Measured(83e-6, "core for a message/s", "`fleet_load`, 100,000 devices, 600 s")
# Two equations: `twin --quick` with 20,000 devices, `fleet_load` with 100,000.
TWIN_DEVICE_BYTES = Measured(9_300, "bytes a vehicle", "1,734 MB of 20,000, 2,476 MB of 100,000")
TWIN_PROCESS_MB = Measured(1_550, "MB", "the same")
TABLE_BYTES = Measured(7, "bytes a point", "points table of a simulated fleet, zstd")

CONSTANTS = {name: value for name, value in list(globals().items()) if isinstance(value, Measured)}


@dataclass(frozen=True, slots=True)
class Need:
    """One line of the table: what so many vehicles need."""

    name: str
    unit: str
    of: Callable[[int], float]
    note: str = ""


def frames_s(vehicles: int) -> float:
    """Return messages a second that the hub takes in."""
    return vehicles * FRAMES_PER_MINUTE / 60


def points_s(vehicles: int) -> float:
    """Return points a second."""
    return frames_s(vehicles) * POINTS_PER_FRAME


def stored_bytes_s(vehicles: int) -> float:
    """Return bytes a second that UP grows by."""
    return frames_s(vehicles) * MESSAGE_BYTES.value + points_s(vehicles) * BODY_BYTES.value


def _a_day_gb(bytes_s: float) -> float:
    return bytes_s * 86_400 / 1e9


NEEDS = (
    Need("frames", "1/s", frames_s),
    Need("points", "1/s", points_s),
    Need("UP streams", "", lambda n: math.ceil(n / SHARD.value)),
    Need("sources", "", lambda n: n * LANES_UP.value),
    Need(
        "hub memory",
        "GB",
        lambda n: n * (LANES_UP.value * SOURCE_KB.value + CONSUMER_KB.value) / 1e6,
        "sources and DOWN's consumers",
    ),
    Need(
        "leaf links, memory",
        "GB",
        lambda n: n * LINK_KB.value / 1e6,
        "a quarter with `compression: off`",
    ),
    Need(
        "idle links, processor",
        "cores",
        lambda n: n * IDLE_LINK_CORES.value,
        "server and control plane",
    ),
    Need("hub, idle sources", "cores", lambda n: n * LANES_UP.value * SOURCE_CORES.value),
    Need("idle links", "Mbit/s", lambda n: n * IDLE_BYTES_S.value * 8 / 1e6, "all together"),
    Need("the same, all sourced", "Mbit/s", lambda n: n * SOURCED_BYTES_S.value * 8 / 1e6),
    Need("UP, a day", "GB", lambda n: _a_day_gb(stored_bytes_s(n))),
    Need(
        "disks for UP",
        "",
        lambda n: math.ceil(frames_s(n) / SYNCED_FRAMES_S.value),
        "`always`; servers of a cluster, or hubs",
    ),
    Need(
        "control plane",
        "cores",
        lambda n: frames_s(n) * CONTROL_US.value / 1e6,
        "more than 1: another hub",
    ),
    Need(
        "ingest",
        "cores",
        lambda n: (frames_s(n) * INGEST_FRAME_US.value + points_s(n) * INGEST_POINT_US.value) / 1e6,
    ),
    Need("points table, a day", "GB", lambda n: _a_day_gb(points_s(n) * TABLE_BYTES.value)),
    Need("twin job", "cores", lambda n: frames_s(n) * TWIN_CORES.value),
    Need(
        "twin job, memory",
        "GB",
        lambda n: TWIN_PROCESS_MB.value / 1e3 + n * TWIN_DEVICE_BYTES.value / 1e9,
    ),
)


def readable(value: float) -> str:
    """Return a number with the two digits that a sizing is good for; whole from 10 on."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
