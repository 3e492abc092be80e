"""The colours of every picture: those of the hub's pages, as they are on light ground. Pure.

hub/page/src/look/tokens.css has them for the pages, and says how they were chosen: Okabe and Ito's hues, which the
colour-blind tell apart. A test compares. No meaning rests on a colour alone: states have a pattern as well.
"""

from __future__ import annotations

from typing import Any

TEXT, QUIET = "#17202a", "#51606f"
GROUND, SURFACE, SUNKEN = "#f3f5f7", "#ffffff", "#e9edf1"
LINE, LINE_STRONG = "#d3dae1", "#7d8996"
ACCENT = "#00609c"

SERIES = ("#0072b2", "#c25500", "#008560", "#a84c83", "#94700a", "#5a5fb0")
"""In this order; a band between minimum and maximum has its series' colour, thinner."""
BAND_PART = 0.3

STATES = {
    "complete": "#00609c",
    "waiting": "#b98000",
    "explained": "#8f2f6a",
    "imported": "#2e90c9",
    "silent": "#949494",
    "none": "#e9edf1",
}
SILENT_PART = 0.35
"""Silence is drawn thinner: it is nobody's fault yet."""
HATCHES = {"waiting": "////", "explained": ".", "imported": "---", "silent": "\\\\\\\\"}
"""Patterns, as matplotlib writes them: waiting rises, silence falls."""


def thin(colour: str, part: float) -> str:
    """Return a colour mixed with the surface.

    Args:
        colour: as `#rrggbb`.
        part: of the colour, from 0 to 1.
    """
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    mixed = [round(part * each + (1 - part) * 255) for each in channels]
    return "#" + "".join(f"{each:02x}" for each in mixed)


def fill_of(state: str) -> str:
    """Return the colour that fills an hour of a state."""
    return thin(STATES[state], SILENT_PART) if state == "silent" else STATES[state]


def ink_of(state: str) -> str:
    """Return the colour of a state's pattern."""
    return STATES[state] if state == "silent" else SURFACE


def look_of(state: str) -> dict[str, Any]:
    """Return colour and pattern of an hour of a state, as matplotlib's patches take them."""
    hatch = HATCHES.get(state, "")
    return {"facecolor": fill_of(state), "edgecolor": ink_of(state), "hatch": hatch, "linewidth": 0}
