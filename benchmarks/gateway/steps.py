"""The steps that a site goes through, each with the figures of one row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure
from benchmarks.gateway.known import AIMS, BEFORE, OURS
from benchmarks.gateway.ours import UP, OurInbox
from benchmarks.gateway.site import DAY_S, Site, cost, idle, idle_commands, idle_readings, resumes
from benchmarks.gateway.storage import written
from tests.support.gateway_work import Work

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.gateway.site import Cost

AT_1_HZ = Work(nodes=30, values=2)
SPREAD = Work(nodes=30, values=2, spread=True)
SPARSE = Work(nodes=30, values=1, every_s=10.0)
POINTS_PER_S = 100.0
CUT_S = 20.0


class Row(NamedTuple):
    """A figure and where it stands in the table."""

    row: str
    figure: Figure


Run: TypeAlias = Callable[[Site, str], Awaitable[list[Row]]]


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a site goes through if one of these rows is chosen. `run` takes site and link."""

    rows: str
    run: Run


def row_of(
    row: str,
    system: str,
    value: float,
    unit: str,
    *,
    link: str = "",
    part: str = "",
    note: str = "",
) -> Row:
    """Return a figure of a row beside what is known of it; `part` names one of several figures."""
    aim = AIMS.get((row, part)) if system == OURS else None
    before = BEFORE.get((row, system, part or link), "")
    name = ", ".join(filter(None, (system, link, part)))
    return Row(row, Figure(f"{row}  {name}", value, unit, aim, note, before))


def work(
    row: str,
    work: Work | float,
    seconds: float,
    *,
    beat_s: float = 1.0,
    part: str = "",
    warm_s: float = 0.0,
) -> Step:
    """Return the step that counts bytes for each point of a work."""

    async def run(site: Site, link: str) -> list[Row]:
        found = await cost(site, work, seconds, beat_s=beat_s, warm_s=warm_s)
        rows = [_per_point(row, site, link, found, part)]
        if found.first_per_point is not None:
            name = ", ".join(filter(None, (part, f"its first {warm_s + 2:.0f} s")))
            value, unit = found.first_per_point, "B/point"
            rows.append(row_of(row, site.name, value, unit, link=link, part=name))
        return rows

    return Step(row, run)


def first_work(seconds: float, commands: int, storage: Path | None = None) -> Step:
    """Return the step of row a, commands meanwhile for row f, and for row j with a directory."""

    async def run(site: Site, link: str) -> list[Row]:
        assert not storage or isinstance(site.inbox, OurInbox)
        first = len(site.inbox.messages) if isinstance(site.inbox, OurInbox) else 0
        found = await cost(site, AT_1_HZ, seconds, commands=commands)
        rows = [_per_point("a", site, link, found)]
        rows += _kinds("a", site, link, found.by_kind, found.points, "B/point")
        if found.commands_s:
            rows.append(_times("f", site, link, "command, link busy", found.commands_s))
        if storage and isinstance(site.inbox, OurInbox):
            messages = site.inbox.messages[first:]
            storage.mkdir()
            table = await asyncio.to_thread(written, messages, UP, storage)
            rows += _storage(site, found, table.size_bytes / table.rows, table.rows)
        return rows

    return Step("afj", run)


def at_rest(seconds: float, commands: int) -> Step:
    """Return the step of row f."""

    async def run(site: Site, link: str) -> list[Row]:
        bytes_s, by_kind = await idle(site, seconds)
        rows = [
            row_of(
                "f",
                site.name,
                bytes_s * DAY_S / 1e6,
                "MB/day",
                link=link,
                note=f"{bytes_s * seconds:,.0f} B in {seconds:.0f} s",
            )
        ]
        rows += _kinds("f", site, link, by_kind, seconds / DAY_S * 1e6, "MB/day")
        if site.command is not None and commands:
            times_s = await idle_commands(site, commands)
            rows.append(_times("f", site, link, "command, link idle", times_s))
        return rows

    return Step("f", run)


def alone(times: int) -> Step:
    """Return the step of row g."""

    async def run(site: Site, link: str) -> list[Row]:
        times_s = await idle_readings(site, times)
        note = "after its flush: " if site.name == OURS else "after publishing: "
        note += ", ".join(f"{each:.2f}" for each in sorted(times_s))
        return [row_of("g", site.name, median(times_s), "s", link=link, note=note)]

    return Step("g", run)


def cuts(times: int) -> Step:
    """Return the step of row h."""

    async def run(site: Site, link: str) -> list[Row]:
        times_s = sorted(await resumes(site, AT_1_HZ, times, CUT_S))
        note = ", ".join(f"{each:.2f}" for each in times_s)
        rows = [row_of("h", site.name, median(times_s), "s", part="median", note=note)]
        if times > 1:
            note = f"of {times}"
            rows.append(row_of("h", site.name, times_s[-1], "s", part="worst", note=note))
        return rows

    return Step("h", run)


def _per_point(row: str, site: Site, link: str, found: Cost, part: str = "") -> Row:
    if not found.points:
        raise BenchmarkError(f"{site.name}: no point has arrived")
    up, down = (each / found.points for each in (found.up_bytes, found.down_bytes))
    note = f"{up:.3g} up, {down:.3g} down; {found.points:,} points; {found.mb_day:,.0f} MB/day"
    return row_of(row, site.name, found.per_point, "B/point", link=link, part=part, note=note)


def _kinds(
    row: str, site: Site, link: str, by_kind: Mapping[str, int], by: float, unit: str
) -> list[Row]:
    """Return the bytes of each kind, the most first, divided by something."""
    most = sorted(by_kind.items(), key=lambda each: -each[1])
    return [
        row_of(row, site.name, size / by, unit, link=link, part=f"of it {kind}", note=f"{size:,} B")
        for kind, size in most
    ]


def _times(row: str, site: Site, link: str, part: str, times_s: list[float]) -> Row:
    note = "of " + ", ".join(f"{each:.2f}" for each in sorted(times_s))
    return row_of(row, site.name, median(times_s), "s", link=link, part=part, note=note)


def _storage(site: Site, found: Cost, points_table: float, rows: int) -> list[Row]:
    messages = found.stored_messages
    return [
        row_of(
            "j",
            site.name,
            found.stored_bytes / found.points,
            "B/point",
            part="UP",
            note=f"{messages} messages, all kinds, with subjects",
        ),
        row_of(
            "j",
            site.name,
            points_table,
            "B/point",
            part="table points",
            note=f"one Parquet file of {rows:,} points",
        ),
    ]
