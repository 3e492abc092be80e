"""The options of benchmarks on the command line, most of them this one's."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

ROWS = {
    "a": "30 nodes x 2 values at 1 Hz",
    "b": "the same, frames of up to 10 s",
    "c": "30 nodes x 1 value every 10 s",
    "d": "30 nodes x 2 values, spread over the second",
    "e": "4 nodes, 100 points/s",
    "f": "idle, link up",
    "g": "one reading to the hub, idle before",
    "h": "resume after a cut of 20 s",
    "i": "idle vehicles at one hub",
    "j": "storage",
}


WAYS = ("kill -9", "SIGSTOP", "hand-over")


@dataclass(frozen=True, slots=True)
class Options:
    """Which rows, and how much of some; None is as much as `--quick` says."""

    rows: frozenset[str] = frozenset(ROWS)
    outages: int | None = None
    vehicles: int | None = None
    push: bool = True
    """Whether our vehicles push the lanes that trickle."""
    packed: bool = True
    """thousand_leafs: whether the hub's servers pack what passes links."""
    minutes: float | None = None
    """page: for how long it changes; hub_fleet: for how long it sends."""
    devices: int | None = None
    """hub_fleet: vehicles."""
    rate: int | None = None
    """hub_fleet: messages a second of all of them."""
    ways: tuple[str, ...] = WAYS
    """takeover: how terms end."""
    servers: tuple[int, ...] = (1, 3)
    """takeover: how many servers the hubs have, one after the other."""
    times: int | None = None
    """takeover: how often in each way."""


CHOSEN: ContextVar[Options] = ContextVar("CHOSEN")


def rows_of(text: str) -> frozenset[str]:
    """Return the rows that `a,c,f` names.

    Raises:
        ValueError: there is none of that name.
    """
    rows = frozenset(text.split(","))
    if unknown := rows - ROWS.keys():
        raise ValueError(f"no rows {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    return rows
