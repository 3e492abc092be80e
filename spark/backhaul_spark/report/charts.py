"""The report's pictures, with matplotlib, as data URIs: they are images to the page, never markup."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from datetime import date
from itertools import pairwise

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from backhaul_spark import palette
from backhaul_spark.arrays import Floats
from backhaul_spark.fleet.hours import COMPLETE, EXPLAINED, NOTHING, UNREPORTED, WAITING
from backhaul_spark.query.plot import frame, lone, plain
from backhaul_spark.report.evidence import Compared, Whereabouts

# By code of hours.py, from nothing to complete.
_STATES = {
    NOTHING: "silent",
    WAITING: "waiting",
    EXPLAINED: "explained",
    UNREPORTED: "imported",
    COMPLETE: "complete",
}
STATE_NAMES = ("silent", "waiting", "explained", "readings, no completeness report", "complete")
STATE_COLOURS = tuple(palette.fill_of(_STATES[code]) for code in range(COMPLETE + 1))
BANDS = 160
"""Rows that the picture of all devices has at most."""
TRAILS_MAX = 12
"""Devices on the map whose way is drawn, and their name."""
DOTS_MAX = 500
"""Devices on the map that are drawn one by one."""
WIDE, NARROW = 14.6, 7.1
"""Inches: the whole width of the page, and half of it."""


def state_key(code: int) -> str:
    """Draw one sample of a state, for the legend."""
    figure = Figure(figsize=(0.3, 0.17))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.add_patch(_cell(code, 0, 0, 1, 1))
    return _svg(figure)


def named_heat_map(names: Sequence[str], codes: NDArray[np.int8]) -> str:
    """Draw devices by hours: a row a device, a column an hour, its code as colour and pattern.

    `codes`: (devices, hours) int8, codes of `STATE_COLOURS`.
    """
    figure = Figure(figsize=(WIDE, 0.55 + 0.21 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for row, hours in enumerate(codes):
        for start, end in _runs(hours):
            axes.add_patch(_cell(int(hours[start]), start, row + 0.06, end - start, 0.88))
    for hour in range(1, codes.shape[1]):
        axes.axvline(hour, color=palette.SURFACE, linewidth=0.9)
    axes.set_xlim(0, codes.shape[1])
    axes.set_ylim(len(names), 0)
    axes.set_yticks(np.arange(len(names)) + 0.5, list(map(plain, names)))
    _hours(axes, codes.shape[1])
    return _svg(figure)


def banded_heat_map(codes: NDArray[np.int8]) -> str:
    """Draw all devices by hours, as they are sorted, some to a band: the colours of their states, mixed by their shares.

    `codes`: (devices, hours) int8, codes of `STATE_COLOURS`.
    """
    colours = np.array([to_rgb(each) for each in STATE_COLOURS])
    bands = np.array_split(codes, min(BANDS, len(codes)))
    mixed = np.array([colours[band].mean(axis=0) for band in bands])
    figure = Figure(figsize=(WIDE, 4), layout="constrained")
    axes = figure.add_subplot()
    extent = (0, codes.shape[1], len(codes), 0)
    axes.imshow(mixed, aspect="auto", interpolation="none", extent=extent)
    axes.set_ylabel("devices, least complete first", color=palette.QUIET, fontsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    _hours(axes, codes.shape[1])
    return _svg(figure)


def strip(hours: NDArray[np.int8]) -> str:
    """Draw how the hours of one device stand.

    `hours`: (hours,) int8, codes of `STATE_COLOURS`.
    """
    figure = Figure(figsize=(4.3, 0.5))
    axes = figure.add_axes((0.13, 0.5, 0.83, 0.45))
    for start, end in _runs(hours):
        axes.add_patch(_cell(int(hours[start]), start, 0, end - start, 1))
    axes.set_xlim(0, len(hours))
    axes.set_yticks([])
    _day(axes)
    return _svg(figure, fonts="none")


def comparison(compared: Compared) -> str:
    """Draw one device's hours over those of its peers."""
    figure = Figure(figsize=(4.3, 1.25))
    axes = figure.add_axes((0.13, 0.17, 0.83, 0.78))
    hour = np.arange(len(compared.own)) + 0.5
    axes.fill_between(hour, compared.low, compared.high, color=palette.LINE, linewidth=0)
    axes.plot(hour, compared.middle, color=palette.QUIET, linewidth=1.1, linestyle=(0, (4, 2)))
    own = palette.SERIES[1]
    axes.plot(hour, compared.own, color=own, linewidth=1.6)
    alone = lone(compared.own)
    axes.plot(hour[alone], compared.own[alone], "o", color=own, markersize=2.6)
    axes.set_xlim(0, len(compared.own))
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.grid(visible=True, axis="y", color=palette.SUNKEN, linewidth=0.7)
    axes.set_axisbelow(True)
    _day(axes)
    return _svg(figure, fonts="none")


def fleet_map(places: Sequence[Whereabouts], marked: Sequence[str]) -> str:
    """Draw the devices at their last positions, and the way of those that are marked (the worst first)."""
    figure = Figure(figsize=(NARROW, 5.2), layout="constrained")
    axes = figure.add_subplot()
    rank = {device: at for at, device in enumerate(marked)}
    well = np.array([each.last for each in places if each.device not in rank]).reshape(-1, 2)
    # Of many devices it is an image within the picture, which does not grow with them.
    dots = axes.plot(well[:, 1], well[:, 0], "o", color=palette.SERIES[0], markersize=4, alpha=0.7)
    dots[0].set_rasterized(len(well) > DOTS_MAX)
    worst = sorted(
        (each for each in places if each.device in rank), key=lambda each: rank[each.device]
    )
    for each in worst[:TRAILS_MAX]:
        axes.plot(each.lon, each.lat, color=palette.SERIES[1], linewidth=0.9, alpha=0.5)
    for each in reversed(worst):
        axes.plot([each.last[1]], [each.last[0]], "D", color=palette.SERIES[1], markersize=5.5)
    for each in _apart(worst[:TRAILS_MAX], places):
        beside = {"xytext": (6, 4), "textcoords": "offset points", "fontsize": 8}
        axes.annotate(plain(each.device), each.last[::-1], color=palette.TEXT, **beside)  # type: ignore[arg-type]
    middle = float(np.mean([each.last[0] for each in places]))
    # As long east as north: a degree of longitude is shorter.
    axes.set_aspect(1 / max(np.cos(np.radians(middle)), 0.05), adjustable="datalim")
    axes.margins(0.08)
    axes.grid(visible=True, color=palette.SUNKEN, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(lambda lon, _: f"{abs(lon):.6g}° {'EW'[int(lon < 0)]}")
    axes.yaxis.set_major_formatter(lambda lat, _: f"{abs(lat):.6g}° {'NS'[int(lat < 0)]}")
    axes.tick_params(colors=palette.QUIET, labelsize=7.5)
    frame(axes, palette.LINE, [*axes.spines])
    return _svg(figure)


def _apart(some: Sequence[Whereabouts], places: Sequence[Whereabouts]) -> list[Whereabouts]:
    """Return those of some places whose names do not lie on one another, the first of them counting."""
    lasts = np.array([each.last for each in places])
    span = np.maximum(np.ptp(lasts, axis=0), 1e-6)
    named: list[Whereabouts] = []
    for each in some:
        away = (np.abs(np.subtract(each.last, other.last)) / span for other in named)
        if all(north > 0.05 or east > 0.22 for north, east in away):
            named.append(each)
    return named


def small_multiples(
    days: Sequence[date], panels: Sequence[tuple[str, Floats]], *, from_zero: bool = False
) -> str:
    """Draw one number a day in each of some panels; days without it are gaps.

    The values of a panel are (days,) float64, in the unit of its title.

    Args:
        days: ascending.
        panels: a title and a value a day, NaN where there is none.
        from_zero: for numbers of things, which a narrow axis would make look unsteady.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDE, 1.9 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, values) in zip(grid.flat, panels, strict=False):
        axes.plot(
            np.array(days, dtype="datetime64[D]"), values, color=palette.SERIES[0], marker="o"
        )
        axes.lines[0].set(linewidth=1.4, markersize=3.2)
        axes.set_title(plain(title), loc="left", color=palette.TEXT, fontsize=9.5)
        _days(axes, days)
        half = np.timedelta64(12, "h")
        axes.set_xlim(np.datetime64(days[0]) - half, np.datetime64(days[-1]) + half)
        low, high = axes.get_ylim()
        # A line that stands still is flat, and not the noise of its last digit made large.
        least = 0.02 * max(abs(low), abs(high), 1e-9)
        if from_zero:
            axes.set_ylim(0, max(1.1 * float(np.nanmax(values)), 1.0))
        elif high - low < least:
            axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)
        _dress(axes)
    return _svg(figure)


def _runs(hours: NDArray[np.int8]) -> list[tuple[int, int]]:
    """Return where hours of one state begin and end: they are drawn as one piece, as on the pages."""
    edges = [0, *(np.flatnonzero(np.diff(hours)) + 1).tolist(), len(hours)]
    return list(pairwise(edges))


def _cell(code: int, x: float, y: float, width: float, height: float) -> Rectangle:
    """Return a rectangle with a state's colour and pattern."""
    return Rectangle((x, y), width, height, **palette.look_of(_STATES[code]))


def _hours(axes: Axes, number: int) -> None:
    axes.set_xticks(range(0, number + 1, 3), [f"{hour:02}:00" for hour in range(0, number + 1, 3)])
    axes.tick_params(colors=palette.QUIET, labelsize=8.5, length=2)
    frame(axes, palette.LINE, ())


def _day(axes: Axes) -> None:
    """Label the hours of a small picture."""
    axes.set_xticks(range(0, 25, 6), ["0", "6", "12", "18", "24 h"])
    axes.tick_params(
        colors=palette.QUIET, labelsize=7, length=2, pad=2, labelfontfamily="DejaVu Sans"
    )
    frame(axes, palette.LINE)


def _days(axes: Axes, days: Sequence[date]) -> None:
    some = days[:: -(-len(days) // 4)]
    axes.set_xticks(np.array(some, dtype="datetime64[D]"), [f"{day:%d %b}" for day in some])
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _dress(axes: Axes) -> None:
    axes.grid(visible=True, axis="y", color=palette.LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=palette.QUIET, labelsize=8)
    frame(axes, palette.LINE_STRONG)


def _svg(figure: Figure, *, fonts: str = "path") -> str:
    """Return a picture as a data URI.

    Args:
        figure: is drawn on no ground of its own.
        fonts: text as paths looks alike everywhere; as text (`none`) it is small, where there are many pictures of digits.
    """
    file = io.BytesIO()
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    # By a fixed salt the same day is the same picture; nobody asks who made it.
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.hashsalt": "backhaul", "svg.fonttype": fonts, "hatch.linewidth": 0.8}):
        figure.savefig(file, format="svg", metadata=nothing, dpi=140)
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()
