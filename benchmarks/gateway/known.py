"""The figures of before (commit aa7919e, for others the same day), and the aims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figures import at_most

if TYPE_CHECKING:
    from benchmarks.figures import Aim

OURS = "backhaul"
PATIENT = "frames of 10 s"

# By row, system and link.
BEFORE: dict[tuple[str, str, str], str] = {
    ("a", OURS, "loopback"): "126-141",
    ("a", OURS, "100 ms"): "75",
    ("a", "JSON a point", "loopback"): "156",
    ("a", "JSON a point", "100 ms"): "33",
    ("a", "JSON a second", "loopback"): "24",
    ("a", "JSON a second", "100 ms"): "11",
    ("a", "Sparkplug B", "loopback"): "16.8",
    ("a", "floor", ""): "3.2",
    ("b", OURS, "loopback"): "29.8",
    ("c", OURS, "loopback"): "549",
    ("c", "JSON a point", "loopback"): "201",
    ("c", "JSON a second", "loopback"): "75",
    ("c", "Sparkplug B", "loopback"): "17.5",
    ("d", OURS, "loopback"): "124",
    ("e", OURS, "loopback"): "20.7",
    ("e", OURS, PATIENT): "8.3",
    ("e", "JSON a point", "loopback"): "163",
    ("f", OURS, "loopback"): "39",
    ("f", "JSON a second", "loopback"): "11",
    ("f", "Sparkplug B", "100 ms"): "0.006",
    ("g", OURS, "100 ms"): "0.1 awake",
    ("h", OURS, "median"): "0.49",
    ("h", OURS, "worst"): "11",
    ("h", "JSON a second", "median"): "35",
    ("h", "Sparkplug B", "median"): "11",
    ("i", OURS, "100,000"): "361",
}

AIMS: dict[tuple[str, str], Aim] = {
    ("a", ""): at_most(5),
    ("b", ""): at_most(1.5),
    ("c", ""): at_most(10),
    ("d", ""): at_most(6),
    ("e", ""): at_most(4),
    ("f", ""): at_most(0.5),
    ("g", ""): at_most(0.15),
    ("h", "median"): at_most(0.5),
    ("h", "worst"): at_most(2),
    ("i", ""): at_most(2),
}
