"""The figures that the benchmark prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.figures import Figure, at_most, readable
from benchmarks.hub.thousand_leafs.fleet import Fleet


def said(figures: list[Figure]) -> list[Figure]:
    """Print figures as they come: the whole table takes minutes."""
    for each in figures:
        print(f"  {each.name}: {readable(each.value)} {each.unit} {each.note}", flush=True)
    return figures


def memory_figures(fleet: Fleet, where: str) -> list[Figure]:
    """Return what a link takes of the memory of the hub's processes."""
    more = [
        (now - then) / fleet.links / 1e3
        for now, then in zip(fleet.memory_bytes(), fleet.empty_bytes, strict=True)
    ]
    return [
        Figure(f"{where}: control plane", more[0], "kB/link", note="resident, beside no links"),
        Figure(f"{where}: servers", sum(more[1:]), "kB/link", note="all of them"),
    ]


def core_figures(what: str, cores: Sequence[float], links: int, note: str = "") -> list[Figure]:
    """Return the processor time of a link in a second, from the cores of control plane and servers."""
    return [
        Figure(f"{what}: {part}", each / links * 1e6, "us/s a link", note=note)
        for part, each in zip(("control plane", "servers"), cores, strict=True)
    ]


def spread(
    what: str, ages_s: Sequence[float], links: int, aim_s: float | None = None
) -> list[Figure]:
    """Return when half, nearly all and all of so many were there; those that never were count as well."""
    ordered = sorted(ages_s) + [math.inf] * (links - len(ages_s))
    parts = {"half": 0.5, "90%": 0.9, "all": 1.0}
    return [
        Figure(
            f"{what}, {name}",
            ordered[math.ceil(part * links) - 1] if links else math.nan,
            "s",
            at_most(aim_s) if aim_s and name == "all" else None,
        )
        for name, part in parts.items()
    ]


def ages(first_ns: dict[str, int], since_ns: int) -> list[float]:
    """Return how many seconds after a time each was stored."""
    return [(at - since_ns) / 1e9 for at in first_ns.values()]
