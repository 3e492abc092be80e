"""The report's pictures, with matplotlib, as data URIs: they are images to the page, never markup."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from backhaul_spark.fleet.hours import COMPLETE
from backhaul_spark.query.plot import INK, LINE, SOFT, plain

if TYPE_CHECKING:
    from backhaul_spark.fleet.robust import Floats

# By code of hours.py, from nothing to complete: told apart by lightness, too.
STATE_COLOURS = ("#24292f", "#cf222e", "#f2b134", "#9ecae1", "#2c7fb8")
STATE_NAMES = ("nothing", "waiting", "explained", "readings, no completeness report", "complete")
BANDS = 160
"""Rows that the picture of all devices has at most."""


def named_heat_map(names: Sequence[str], codes: NDArray[np.int8]) -> str:
    """Draw devices by hours: a row a device, a column an hour, its code as colour."""
    figure = Figure(figsize=(9, 0.9 + 0.19 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    colours = ListedColormap(list(STATE_COLOURS))
    edges = np.arange(COMPLETE + 2) - 0.5
    axes.pcolormesh(
        codes[::-1],
        cmap=colours,
        norm=BoundaryNorm(edges.tolist(), colours.N),
        edgecolors="white",
        linewidth=0.6,
    )
    axes.set_yticks(np.arange(len(names)) + 0.5, [plain(name) for name in reversed(names)])
    _hours(axes, codes.shape[1])
    return _svg(figure)


def banded_heat_map(codes: NDArray[np.int8]) -> str:
    """Draw all devices by hours, as they are sorted, some to a band: the share that is complete."""
    complete = (codes == COMPLETE).astype(float)
    bands = np.array_split(complete, min(BANDS, len(complete)))
    shares = np.array([band.mean(axis=0) for band in bands])
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    extent = (0, shares.shape[1], len(codes), 0)
    image = axes.imshow(
        shares, aspect="auto", vmin=0, vmax=1, cmap="cividis", interpolation="none", extent=extent
    )
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.set_label("share of hours complete", color=SOFT, fontsize=8)
    bar.ax.tick_params(colors=SOFT, labelsize=8)
    axes.set_ylabel("devices, least complete first", color=SOFT, fontsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    _hours(axes, shares.shape[1])
    return _svg(figure)


def small_multiples(
    days: Sequence[date], panels: Sequence[tuple[str, Floats]], *, from_zero: bool = False
) -> str:
    """Draw one number a day in each of some panels; days without it are gaps.

    Args:
        days: ascending.
        panels: a title and a value a day, NaN where there is none.
        from_zero: for numbers of things, which a narrow axis would make look unsteady.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(9, 2.0 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, values) in zip(grid.flat, panels, strict=False):
        axes.plot(np.array(days, dtype="datetime64[D]"), values, color=LINE, marker="o")
        axes.lines[0].set(linewidth=1.3, markersize=3)
        axes.set_title(plain(title), loc="left", color=INK, fontsize=9)
        _days(axes, days)
        low, high = axes.get_ylim()
        # A line that stands still is flat, and not the noise of its last digit made large.
        least = 0.02 * max(abs(low), abs(high), 1e-9)
        if from_zero:
            axes.set_ylim(0, max(1.1 * float(np.nanmax(values)), 1.0))
        elif high - low < least:
            axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)
        _dress(axes)
    return _svg(figure)


def _hours(axes: Axes, number: int) -> None:
    axes.set_xticks(range(0, number + 1, 3), [f"{hour:02}:00" for hour in range(0, number + 1, 3)])
    axes.set_xlabel("hour (UTC)", color=SOFT, fontsize=9)
    axes.tick_params(colors=SOFT, labelsize=8, length=2)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _days(axes: Axes, days: Sequence[date]) -> None:
    some = days[:: -(-len(days) // 4)]
    axes.set_xticks(np.array(some, dtype="datetime64[D]"), [f"{day:%d %b}" for day in some])
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _dress(axes: Axes) -> None:
    axes.grid(visible=True, axis="y", color="#d8dee4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT, labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#d0d7de")


def _svg(figure: Figure) -> str:
    file = io.BytesIO()
    # Text as paths looks alike everywhere; by a fixed salt the same day is the same picture.
    with rc_context({"svg.hashsalt": "backhaul", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()
