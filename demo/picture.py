"""The fleet in one picture: a series of every vehicle, and what the cut did to the way to the hub."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

_COLOURS = ("#0b63ce", "#d4351c", "#1b7f4b", "#7a4fbf", "#b8860b", "#008b8b")
_GAP = 25
_INK = "#5b6470"


@dataclass(slots=True)
class Progress:
    """What was kept on the unlucky vehicle and what had arrived, as the run went on."""

    device: str
    seconds: list[float] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    cut_s: tuple[float, float] = (0.0, 0.0)

    def note(self, at_s: float, kept: int, arrived: int) -> None:
        """Take in one look at the run, `at_s` seconds after its start."""
        self.seconds.append(at_s)
        self.kept.append(kept)
        self.arrived.append(arrived)


def read_series(
    table: Path, device: str, series: tuple[str, str, str]
) -> tuple[list[datetime], list[float]]:
    """Read one series of one device from the points table, in order of time."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    from deltalake import DeltaTable

    from backhaul_spark.tables.delta import dataset_of

    node, type_, key = series
    chosen = (
        (pc.field("device") == device)
        & (pc.field("node") == node)
        & (pc.field("type") == type_)
        & (pc.field("key") == key)
    )
    rows = (
        dataset_of(DeltaTable(table))
        .to_table(columns=["time_ns", "value_f64", "device", "node", "type", "key"], filter=chosen)
        .sort_by("time_ns")
    )
    times = [datetime.fromtimestamp(ns / 1e9, UTC) for ns in rows.column("time_ns").to_pylist()]
    return times, rows.column("value_f64").to_pylist()


def draw(
    path: Path,
    name: str,
    fleet: dict[str, tuple[list[datetime], list[float]]],
    progress: Progress,
) -> None:
    """Write the picture as a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import dates, pyplot

    figure, (top, bottom) = pyplot.subplots(
        2, 1, figsize=(11, 7.5), height_ratios=(3, 2), layout="constrained"
    )
    for colour, (device, (times, values)) in zip(_COLOURS, fleet.items(), strict=False):
        top.plot(*_broken_at_gaps(times, values), color=colour, linewidth=1.2, label=device)
    top.set_title(f"{name}: the fleet's history", loc="left", fontweight="bold")
    top.xaxis.set_major_formatter(
        dates.ConciseDateFormatter(top.xaxis.get_major_locator())  # type: ignore[no-untyped-call]
    )
    top.legend(frameon=False, ncols=len(fleet), loc="upper right")

    bottom.axvspan(*progress.cut_s, color="#f3d9d5", label="link cut")
    bottom.plot(progress.seconds, progress.kept, color=_COLOURS[1], label="kept on the vehicle")
    bottom.plot(
        progress.seconds, progress.arrived, color=_INK, linestyle="--", label="arrived at the hub"
    )
    bottom.set_title(f"{progress.device}: readings", loc="left", fontweight="bold")
    bottom.set_xlabel("seconds since the start", color=_INK)
    bottom.legend(frameon=False, loc="upper left")
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e3e6ea", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(colors=_INK)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _broken_at_gaps(
    times: list[datetime], values: list[float]
) -> tuple[list[datetime], list[float]]:
    """Put a NaN where readings are missing for long, so that no line is drawn across."""
    if len(times) < 3:
        return times, values
    steps = sorted((b - a).total_seconds() for a, b in itertools.pairwise(times))
    longest_s = max(1.0, steps[len(steps) // 2] * _GAP)
    x, y = [times[0]], [values[0]]
    for before, now, value in zip(times, times[1:], values[1:], strict=False):
        if (now - before).total_seconds() > longest_s:
            x.append(before)
            y.append(float("nan"))
        x.append(now)
        y.append(value)
    return x, y
