"""`backhaul-agent replay`: a recording, fed through a running agent."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backhaul_agent.client import connect
from backhaul_agent.clock import Clock, SystemClock
from backhaul_agent.commands.options import server_options
from backhaul_agent.replay import mapping as mappings
from backhaul_agent.replay.feed import Feed, Outcome
from backhaul_agent.replay.points import RowMapper, Tally
from backhaul_agent.replay.readers import Recording, open_recording

if TYPE_CHECKING:
    from backhaul_agent.replay.mapping import Mapping

FLUSH_S = 1.0  # at a paced replay, how long a point may wait for its frame to fill
PAUSE_S_MAX = 5.0  # a recording may hold the nights between its trips
STEP_S = 1.0  # from a row without a time to the next, where no two rows say how far they are apart
RUNS_SHOWN = 20


def _speed(_: click.Context, __: click.Parameter, text: str) -> float:
    """Return the factor, 0 for as fast as it goes."""
    if text == "max":
        return 0.0
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < 1e9:
        raise click.BadParameter("a factor above 0 (1 is as recorded), or max")
    return speed


@click.command(name="replay")
@click.argument("recording", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--map",
    "map_path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="Which column is what; see agent/mappings/.",
)
@click.option(
    "--speed",
    callback=_speed,
    default="1",
    show_default=True,
    help="How many times as fast as recorded, or max. Pauses over 5 s are cut short.",
)
@click.option(
    "--device-time",
    type=click.Choice(["recorded", "now"]),
    default="recorded",
    show_default=True,
    help="Keep the recorded times, or shift them all so that the first row is now.",
)
@server_options
def command(
    recording: Path, map_path: Path, speed: float, device_time: str, login: dict[str, Any]
) -> None:
    """Feed a .parquet or .csv file through the agent; exit 1 unless every point was kept.

    Rows without a valid time are published without one, in their place: the agent stamps them.
    """
    mapping = mappings.load(map_path)
    with open_recording(recording, mapping.columns()) as opened:
        replay = Replay(opened, mapping, speed, shift=device_time == "now", clock=SystemClock())
        outcome = asyncio.run(replay.run(login))
    _report(replay.mapper.tally, outcome)
    if not outcome.complete:
        sys.exit(1)


@dataclass
class Pace:
    """When the next row is due: recorded gaps, divided by the speed, none over PAUSE_S_MAX.

    A row without a time follows as its predecessors followed each other, and takes nothing from the
    gap between the rows with a time around it.
    """

    speed: float
    clock: Clock
    due_s: float | None = None
    timed_due_s: float = 0.0
    last_ns: int | None = None
    step_s: float = STEP_S

    def wait_s(self, time_ns: int | None) -> float:
        """Return how long to wait before a row; ``time_ns`` None: it has none.

        Time going back costs nothing.
        """
        if not self.speed:
            return 0.0
        now_s = self.clock.monotonic_s()
        if self.due_s is None:
            self.due_s = self.timed_due_s = now_s
        elif time_ns is None:
            self.due_s += self.step_s / self.speed
        if time_ns is not None:
            self._timed(time_ns, self.due_s)
        return max(0.0, self.due_s - now_s)

    def _timed(self, time_ns: int, due_s: float) -> None:
        if self.last_ns is not None:
            recorded_s = max(0.0, (time_ns - self.last_ns) / 1e9)
            due_s = max(due_s, self.timed_due_s + min(recorded_s / self.speed, PAUSE_S_MAX))
            self.step_s = min(recorded_s, PAUSE_S_MAX) or self.step_s
        self.due_s = self.timed_due_s = due_s
        self.last_ns = time_ns


class Replay:
    """One run: reads, maps, paces, feeds, shows progress."""

    def __init__(
        self, recording: Recording, mapping: Mapping, speed: float, *, shift: bool, clock: Clock
    ) -> None:
        self.mapper = RowMapper(mapping, text_only=recording.text_only)
        self._recording = recording
        self._shift = shift
        self._clock = clock
        self._pace = Pace(speed, clock)
        self._flushed_s = clock.monotonic_s()

    async def run(self, login: dict[str, Any]) -> Outcome:
        """Feed everything and return what became of it."""
        offset_ns: int | None = None if self._shift else 0
        async with connect(**login) as agent:
            await agent.status()  # fails at once, and clearly, where no agent is listening
            feed = Feed(agent)
            with click.progressbar(
                length=self._recording.size, label="replay", file=sys.stderr
            ) as bar:
                for chunk in self._recording.chunks():
                    for time_ns, points in self.mapper.rows(chunk):
                        await self._until_due(feed, time_ns)
                        if time_ns is None:
                            await feed.put_untimed(points)
                            continue
                        if offset_ns is None:
                            offset_ns = self._clock.time_ns() - time_ns
                        await feed.put(_shifted(points, offset_ns) if offset_ns else points)
                    bar.update(chunk.progress - bar.pos)
            return await feed.finish()

    async def _until_due(self, feed: Feed, time_ns: int | None) -> None:
        wait_s = self._pace.wait_s(time_ns)
        if not self._pace.speed:
            return
        if self._clock.monotonic_s() - self._flushed_s >= FLUSH_S or wait_s >= FLUSH_S:
            await feed.flush()
            self._flushed_s = self._clock.monotonic_s()
        if wait_s > 0:
            await asyncio.sleep(wait_s)


def _shifted(points: list[Any], offset_ns: int) -> list[Any]:
    import dataclasses

    return [dataclasses.replace(point, time=point.time + offset_ns) for point in points]


def _report(tally: Tally, outcome: Outcome) -> None:
    click.echo(
        f"{tally.rows} rows, {tally.points} points: {outcome.kept} kept, "
        f"{outcome.refused.total()} refused, {outcome.not_known} not known"
    )
    if tally.rows_filtered:
        click.echo(f"  {tally.rows_filtered} rows filtered out by the mapping")
    if tally.values_null:
        click.echo(f"  {tally.values_null} empty cells left out")
    for column, count in tally.values_unfit.items():
        click.echo(f"  {count} cells of column {column!r} do not fit the mapping's dtype: left out")
    if tally.rows_untimed:
        runs = [str(a) if a == b else f"{a}-{b}" for a, b in tally.untimed]
        more = f" and {len(runs) - RUNS_SHOWN} more runs" if len(runs) > RUNS_SHOWN else ""
        click.echo(
            f"  {tally.rows_untimed} rows without a valid time, stamped by the agent when it took"
            " them in (rows count from 0): "
            f"{', '.join(runs[:RUNS_SHOWN])}{more}"
        )
    for code, count in outcome.refused.items():
        click.echo(f"  {count} points refused: {code}: {outcome.last_refusal}", err=True)
    if outcome.not_known:
        click.echo(
            f"  {outcome.not_known} points got no answer: they may or may not be kept", err=True
        )
