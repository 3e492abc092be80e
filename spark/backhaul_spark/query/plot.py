"""Draw a history with matplotlib, without a display."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from backhaul_spark.errors import OptionError
from backhaul_spark.rollup.known_at import LENGTHS

if TYPE_CHECKING:
    from backhaul_spark.query.history import Answer

INK, SOFT, LINE, FILL = "#1b1f24", "#6e7781", "#0969da", "#0969da"
# A silence of so many usual steps is a gap, and no line is drawn across it.
GAP_STEPS = 5
# So many different texts are states; more are names or messages, of which no picture can be read.
STATES_MAX = 20
NAME_LENGTH_MAX = 40


def draw(answer: Answer, path: str) -> None:
    """Write a PNG (or the format of the file's ending) of the series over time; times are UTC.

    Numbers are a line; where there are none, texts are steps between states, one a line.

    Raises:
        OptionError: there is nothing that a picture could show, or more different texts than lines;
            or the ending is of no kind of picture, or the file cannot be written.
    """
    kind = Path(path).suffix.removeprefix(".") or "png"
    if kind not in (known := FigureCanvasAgg.get_supported_filetypes()):
        raise OptionError("--plot", path, f"a file that ends in one of {', '.join(sorted(known))}")
    numbers = ("value",) if answer.resolution == "raw" else ("min", "max", "mean")
    as_states = not all(np.isfinite(_column(answer.rows, name)).any() for name in numbers)
    figure = Figure(figsize=(10, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    if as_states:
        _states(axes, answer)
    elif answer.resolution == "raw":
        _raw(axes, answer)
    else:
        _windows(axes, answer)
    _dress(axes, answer, as_states=as_states)
    try:
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


def broken(
    time: NDArray[np.datetime64], usual_us: float | None = None
) -> tuple[NDArray[np.int64], float]:
    """Return where gaps begin (the index after which a line must break), and the usual step.

    Args:
        time: ascending.
        usual_us: the usual step in us; by default the median of the steps.
    """
    steps = np.diff(time).astype("timedelta64[us]").astype(np.int64)
    if usual_us is None:
        positive = steps[steps > 0]
        usual_us = float(np.median(positive)) if len(positive) else 1e6
    return np.flatnonzero(steps > GAP_STEPS * usual_us), usual_us


def _with_breaks(
    time: NDArray[np.datetime64], values: list[NDArray[np.float64]], usual_us: float | None
) -> tuple[NDArray[np.datetime64], list[NDArray[np.float64]]]:
    at, _ = broken(time, usual_us)
    # NaN is how matplotlib lifts the pen.
    return (
        np.insert(time, at + 1, time[at] + np.timedelta64(1, "us")),
        [np.insert(column, at + 1, np.nan) for column in values],
    )


def _column(table: pa.Table, name: str) -> NDArray[np.float64]:
    values: NDArray[np.float64] = table.column(name).cast(pa.float64()).to_numpy()
    return values


def _time(table: pa.Table, name: str) -> NDArray[np.datetime64]:
    values: NDArray[np.datetime64] = table.column(name).cast(pa.timestamp("us")).to_numpy()
    return values


def _raw(axes: Axes, answer: Answer) -> None:
    time, [value] = _with_breaks(_time(answer.rows, "time"), [_column(answer.rows, "value")], None)
    sparse = len(time) < 400
    axes.plot(
        time,
        value,
        color=LINE,
        linewidth=1.2,
        marker="o" if sparse else "",
        markersize=2.5,
        label="value",
    )
    _lone_points(axes, time, value, sparse)


def _states(axes: Axes, answer: Answer) -> None:
    """Draw texts as steps: a state lasts until the next one."""
    raw = answer.resolution == "raw"
    rows = answer.rows.filter(pc.is_valid(answer.rows.column("text" if raw else "last_text")))
    texts: list[str] = rows.column("text" if raw else "last_text").to_pylist()
    names = list(dict.fromkeys(texts))
    if not names:
        raise OptionError("--plot", str(answer.series), "a series with numbers or texts")
    if len(names) > STATES_MAX:
        expected = (
            f"a series of at most {STATES_MAX} different texts, this one has {len(names):,}"
            " (--json prints them)"
        )
        raise OptionError("--plot", str(answer.series), expected)
    number = {name: at for at, name in enumerate(names)}
    time = _time(rows, "time" if raw else "window_start")
    state = np.array([number[text] for text in texts], dtype=np.float64)
    # To the end of the last one, and never of no width, which matplotlib widens to years.
    width = timedelta(seconds=1) if raw else LENGTHS[answer.resolution]
    end = max(np.datetime64(_naive(answer.end), "us"), time[-1] + np.timedelta64(width))
    lasting = np.append(time, end), np.append(state, state[-1])
    axes.step(*lasting, where="post", color=LINE, linewidth=1.2)
    axes.plot(time, state, "o", color=LINE, markersize=2.5)
    axes.set_yticks(range(len(names)), list(map(plain, names)))
    axes.set_ylim(-0.5, len(names) - 0.5)


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def _windows(axes: Axes, answer: Answer) -> None:
    width = LENGTHS[answer.resolution]
    middle = _time(answer.rows, "window_start") + np.timedelta64(width) // 2
    columns = [_column(answer.rows, name) for name in ("min", "max", "mean")]
    # A window is there or it is not: two missing ones are a gap already.
    usual_us = width / timedelta(microseconds=1) * 2 / GAP_STEPS
    time, [low, high, mean] = _with_breaks(middle, columns, usual_us)
    axes.fill_between(time, low, high, color=FILL, alpha=0.18, linewidth=0, label="min to max")
    axes.plot(time, mean, color=LINE, linewidth=1.3, label="mean")
    _lone_points(axes, time, mean, False)
    axes.legend(loc="best", frameon=False, fontsize=8, labelcolor=SOFT)


def _lone_points(
    axes: Axes, time: NDArray[np.datetime64], value: NDArray[np.float64], marked: bool
) -> None:
    """Mark values with a gap on either side: a line of one point is invisible."""
    if marked or len(value) < 3:
        return
    hole = np.isnan(value)
    before, after = np.append(True, hole[:-1]), np.append(hole[1:], True)
    lone = ~hole & before & after
    axes.plot(time[lone], value[lone], "o", color=LINE, markersize=2.5)


def _dress(axes: Axes, answer: Answer, *, as_states: bool) -> None:
    names = {"raw": "every point", "1m": "by minute", "1h": "by hour", "1d": "by day"}
    what = names[answer.resolution]
    axes.set_title(
        f"{plain(answer.series.device)}   {plain(str(answer.series))}",
        loc="left",
        color=INK,
        fontsize=12,
        weight="bold",
    )
    axes.set_title(what, loc="right", color=SOFT, fontsize=9)
    axes.set_ylabel(plain(str(answer.series)), color=SOFT, fontsize=9)
    axes.set_xlabel("time (UTC)", color=SOFT, fontsize=9)
    locator = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    if not as_states:
        axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.grid(visible=True, axis="y", color="#d8dee4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#d0d7de")
    axes.tick_params(colors=SOFT, labelsize=8)
