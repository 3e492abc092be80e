"""Figures, the aims beside them, and how both are printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

_WIDTH_COLUMNS = 118


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should reach; its limit has the figure's unit."""

    limit: float
    at_most: bool

    def met(self, value: float) -> bool:
        """Return whether a measured value reaches it."""
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {readable(self.limit)}"


def at_most(limit: float) -> Aim:
    """Return an aim that smaller figures reach."""
    return Aim(limit, at_most=True)


def at_least(limit: float) -> Aim:
    """Return an aim that larger figures reach."""
    return Aim(limit, at_most=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `note` says in a few words what it is compared with, or how got.

    `before`: what it was, where a work is to change it.
    """

    name: str
    value: float
    unit: str
    aim: Aim | None = None
    note: str = ""
    before: str = ""

    @property
    def verdict(self) -> str:
        """Whether the aim is met: yes, no, or nothing where there is none."""
        if self.aim is None:
            return ""
        return "yes" if self.aim.met(self.value) else "no"

    def as_json(self) -> dict[str, object]:
        """Return it ready for JSON."""
        found: dict[str, object] = {
            "name": self.name,
            "value": float(f"{self.value:.6g}") if math.isfinite(self.value) else None,
            "unit": self.unit,
        }
        if self.aim is not None:
            found |= {"aim": str(self.aim), "met": self.verdict == "yes"}
        if self.before:
            found["before"] = self.before
        if self.note:
            found["note"] = self.note
        return found


def skipped(name: str, reason: str = "") -> dict[str, object]:
    """Say that a benchmark is skipped, by default for want of recordings; return its record."""
    reason = reason or "recordings absent: set BACKHAUL_DATA to the directory that holds them"
    print(f"{name}: skipped, {reason}")
    return {"skipped": reason}


def report(
    title: str, figures: Sequence[Figure], *, width_columns: int = _WIDTH_COLUMNS, **details: object
) -> dict[str, object]:
    """Print the table of a benchmark and return what goes into its JSON file."""
    was = any(figure.before for figure in figures)
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("figure", no_wrap=True)
    if was:
        table.add_column("before", justify="right", no_wrap=True)
    table.add_column("now" if was else "value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("aim", no_wrap=True)
    table.add_column("met")
    table.add_column("note")
    for figure in figures:
        table.add_row(
            figure.name,
            *([figure.before] if was else []),
            readable(figure.value),
            figure.unit,
            str(figure.aim or ""),
            figure.verdict,
            figure.note,
        )
    Console(width=width_columns, highlight=False).print(table)
    return {"figures": [figure.as_json() for figure in figures], **details}


def readable(value: float) -> str:
    """Return a number with three significant digits, thousands apart."""
    if not math.isfinite(value):
        return "never"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"
