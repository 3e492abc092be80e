"""Draw a history with matplotlib, without a display: as the hub's pages do, for paper."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from backhaul_spark import palette
from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.errors import OptionError
from backhaul_spark.query.history import Answer
from backhaul_spark.rollup.known_at import LENGTHS

# A silence of so many usual steps is a gap, and no line is drawn across it.
GAP_STEPS = 5
# So many different texts are states; more are names or messages, of which no picture can be read.
STATES_MAX = 20
# Whole numbers that are so few, and stay for so many readings, are states too: a gear, a mode, a switch.
ENUM_MAX, ENUM_STAYS = 8, 5
# So few points are drawn as points, and no line says what was between them; of more each is marked on the line.
SPARSE_MAX, MARKED_MAX = 24, 150
NAME_LENGTH_MAX = 40
_STRIP = 0.025
"""Part of the height, at the foot, that says how the hours stand."""

Times = NDArray[np.datetime64]


class Segment(NamedTuple):
    """A time for which a state lasted."""

    state: str
    start: np.datetime64
    end: np.datetime64
    whole: bool = True
    """False: the state was there at the beginning of the window only."""


def draw(answer: Answer, path: str, unit: str = "") -> None:
    """Write a PNG (or the format of the file's ending) of the series over time; times are UTC.

    Numbers are a line, or points where they are few; of windows the band from minimum to maximum with the mean in it. Texts, and whole
    numbers that are few and stay, are bands of time, a line for each state.

    Raises:
        OptionError: there is nothing that a picture could show, or more different texts than lines;
            or the ending is of no kind of picture, or the file cannot be written.
    """
    kind = Path(path).suffix.removeprefix(".") or "png"
    if kind not in (known := FigureCanvasAgg.get_supported_filetypes()):
        raise OptionError("--plot", path, f"a file that ends in one of {', '.join(sorted(known))}")
    states = segments(answer)
    height = 4.2 if states is None else 1.5 + 0.36 * len({each.state for each in states})
    figure = Figure(figsize=(11, height), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    if states is not None:
        drawn = _draw_states(axes, states)
    elif answer.resolution == "raw":
        drawn = _draw_raw(axes, answer)
    else:
        drawn = _draw_windows(axes, answer)
    keys = [] if states is not None else _draw_standing(axes, answer)
    _dress(axes, answer, drawn, unit, keys, as_states=states is not None)
    try:
        with rc_context({"hatch.linewidth": 0.7}):
            figure.savefig(path)
    except OSError as error:
        expected = f"a file that can be written ({error.strerror})"
        raise OptionError("--plot", path, expected) from error


def plain(text: str) -> str:
    """Return the part of a vehicle's name that every font can draw, not too long."""
    shown = "".join(sign if sign.isascii() and sign.isprintable() else "?" for sign in text)
    if len(shown) > NAME_LENGTH_MAX:
        shown = shown[: NAME_LENGTH_MAX - 3] + "..."
    return shown.replace("$", r"\$")  # or matplotlib takes it for a formula


def plain_unit(text: str) -> str:
    """Return a unit as a font draws it, not too long."""
    return "".join(sign for sign in text if sign.isprintable())[:12].replace("$", r"\$")


def broken(time: Times, usual_us: float | None = None) -> tuple[Ints, float]:
    """Return where gaps begin (the index after which a line must break), and the usual step in us.

    `time` is ascending, (n,) datetime64; the usual step is the median of the steps if it is not given.
    """
    steps = np.diff(time).astype("timedelta64[us]").astype(np.int64)
    if usual_us is None:
        positive = steps[steps > 0]
        usual_us = float(np.median(positive)) if len(positive) else 1e6
    return np.flatnonzero(steps > GAP_STEPS * usual_us), usual_us


def segments(answer: Answer) -> list[Segment] | None:
    """Return the states of a series, in time; None for a series of numbers.

    Raises:
        OptionError: it has neither numbers nor texts, or more different texts than a picture has lines.
    """
    raw = answer.resolution == "raw"
    numbers = ("value",) if raw else ("min", "max", "mean")
    rows, text = answer.rows, "text" if raw else "last_text"
    if any(np.isfinite(_column(rows, name)).any() for name in numbers):
        if not raw or (said := _enum(rows)) is None:
            return None
        rows, text = rows.append_column("enum", pa.array(said)), "enum"
    rows = rows.filter(pc.is_valid(rows.column(text)))
    texts: list[str] = rows.column(text).to_pylist()
    if not texts:
        raise OptionError("--plot", str(answer.series), "a series with numbers or texts")
    if len(names := set(texts)) > STATES_MAX:
        expected = (
            f"a series of at most {STATES_MAX} different texts, this one has {len(names):,}"
            " (--json prints them)"
        )
        raise OptionError("--plot", str(answer.series), expected)
    time = _time(rows, "time" if raw else "window_start")
    # A state lasts until the next one; the last one to the end, and never no time at all.
    width = np.timedelta64(timedelta(seconds=1) if raw else LENGTHS[answer.resolution])
    last = max(np.datetime64(_naive(answer.end), "us"), time[-1] + width)
    ends = np.append(time[1:], last)
    found = [Segment(*each) for each in zip(texts, time, ends, strict=True)]
    if not raw:
        before = rows.column("first_text").to_pylist()
        found += [
            Segment(first, start, min(end, start + width), whole=False)
            for first, (text, start, end, _) in zip(before, list(found), strict=True)
            if first is not None and first != text and first in names
        ]
    return found


def _enum(rows: pa.Table) -> list[str] | None:
    """Return whole numbers that are few and stay, as texts; None where they are not."""
    whole = rows.column("whole")
    if not rows.num_rows or whole.null_count or len(whole.unique()) > ENUM_MAX:
        return None
    values = [str(int(each)) for each in whole.to_pylist()]
    changes = sum(a != b for a, b in pairwise(values))
    return values if changes * ENUM_STAYS <= len(values) and len(values) > SPARSE_MAX else None


def _with_breaks(
    time: Times, values: list[Floats], usual_us: float | None
) -> tuple[Times, list[Floats]]:
    at, _ = broken(time, usual_us)
    # NaN is how matplotlib lifts the pen.
    return (
        np.insert(time, at + 1, time[at] + np.timedelta64(1, "us")),
        [np.insert(column, at + 1, np.nan) for column in values],
    )


def _column(table: pa.Table, name: str) -> Floats:
    values: Floats = table.column(name).cast(pa.float64()).to_numpy()
    return values


def _time(table: pa.Table, name: str) -> Times:
    values: Times = table.column(name).cast(pa.timestamp("us")).to_numpy()
    return values


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def _draw_raw(axes: Axes, answer: Answer) -> str:
    """Draw every point, and return a sentence about the drawing."""
    colour = palette.SERIES[0]
    number = answer.rows.num_rows
    time, [value] = _with_breaks(_time(answer.rows, "time"), [_column(answer.rows, "value")], None)
    if number <= SPARSE_MAX:
        axes.plot(time, value, "o", color=colour, markersize=5)
        return "every point, too few for a line"
    marker = "o" if number <= MARKED_MAX else ""
    axes.plot(time, value, color=colour, linewidth=1.4, marker=marker, markersize=3.2)
    alone = lone(value)
    axes.plot(time[alone], value[alone], "o", color=colour, markersize=4)
    return "every point"


def _draw_windows(axes: Axes, answer: Answer) -> str:
    """Draw the band from minimum to maximum and the mean, and return a sentence about the drawing."""
    colour, width = palette.SERIES[0], LENGTHS[answer.resolution]
    middle = _time(answer.rows, "window_start") + np.timedelta64(width) // 2
    columns = [_column(answer.rows, name) for name in ("min", "max", "mean")]
    # A window is there or it is not: two missing ones are a gap already.
    usual_us = width / timedelta(microseconds=1) * 2 / GAP_STEPS
    time, [low, high, mean] = _with_breaks(middle, columns, usual_us)
    band, edge = palette.thin(colour, palette.BAND_PART), palette.thin(colour, 0.6)
    few = answer.rows.num_rows <= SPARSE_MAX
    alone = np.ones(len(mean), dtype=bool) if few else lone(mean)
    # A window of its own has no width as a band.
    axes.vlines(time[alone], low[alone], high[alone], color=band, linewidth=9 if few else 4)
    if not few:
        axes.fill_between(time, low, high, color=band, linewidth=0)
        for limit in (low, high):
            axes.plot(time, limit, color=edge, linewidth=0.7)
        axes.plot(time, mean, color=colour, linewidth=1.5)
    axes.plot(time[alone], mean[alone], "o", color=colour, markersize=5 if few else 4)
    names = {"1m": "by minute", "1h": "by hour", "1d": "by day"}
    return f"{names[answer.resolution]}: mean, in the band from minimum to maximum"


def lone(value: Floats) -> Flags:
    """Return which values have a gap on either side: a line of one point is invisible.

    `value`: (n,) float64, NaN for a gap; the result is (n,) bool.
    """
    hole = np.isnan(value)
    before, after = np.append(True, hole[:-1]), np.append(hole[1:], True)
    alone: Flags = ~hole & before & after
    return alone


def _draw_states(axes: Axes, found: list[Segment]) -> str:
    """Draw a band for each state, and return a sentence about the drawing."""
    names = list(dict.fromkeys(each.state for each in found))
    with suppress(ValueError):  # texts stand in the order in which they came
        names.sort(key=int)
    span = max(each.end for each in found) - min(each.start for each in found)
    least = max(span // 600, np.timedelta64(1, "us"))
    for at, name in enumerate(names):
        for whole, height in ((True, 0.64), (False, 0.22)):
            mine = [each for each in found if each.state == name and each.whole is whole]
            if mine:
                bars = [(each.start, max(each.end - each.start, least)) for each in mine]
                axes.broken_barh(
                    bars,  # type: ignore[arg-type]  # times of numpy are numbers to the axis
                    (at - height / 2, height),
                    color=palette.SERIES[at % len(palette.SERIES)],
                    linewidth=0,
                )
    axes.set_yticks(range(len(names)), list(map(plain, names)))
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first one is on top
    return "states, each for as long as it lasts"


def _draw_standing(axes: Axes, answer: Answer) -> list[Patch]:
    """Draw at the foot how windows stand, and where nothing is; return a key for each that occurs."""
    raw = answer.resolution == "raw"
    time = _time(answer.rows, "time" if raw else "window_start")
    width = None if raw else np.timedelta64(LENGTHS[answer.resolution])
    usual_us = None if width is None else width / np.timedelta64(1, "us") * 2 / GAP_STEPS
    at, _ = broken(time, usual_us)
    spans = {"silent": [(time[i] + (width or 0), time[i + 1]) for i in at.tolist()]}
    if width is not None:
        for state, start in zip(answer.rows.column("state").to_pylist(), time, strict=True):
            if state in palette.STATES:
                _lengthen(spans.setdefault(state, []), start, start + width)
    keys = []
    for state, bars in spans.items():
        if bars:
            look = palette.look_of(state)
            axes.broken_barh(
                [(start, end - start) for start, end in bars],
                (0, _STRIP),
                transform=axes.get_xaxis_transform(),
                **look,
            )
            keys.append(Patch(label=state, **look))
    return keys


def _lengthen(
    spans: list[tuple[np.datetime64, np.datetime64]], start: np.datetime64, end: np.datetime64
) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((start, end))


def frame(axes: Axes, colour: str, sides: Collection[str] = ("left", "bottom")) -> None:
    """Draw these sides of a picture's frame, and no others."""
    for side, line in axes.spines.items():
        line.set_visible(side in sides)
        line.set_color(colour)


def _dress(
    axes: Axes, answer: Answer, drawn: str, unit: str, keys: list[Patch], *, as_states: bool
) -> None:
    axes.set_title(
        f"{plain(answer.series.device)}   {plain(str(answer.series))}",
        loc="left",
        color=palette.TEXT,
        fontsize=12,
        weight="bold",
        pad=24,
    )
    beside = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9}
    if unit:
        drawn = f"in {plain_unit(unit)}, {drawn}"
    axes.annotate(drawn, (0, 1), (0, 7), color=palette.QUIET, **beside)  # type: ignore[arg-type]
    if keys:
        # Above the picture, where no curve is.
        axes.legend(
            handles=keys,
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=len(keys),
            frameon=False,
            fontsize=8.5,
            labelcolor=palette.QUIET,
            borderaxespad=0.3,
            handlelength=1.3,
        )
    locator = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("UTC", color=palette.QUIET, fontsize=9)
    if not as_states:
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.margins(x=0.01, y=0.09)
    axes.grid(visible=True, axis="x" if as_states else "y", color=palette.LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    frame(axes, palette.LINE_STRONG)
    axes.tick_params(colors=palette.QUIET, labelsize=8.5)
