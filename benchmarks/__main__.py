"""`python -m benchmarks`: measure, print each figure beside what it is compared with, write JSON.

The exit status is 0 even where an aim is missed, which is printed; it is 1 where a benchmark
breaks or acknowledged data is missing.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from backhaul_runtime.clock import Clock, SystemClock
from benchmarks import machine, scratch
from benchmarks.figures import skipped
from benchmarks.gateway import options
from benchmarks.wire.frame_aims import judged


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One module with `run(*, quick) -> dict`, by room and name, and its measurement."""

    place: str
    about: str
    needs_java: bool = False
    judged: Callable[[dict[str, Any]], dict[str, object]] | None = None
    """Puts the aims beside the figures of a module that knows none."""

    @property
    def name(self) -> str:
        """Return the name on the command line."""
        return self.place.rpartition("/")[2]

    def run(self, *, quick: bool) -> dict[str, object]:
        """Run it; it prints its own table."""
        if self.needs_java and not _java():
            return skipped(
                self.name, "no Java: set JAVA_HOME, or use make bench, which looks for one"
            )
        module = importlib.import_module(f"benchmarks.{self.place.replace('/', '.')}")
        result: dict[str, object] = module.run(quick=quick)
        return self.judged(result) if self.judged else result


BENCHMARKS = (
    Benchmark(
        "wire/frame_size",
        "bytes per point of frames, on recordings of real vehicles",
        judged=judged,
    ),
    Benchmark(
        "wire/small_frames", "what a fleet's tiny frames cost a reader, together and one by one"
    ),
    Benchmark("wire/chain_cost", "what linking and hashing each message costs, at both ends"),
    Benchmark("vehicle/edge_history", "seconds to answer for history out of a vehicle's ledger"),
    Benchmark("hub/identities", "what a vehicle's identity costs, and what revoking one does"),
    Benchmark("hub/abuse", "how long an event takes beside a vehicle that floods the hub"),
    Benchmark("vehicle/program_flood", "how long programs wait beside one that floods the agent"),
    Benchmark("gateway", "bytes and seconds of a gateway's link, beside MQTT and plain NATS"),
    Benchmark("vehicle/ingest", "points and messages per second that an agent makes durable"),
    Benchmark("vehicle/memory", "resident memory of the agent"),
    Benchmark("spark/expanding", "peak memory of ingest for small messages that come to much"),
    Benchmark("hub/hub_drain", "how fast a backlog reaches the hub and is proved complete"),
    Benchmark(
        "vehicle/day_offline",
        "17 million points of a day offline: kept, drained, and memory meanwhile",
    ),
    Benchmark("hub/cluster", "what three servers cost, and the pause when one dies"),
    Benchmark("hub/takeover", "how soon another machine leads, and what becomes of the load"),
    Benchmark("hub/new_source", "for how long a shard waits when a vehicle is added to it"),
    Benchmark("hub/migrate", "for how long a hub stands still when it moves to another server"),
    Benchmark("hub/hub_reading", "processor time of a message of UP, by the messages of a turn"),
    Benchmark("hub/hub_fleet", "what a fleet's messages cost the control plane, end to end"),
    Benchmark(
        "hub/thousand_leafs", "1,000 leaf links: idle, restart of the hub, one of three killed"
    ),
    Benchmark("hub/hub_memory", "memory of the control plane a vehicle, and seconds to load"),
    Benchmark("hub/hub_telling", "words a second to vehicles, one by one and in batches"),
    Benchmark("hub/page", "10,000 devices in a browser: the first picture, 1,000 changes a second"),
    Benchmark("link/resume", "seconds until a restored link carries the backlog"),
    Benchmark("link/slow_link", "a backlog over 20 kbit/s and 600 ms, and what is new meanwhile"),
    Benchmark("link/artifacts", "files over cuts and over 20 kbit/s, memory, and events meanwhile"),
    Benchmark("link/idle_day", "bytes of a day with nothing to send, metered and always there"),
    Benchmark("link/commands", "1,000 operators' commands under kill -9 of everything"),
    Benchmark(
        "spark/sink", "alerts and commands of the twin job, and what kill -9 doubles of them"
    ),
    Benchmark(
        "vehicle/store_cut", "what a power cut takes from a leaf stream, and from the ledger"
    ),
    Benchmark("detect/detector", "labelled anomalies found in recordings, and how early"),
    Benchmark("spark/places", "trips and stops beside movingpandas, and what a fix costs"),
    Benchmark("detect/together", "faults of machines found in several series together"),
    Benchmark("detect/unusual", "false alarms of rule unusual on vehicles that are well"),
    Benchmark("spark/restate", "what a backlog of two days does to the rollups, and how fast"),
    Benchmark("spark/past", "seconds to answer for a year of a series at 1 Hz, for a chart"),
    Benchmark("spark/one_series", "seconds of `history` for one series of many, beside DuckDB"),
    Benchmark(
        "spark/questions",
        "seconds of questions about 4,000 trucks, beside plain Parquet, by DuckDB and by Spark",
        needs_java=True,
    ),
    Benchmark("spark/sizing", "what a fleet needs, computed from what was measured"),
    Benchmark("spark/fleet_anomalies", "judging a day of 100,000 devices, and what it finds"),
    Benchmark(
        "spark/twin",
        "rows a second through the twin's rules, and how soon alerts come",
        needs_java=True,
    ),
    Benchmark(
        "spark/planted",
        "faults of a simulated fleet that the jobs find, and false ones",
        needs_java=True,
    ),
    Benchmark("spark/spark_ingest", "points per second into the history tables", needs_java=True),
    Benchmark(
        "spark/kills", "jobs on Spark under kill -9: what is lost or doubled", needs_java=True
    ),
    Benchmark(
        "spark/fleet_load", "jobs on Spark under the load of 100,000 devices", needs_java=True
    ),
)
_LIST = "\n".join(f"{each.name:16}{each.about}" for each in BENCHMARKS)


@click.command(epilog=f"\b\nBenchmarks:\n{_LIST}")
@click.argument(
    "names", metavar="[NAME]...", nargs=-1, type=click.Choice([each.name for each in BENCHMARKS])
)
@click.option("--quick", is_flag=True, help="Smaller loads.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench-out"),
    show_default=True,
    help="Where NAME.json is written, and where servers keep their files meanwhile.",
)
@click.option("--rows", help="gateway, thousand_leafs: only these rows, as a,c,f.")
@click.option("--sourced", is_flag=True, help="gateway: vehicles push nothing.")
@click.option("--unpacked", is_flag=True, help="thousand_leafs: the hub does not pack links.")
@click.option("--outages", type=click.IntRange(1), help="gateway: how many cuts of the link.")
@click.option(
    "--vehicles", type=click.IntRange(1), help="gateway, thousand_leafs: how many vehicles."
)
@click.option(
    "--minutes", type=click.FloatRange(0.1), help="page, hub_fleet: for how long it changes."
)
@click.option("--devices", type=click.IntRange(1), help="hub_fleet: how many vehicles.")
@click.option(
    "--ways",
    multiple=True,
    type=click.Choice(options.WAYS),
    help="takeover: only these, each by an option of its own.",
)
@click.option("--servers", type=click.Choice(["1", "3"]), help="takeover: only with so many.")
@click.option("--times", type=click.IntRange(1), help="takeover: how often in each way.")
@click.option("--rate", type=click.IntRange(1), help="hub_fleet: messages a second of them all.")
def main(
    names: tuple[str, ...],
    quick: bool,
    out: Path,
    rows: str | None,
    sourced: bool,
    unpacked: bool,
    outages: int | None,
    vehicles: int | None,
    minutes: float | None,
    devices: int | None,
    ways: tuple[str, ...],
    servers: str | None,
    times: int | None,
    rate: int | None,
) -> None:
    """Run all benchmarks, or those named."""
    try:
        chosen_rows = options.rows_of(rows) if rows else options.Options().rows
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--rows") from error
    chosen_options = options.Options(
        *(chosen_rows, outages, vehicles),
        push=not sourced,
        packed=not unpacked,
        minutes=minutes,
        devices=devices,
        rate=rate,
        ways=ways or options.WAYS,
        servers=(int(servers),) if servers else (1, 3),
        times=times,
    )
    options.CHOSEN.set(chosen_options)
    chosen = [each for each in BENCHMARKS if not names or each.name in names]
    sys.exit(0 if run_all(chosen, quick=quick, out=out, clock=SystemClock()) else 1)


def run_all(chosen: list[Benchmark], *, quick: bool, out: Path, clock: Clock) -> bool:
    """Run benchmarks one after another; return whether none of them broke."""
    scratch.OUT.set(out)
    out.mkdir(parents=True, exist_ok=True)
    broken = []
    for benchmark in chosen:
        began = datetime.fromtimestamp(clock.now_ns() / 1e9, UTC).isoformat(timespec="seconds")
        record: dict[str, object] = {
            "benchmark": benchmark.name,
            "date": began,
            "quick": quick,
            "machine": machine.describe(),
        }
        print(f"\n{benchmark.name}: {benchmark.about}", flush=True)
        try:
            record["result"] = benchmark.run(quick=quick)
        except Exception as error:  # noqa: BLE001 - the others still run; the exit status tells
            traceback.print_exc()
            record["broken"] = f"{type(error).__name__}: {error}"
            broken.append(benchmark.name)
        (out / f"{benchmark.name}.json").write_text(json.dumps(record, indent=2) + "\n")
    if broken:
        print(f"\nbroken: {', '.join(broken)}", file=sys.stderr)
    return not broken


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return (home is not None and (Path(home) / "bin" / "java").exists()) or bool(
        shutil.which("java")
    )


if __name__ == "__main__":
    main()
