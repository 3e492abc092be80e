"""Run the rules over the points table, as if it came again in the order in which the hub stored it.

The same engine as in the stream, so the same alerts with the same ids, where the table has what the
stream had: it lacks signs of life that were no points, and thresholds that were written at the hub,
which come from there (hub_heads.py).
Without Spark, in memory: for a vehicle, or a fleet's day.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_spark.arrays import Ints
from backhaul_spark.decode.sample_batch import (
    MARKS,
    MESSAGE,
    OTHER_MARK,
    Batch,
    HeadWord,
    hashes,
    lane_hashes,
)
from backhaul_spark.decode.samples import Wanted, hashed, head_words, samples_of, series_codes
from backhaul_spark.rules.alert import Alert, alert_table
from backhaul_spark.rules.engine import Engine
from backhaul_spark.rules.plan import Plan
from backhaul_spark.rules.rounds import firsts
from backhaul_spark.rules.rule import SECOND_NS
from backhaul_spark.rules.twins import Twins
from backhaul_spark.tables.delta import dataset_of, open_if_there, open_table
from backhaul_spark.tables.schemas import ALERTS, MARKS_TABLE, POINTS_TABLE

# What was stored in so much time is taken in at once; alerts do not depend on it.
SLICE_NS = 60 * SECOND_NS
_IDENTITY = ("device", "lane", "epoch", "seq", "stored_at")
_SAID = ("node", "type", "key", "time_ns", "value_f64", "value_i64", "value_text", "tombstone",
         "origin", "clock")  # fmt: skip


class Recompute:
    """The rules of a plan over the tables under a root.

    Args:
        written: config points that the hub wrote; each counts from when the hub stored it.
    """

    def __init__(self, root: str, plan: Plan, written: Sequence[HeadWord] = ()) -> None:
        self._root = root
        self._plan = plan
        self._written = written

    def run(
        self, start: datetime | None, end: datetime | None, device: str | None = None
    ) -> pa.Table:
        """Return the alerts (schema ALERTS) for all messages that the hub stored from `start` to before `end`.

        Raises:
            TableMissingError: nothing was ever ingested.
        """
        points = self._points(start, end, device)
        if not points.num_rows:
            return ALERTS.empty_table()
        heads = [*self._earlier(start, device), *self._written]
        alerts = alerts_of(
            self._plan, batch_of(self._plan, points, self._marks(device), heads), end
        )
        return alert_table(sorted(alerts, key=lambda alert: alert.time_ns))

    def _earlier(self, start: datetime | None, device: str | None) -> list[HeadWord]:
        """Return the config points that vehicles wrote before `start`: they count then, too."""
        if start is None or not self._plan.heads:
            return []
        configures = pc.scalar(value=False)
        for head in self._plan.heads:
            fields = [pc.field(name) == part for name, part in head._asdict().items()]
            configures |= fields[0] & fields[1] & fields[2]
        return _heads_of(self._plan, self._points(None, start, device, configures))

    def _points(
        self,
        start: datetime | None,
        end: datetime | None,
        device: str | None,
        wanted: pc.Expression | None = None,
    ) -> pa.Table:
        wanted = pc.scalar(value=True) if wanted is None else wanted
        stored = pc.field("stored_at")
        if start is not None:
            wanted &= stored >= pa.scalar(start, pa.timestamp("us", tz="UTC"))
        if end is not None:
            wanted &= stored < pa.scalar(end, pa.timestamp("us", tz="UTC"))
        if device is not None:
            wanted &= pc.field("device") == device
        dataset = dataset_of(open_table(self._root, POINTS_TABLE))
        return dataset.to_table([*_IDENTITY, *_SAID], filter=wanted)

    def _marks(self, device: str | None) -> list[dict[str, Any]]:
        table = open_if_there(self._root, MARKS_TABLE)
        if table is None:
            return []
        wanted = None if device is None else pc.field("device") == device
        rows: list[dict[str, Any]] = (
            dataset_of(table).to_table(["device", "time_ns", "why"], filter=wanted).to_pylist()
        )
        return sorted(rows, key=lambda row: int(row["time_ns"]))


def alerts_of(plan: Plan, batch: Batch, end: datetime | None = None) -> list[Alert]:
    """Return the alerts that a job would have found in the batch that was never away; each id once.

    The batch's messages are in the order in which they were stored; the silence after the last counts up to `end`.
    """
    engine, twins = Engine(plan), Twins(plan)
    alerts: dict[str, Alert] = {}
    for until_ns, part in slices(batch):
        # Nothing of it is old news: what was late when the hub stored it says so itself.
        found = engine.take(twins, part, 0, until_ns)[0]
        found += engine.tick(twins, until_ns, until_ns)[0]
        for alert in found:
            alerts.setdefault(alert.id, alert)
    if end is not None:
        end_ns = int(end.timestamp()) * SECOND_NS
        for alert in engine.tick(twins, end_ns, end_ns)[0]:
            alerts.setdefault(alert.id, alert)
    return list(alerts.values())


def batch_of(
    plan: Plan, points: pa.Table, marks: list[dict[str, Any]], heads: Sequence[HeadWord] = ()
) -> Batch:
    """Return points of the table as one batch, its messages by the time at which they were stored.

    Args:
        plan: which points rules want.
        points: of POINTS the columns that name a message, and those of a point's own.
        marks: the vehicles' marks, by time.
        heads: config points that are in no point.
    """
    wanted = Wanted(plan.series, plan.heads, 1)
    [rows] = points.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([])]
    every = np.zeros(rows.num_rows, MESSAGE)
    every["stored_ns"] = _stored_ns(rows)
    every["device"] = hashed(rows.column("device"))
    every["seq"] = rows.column("seq").to_numpy()
    epochs = rows.column("epoch").to_numpy()
    every["lane"] = lane_hashes(every["device"], hashed(rows.column("lane")), epochs)
    order = np.lexsort((every["seq"], every["lane"], every["stored_ns"]))
    first = firsts(every["lane"][order]) | firsts(every["seq"][order])
    message = np.empty(len(order), np.intp)
    message[order] = np.cumsum(first) - 1
    messages = every[order[first]]
    samples = samples_of(rows, message, series_codes(rows, wanted.series), messages["stored_ns"])
    _mark(messages, marks)
    devices = rows.column("device").unique().to_pylist()
    in_order = samples[np.argsort(samples["message"], kind="stable")]
    return Batch(messages, in_order, devices, [*_heads_of(plan, points), *heads])


def _heads_of(plan: Plan, points: pa.Table) -> list[HeadWord]:
    """Return the config points among points."""
    [rows] = points.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([])]
    if not rows.num_rows:
        return []
    codes = series_codes(rows, plan.heads)
    at = np.flatnonzero(codes >= 0)
    return head_words(rows.take(pa.array(at)), codes[at], _stored_ns(rows)[at])


def _stored_ns(rows: pa.RecordBatch) -> Ints:
    stored: Ints = rows.column("stored_at").cast(pa.int64()).to_numpy() * 1000
    return stored


def slices(batch: Batch) -> Iterator[tuple[int, Batch]]:
    """Yield a batch in parts of SLICE_NS by stored time, with the end of each. Messages are sorted."""
    number = batch.messages["stored_ns"] // SLICE_NS
    bounds = [*np.flatnonzero(firsts(number)).tolist(), len(number)]
    heads_at = np.array([head.since[0] for head in batch.heads], np.int64) // SLICE_NS
    told = np.zeros(len(heads_at), np.bool_)
    cuts = np.searchsorted(batch.samples["message"], bounds)
    for place, (low, high) in enumerate(itertools.pairwise(bounds)):
        samples = batch.samples[cuts[place] : cuts[place + 1]].copy()
        samples["message"] -= low
        due = ~told & (heads_at <= number[low])
        told |= due
        heads = [batch.heads[index] for index in np.flatnonzero(due).tolist()]
        end_ns = int(number[low] + 1) * SLICE_NS
        yield end_ns, Batch(batch.messages[low:high], samples, batch.devices, heads)


def _mark(messages: NDArray[np.void], marks: list[dict[str, Any]]) -> None:
    """Have the message that was stored nearest to a mark carry it: marks are in no points."""
    order = np.argsort(messages["device"], kind="stable")
    devices = messages["device"][order]
    for mark in marks:
        [key] = hashes([mark["device"]])
        mine = order[np.searchsorted(devices, key) : np.searchsorted(devices, key, "right")]
        if len(mine):
            at = int(np.argmin(np.abs(messages["stored_ns"][mine] - mark["time_ns"])))
            messages["mark"][mine[at]] = MARKS.get(mark["why"], OTHER_MARK)
