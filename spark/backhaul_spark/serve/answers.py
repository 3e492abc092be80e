"""Answer a question about one series of one device, each reading counted once.

    rollups    windows, of all that came up to the ingest that they have summed up
    points     readings of later ingests; of a fine chart all of them
    UP         readings of messages that no ingest has written yet (`tail`)

The three have no message in common: the number of an ingest parts the first two, coverage the others. A reading
that a vehicle said twice stands in two messages; it is found by its contents, as rollups find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake.exceptions import DeltaError

from backhaul_codec.protocol.history import ANSWER_S_MAX, PastQuestion
from backhaul_runtime.clock import Clock
from backhaul_spark.arrays import Ints
from backhaul_spark.decode.series import OneSeries
from backhaul_spark.errors import QuestionError
from backhaul_spark.rollup.long_windows import counted_of
from backhaul_spark.rollup.rows import ROW, RowMaker
from backhaul_spark.rollup.sorted_rows import Rows, SortedRows
from backhaul_spark.rollup.windows import Counted
from backhaul_spark.serve.gaps import Hours, gaps, silences
from backhaul_spark.serve.plan import DAY_US, EARLIEST_US, BucketPlan, Level, plan
from backhaul_spark.serve.series_rows import AnswerTime, SeriesReader
from backhaul_spark.serve.sums import Shown, Sums, TextRuns
from backhaul_spark.serve.tail import TailReader, UpTail
from backhaul_spark.serve.view import UNREADABLE, Tables, View, day_of

SCAN_ROWS_MAX = 10_000_000
"""Rows of points, of all devices, that are read for a fine chart; beyond, the minutes of the rollups do."""
_AHEAD_US = 86_400_000_000
"""What is stamped further ahead of the hub has no believable time."""
_INSIDE = "texts change inside of the rollups' windows too: ask for a shorter time to see when"


class HistoryAnswers:
    """Answers questions, several at a time."""

    def __init__(self, tables: Tables, tail: TailReader, clock: Clock) -> None:
        self._tables = tables
        self._tail = tail
        self._clock = clock

    def answer(self, question: PastQuestion) -> dict[str, Any]:
        """Return the answer as JSON's values (docs/people.md).

        Raises:
            BackhaulSparkError: it cannot be answered, and why.
        """
        budget = AnswerTime(self._clock, ANSWER_S_MAX)
        now_us = self._clock.now_ns() // 1000
        from_us, to_us = _range(question, now_us)
        try:
            with suppress(FileNotFoundError):
                return self._answer(question, from_us, to_us, now_us, budget)
            # Files that were tidied up since the look at the table: once more, with a new look.
            return self._answer(question, from_us, to_us, now_us, budget, again=True)
        except (OSError, pa.ArrowException, DeltaError) as error:
            hint = "see that the tables are there, and readable; then ask again"
            raise QuestionError(f"the tables cannot be read: {error}", hint) from error

    def _answer(
        self,
        question: PastQuestion,
        from_us: int,
        to_us: int,
        now_us: int,
        budget: AnswerTime,
        *,
        again: bool = False,
    ) -> dict[str, Any]:
        series = OneSeries(question.device, question.node, question.type, question.key)
        view = self._tables.view(series.device)
        # Buckets reach back beyond the range, by no more than one.
        reach_us = from_us - (to_us - from_us) - DAY_US
        tail = self._tail.read(series, view, budget, reach_us)
        gathering = _Gathering(question, view, SeriesReader(view, series, budget), tail)
        gathering.gather(from_us, to_us, again=again)
        shown, hours = gathering.sums.shown(), Hours(gathering.reader.hours(from_us, to_us))
        runs, more = gathering.runs.shown(question.points_max)
        is_text = bool(runs) and not len(shown.times_us)
        # Of texts nobody knows how often they should come.
        until_us = max(from_us, min(to_us, now_us))
        silent = [] if is_text else silences(shown.times_us, shown.width_us, from_us, until_us)
        found, gaps_more = gaps(hours, silent, from_us, to_us)
        return {
            "device": series.device,
            "node": series.node,
            "type": series.type,
            "key": series.key,
            "kind": "text" if is_text else "number",
            "level": gathering.level,
            "width_us": shown.width_us,
            **_columns(shown),
            "runs": runs,
            "runs_more": more,
            "gaps": found,
            "gaps_more": gaps_more,
            "complete_to_us": hours.complete_to(from_us),
            "aside": tail.aside,
            "notes": gathering.notes,
        }


def _range(question: PastQuestion, now_us: int) -> tuple[int, int]:
    """Return the part of the asked range in which there can be readings."""
    if question.from_us >= question.to_us:
        raise QuestionError(f"from_us {question.from_us} is not before to_us {question.to_us}")
    from_us = max(question.from_us, EARLIEST_US)
    to_us = min(question.to_us, now_us + _AHEAD_US)
    if from_us >= to_us:
        raise QuestionError("no reading can be from that time", "from_us, to_us: µs since 1970")
    return from_us, to_us


def _columns(shown: Shown) -> dict[str, list[Any]]:
    return {
        "t_us": shown.times_us.tolist(),
        "min": shown.least.tolist(),
        "max": shown.greatest.tolist(),
        "n": shown.counts.tolist(),
    }


class _Gathering:
    """Brings the readings of one question together."""

    def __init__(
        self, question: PastQuestion, view: View, reader: SeriesReader, tail: UpTail
    ) -> None:
        self._question = question
        self._view = view
        self.reader = reader
        self._tail = tail
        self.runs = TextRuns()
        self.notes = [view.trouble] if view.trouble else []
        if tail.cut is not None:
            self.notes.append(
                "ingest is far behind: of what came since, an answer reads a part, and the newest is not in it"
            )
        if view.ingested and view.marks is None:
            self.notes.append(
                "nobody knows how far ingest is: start serve-history with its --checkpoint"
            )

    def gather(self, from_us: int, to_us: int, *, again: bool) -> None:
        """Fill `plan`, `level`, `sums` and `runs`.

        Raises:
            FileNotFoundError: unless `again`, where a file of the rollups is gone.
        """
        points_max = self._question.points_max
        self.plan = self._affordable(from_us, to_us, points_max)
        windows = self._windows(again=again)
        self.sums = Sums(self.plan, points_max)
        self.level: Level = self.plan.level if windows is not None else "point"
        after = -1
        if windows is not None:
            after = self._view.rolled_up_to
            from_us, to_us = self.plan.start_us, self.plan.end_us
            self._add_windows(windows)
        files = self.reader.files(from_us, to_us, after)
        fresh = self.reader.points(files, from_us, to_us, after)
        self._add_readings(fresh, from_us, to_us, after)

    def _affordable(self, from_us: int, to_us: int, points_max: int) -> BucketPlan:
        """Return a plan that need not read more of points than one question may."""
        wanted = plan(from_us, to_us, points_max)
        if wanted.level != "point" or not self._view.rolled_up_to:
            return wanted
        kept_from = self._view.kept_from
        gone = kept_from is not None and day_of(from_us) < kept_from
        if gone or self._rows(from_us, to_us) > SCAN_ROWS_MAX:
            return plan(from_us, to_us, points_max, finest="minute")
        return wanted

    def _rows(self, from_us: int, to_us: int, after: int = -1) -> int:
        return pc.sum(self.reader.files(from_us, to_us, after).column("rows")).as_py() or 0

    def _windows(self, *, again: bool) -> pa.Table | None:
        """Return the rollups' windows; None where readings alone have to do."""
        if self.plan.level == "point":
            return None
        if self._view.rolled_up_to:
            try:
                return self.reader.windows(self.plan)
            except (OSError, pa.ArrowException) as error:
                if isinstance(error, FileNotFoundError) and not again:
                    raise
                self.notes.append(UNREADABLE.format(error))
        rows = self._rows(self.plan.start_us, self.plan.end_us)
        if rows > SCAN_ROWS_MAX:
            raise QuestionError(
                f"without rollups {rows:,} rows of points would have to be read",
                "backhaul-spark rollup makes them; or ask for a shorter time",
            )
        return None

    def _add_windows(self, rows: pa.Table) -> None:
        numbers = rows.filter(pc.field("count") > 0)
        self.sums.add_windows(
            numbers.column("window_start").cast(pa.int64()).to_numpy(),
            *(numbers.column(name).to_numpy() for name in ("min", "max", "count")),
        )
        texts = rows.filter(pc.field("texts") > 0)
        names = ("first_time_ns", "first_text", "last_time_ns", "last_text", "texts")
        said: list[tuple[int, str]] = []
        inside = False
        for first_ns, first, last_ns, last, count in zip(
            *(texts.column(name).to_pylist() for name in names), strict=True
        ):
            said += [(first_ns // 1000, first), (last_ns // 1000, last)]
            inside |= count > 2
        self.runs.add(said)
        if inside:
            self.notes.append(_INSIDE)

    def _add_readings(
        self, fresh: Iterable[pa.RecordBatch], from_us: int, to_us: int, after: int
    ) -> None:
        maker = RowMaker(self.reader.series.table())
        rows = SortedRows(maker.lanes)
        bounds = from_us * 1000, to_us * 1000
        with closing(maker), closing(rows):
            parts = map(maker.rows, self._tail.batches)
            tail = _within(np.concatenate([np.empty(0, ROW), *parts]), bounds)
            alone = [tail[tail["alone"]]]
            for batch in fresh:
                some = maker.rows(batch)
                if after >= 0:
                    alone.append(some[some["alone"]])
                    some = some[~some["alone"]]
                rows.add(some)
            # What came on live by itself may be here a second time: by the rollups' account, too.
            single = np.concatenate(alone)
            rows.add(tail[~tail["alone"]])
            rows.add(_not_in(single, self._known(maker, single, after)))
            for counted in counted_of(rows.pieces()):
                self._add_counted(counted, maker)

    def _known(self, maker: RowMaker, single: Rows, after: int) -> set[tuple[int, ...]]:
        """Return readings, as `_says` has them, with the stamps of some: those summed up, or without a believable time."""
        if not len(single):
            return set()
        stamps = np.unique(single["time_ns"])
        begin, end = int(stamps[0]) // 1000, int(stamps[-1]) // 1000 + 1
        found: set[tuple[int, ...]] = set()
        for batch in self._at_stamps(begin, end, after):
            rows = maker.rows(batch)
            found.update(_says(rows[np.isin(rows["time_ns"], stamps)]))
        return found

    def _at_stamps(self, begin: int, end: int, after: int) -> Iterator[pa.RecordBatch]:
        yield from self.reader.without_time(begin, end)
        if after >= 0:
            files = self.reader.files(begin, end).filter(pc.field("min.ingest") <= after)
            yield from self.reader.points(files, begin, end, last=after)

    def _add_counted(self, counted: Counted, maker: RowMaker) -> None:
        times_us: Ints = counted.time_ns // 1000
        self.sums.add_readings(times_us[counted.number], counted.value[counted.number])
        texts = np.flatnonzero(counted.text)
        if len(texts):
            at, length = counted.rows["text_at"][texts], counted.rows["text_len"][texts]
            changed = np.ones(len(texts), dtype=bool)
            changed[1:] = (np.diff(at) != 0) | (np.diff(length) != 0)
            changed[:-1] |= changed[1:]  # the last of each run as well
            changed[-1] = True
            some = texts[changed]
            said = [
                (int(times_us[row]), maker.texts.get(int(start), int(size)))
                for row, start, size in zip(some, at[changed], length[changed], strict=True)
            ]
            self.runs.add(said)


def _within(rows: Rows, bounds: tuple[int, int]) -> Rows:
    """Return the rows of a range, in ns, the end not included."""
    inside = (rows["time_ns"] >= bounds[0]) & (rows["time_ns"] < bounds[1])
    found: Rows = rows[inside]
    return found


def _says(rows: Rows) -> list[tuple[int, ...]]:
    """Return time and value of each row in a form that is equal for two readings that are one."""
    columns = rows["time_ns"], rows["dtype"], rows["says"][:, 0], rows["says"][:, 1]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _not_in(rows: Rows, known: set[tuple[int, ...]]) -> Rows:
    if not known:
        return rows
    found: Rows = rows[np.asarray([said not in known for said in _says(rows)], dtype=bool)]
    return found
