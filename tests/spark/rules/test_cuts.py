"""Alerts are the same set with the same figures wherever batches end, live, replayed, and over the table."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec import Point, encode_frame, encode_point
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.decode.sample_batch import Batch, HeadWord
from backhaul_spark.decode.samples import Wanted, sample_rows
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.stored import Stored
from backhaul_spark.rules.alert import Alert, alert_table
from backhaul_spark.rules.config import plan_from
from backhaul_spark.rules.engine import Engine
from backhaul_spark.rules.recompute import Recompute
from backhaul_spark.rules.twins import Twins
from tests.support.spark_frames import task
from tests.support.twin_batches import T0, Bucket, S

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa  # type: ignore[import-untyped]

pytestmark = pytest.mark.slow

TEMP = "battery.temp"
CONFIG = {"rules": {"battery": {"window_s": 20, "load_s_max": 60}, "silence": {"after_s": 100}}}


@dataclass(frozen=True)
class Said:
    """One message: readings of a node from `from_s` on, a second each, or a threshold; in a lane's order."""

    device: str
    after_s: int
    kind: str
    from_s: int
    values: tuple[float, ...]


SAID = st.builds(
    Said,
    device=st.sampled_from("AB"),
    after_s=st.sampled_from([1, 1, 1, 5, 30, 150, 4000]),
    kind=st.sampled_from(["temp", "temp", "soc", "load", "limit", "hub", "both"]),
    from_s=st.sampled_from([0, 0, 0, -1, -3, -8, -200]),
    values=st.lists(st.sampled_from([0.1, 50.0, 65.0, 80.0]), min_size=1, max_size=6).map(tuple),
)
_SERIES = {"temp": ("battery", "temp"), "soc": ("battery", "soc"), "load": ("cpu", "load")}


def stored_by_hub(said: Sequence[Said]) -> list[tuple[str, float, str, bytes]]:
    """Return (stream, seconds, subject, body) of each message, as the hub stored them."""
    messages: list[tuple[str, float, str, bytes]] = []
    seqs, at_s = {"A": 0, "B": 0}, 10_000
    for one in said:
        at_s += one.after_s
        first_ns = T0 + (at_s + one.from_s - len(one.values)) * S
        times = [first_ns + place * S for place in range(len(one.values))]
        limit = Point("config", "temp_max", times[-1], one.values[-1], origin="hub:ann")
        if one.kind == "hub":
            subject = f"in.{one.device}.p.config.temp_max.%"
            messages.append(("DOWN_00", at_s, subject, encode_point(limit, epoch=0, seq=0)))
            continue
        seqs[one.device] += 1
        seq = seqs[one.device]
        if one.kind == "limit":
            limit = replace(limit, origin="")
            subject, body = (
                f"up.{one.device}.p.config.temp_max.%",
                encode_point(limit, epoch=1, seq=seq),
            )
        elif one.kind == "both":  # a threshold among a message's own readings
            middle = replace(limit, node="battery", origin="", time=times[len(times) // 2])
            points = [
                Point("battery", "temp", t, v) for t, v in zip(times, one.values, strict=True)
            ]
            subject, body = (
                f"up.{one.device}.f.battery",
                encode_frame([*points, middle], epoch=1, seq=seq),
            )
        else:
            node, type_ = _SERIES[one.kind]
            points = [Point(node, type_, t, v) for t, v in zip(times, one.values, strict=True)]
            subject, body = f"up.{one.device}.f.{node}", encode_frame(points, epoch=1, seq=seq)
        messages.append(("UP_00", at_s, subject, body))
    return messages


def rows_of(stream: str, part: Sequence[tuple[str, float, str, bytes]]) -> pa.RecordBatch:
    times = [
        (datetime.fromtimestamp(T0 / S + at_s + 0.5, UTC)).isoformat().replace("+00:00", "Z")
        for _, at_s, _, _ in part
    ]
    seqs = list(range(1, len(part) + 1))
    return message_batch(stream, Stored(seqs, [m[2] for m in part], times, [m[3] for m in part]))


def plan_of(head: str) -> Any:
    return plan_from({**CONFIG, "signals": {}}, head)


def live(
    messages: Sequence[tuple[str, float, str, bytes]], cuts: Sequence[int], ahead: int
) -> list[Alert]:
    """Return what the job tells. UP is read up to each cut; DOWN, by `ahead` messages further."""
    plan = plan_of("live")
    wanted = Wanted(plan.series, plan.heads, 1)
    engine, twins = Engine(plan), Twins(plan)
    alerts: dict[str, Alert] = {}
    from_up = from_down = 0
    for cut in sorted({*cuts, len(messages)}):
        up = [m for m in messages[from_up:cut] if m[0] == "UP_00"]
        reach = max(from_down, min(cut + ahead, len(messages)))
        down = [m for m in messages[from_down:reach] if m[0] == "DOWN_00"]
        from_up, from_down = cut, reach
        rows = [sample_rows(rows_of(s, part), wanted) for s, part in (("UP_00", up), ("DOWN_00", down))
                if part]  # fmt: skip
        if not rows:
            continue
        columns = [
            part
            for one in rows
            for part in zip(*(one.column(n).to_pylist() for n in ("messages", "samples", "said")),
                            strict=True)
        ]  # fmt: skip
        until_ns = min(max(one.column("until_ns").to_pylist()) for one in rows)
        batch = Batch.join(Batch.unpack(*part) for part in columns)
        found = engine.take(twins, batch, T0, until_ns)[0]
        found += engine.tick(twins, until_ns, until_ns)[0]
        packed, names = twins.pack(), twins.pack_names()
        twins = Twins(plan)
        twins.unpack_numbers(packed)
        twins.unpack_names(names)
        for alert in found:
            alerts.setdefault(alert.id, alert)
    end_ns = int(end_of(messages).timestamp()) * S
    for alert in engine.tick(twins, end_ns, end_ns)[0]:
        alerts.setdefault(alert.id, alert)
    return list(alerts.values())


def end_of(messages: Sequence[tuple[str, float, str, bytes]]) -> datetime:
    """Return when nothing more is waited for: the last message of a device is not yet called silence."""
    return datetime.fromtimestamp(T0 / S + messages[-1][1] + 60, UTC)


def recomputed(messages: Sequence[tuple[str, float, str, bytes]]) -> list[dict[str, Any]]:
    plan = plan_of("table")
    wanted = Wanted(plan.series, plan.heads, 1)
    up = [m for m in messages if m[0] == "UP_00"]
    down = [m for m in messages if m[0] == "DOWN_00"]
    written: list[HeadWord] = []
    if down:
        said = sample_rows(rows_of("DOWN_00", down), wanted)
        for part in zip(*(said.column(n).to_pylist() for n in ("messages", "samples", "said")),
                        strict=True):  # fmt: skip
            written += Batch.unpack(*part).heads
    with tempfile.TemporaryDirectory() as root:
        ingest = Ingest(root, SYSTEM_CLOCK)
        ingest.commit("app", 0, [task(root, ingest.tables.next_ingest, rows_of("UP_00", up))])
        found = Recompute(root, plan, written).run(None, end_of(messages))
        return list(found.to_pylist())


def figures(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what an alert says, without the reason of a silence and the command, which go by when it is told."""
    keys = ("id", "late", "value", "limit", "unit", "node", "type")
    return sorted(tuple(row[key] for key in keys) for row in rows)


@given(said=st.lists(SAID, min_size=2, max_size=16), data=st.data())
@settings(deadline=None, max_examples=60)
def test_alerts_are_the_same_however_batches_are_cut(said: list[Said], data: st.DataObject) -> None:
    messages = stored_by_hub(said)
    cuts = st.lists(st.integers(1, len(messages)))
    together = figures(alert_table(live(messages, [], 0)).to_pylist())
    one_by_one = figures(alert_table(live(messages, range(len(messages)), 0)).to_pylist())
    assert together == one_by_one
    ahead = data.draw(st.integers(0, 5))
    any_cut = live(messages, data.draw(cuts), ahead)
    assert figures(alert_table(any_cut).to_pylist()) == together


@given(said=st.lists(SAID, min_size=2, max_size=16), data=st.data())
@settings(deadline=None, max_examples=20)
def test_the_table_gives_the_alerts_of_the_stream(said: list[Said], data: st.DataObject) -> None:
    messages = stored_by_hub([*said, Said("A", 1, "temp", 0, (50.0,))])
    cuts = data.draw(st.lists(st.integers(1, len(messages))))
    streamed = figures(alert_table(live(messages, cuts, 0)).to_pylist())
    assert figures(recomputed(messages)) == streamed


def test_a_threshold_counts_for_the_samples_that_were_stored_after_it_whatever_the_batch() -> None:
    found = []
    for cut in (True, False):
        bucket = Bucket()
        for at_s in range(5):
            bucket.say("A", at_s, (TEMP, at_s, 65))
        if cut:
            bucket.run(5)
        bucket.set("A", 10, 70)
        bucket.say("A", 11, (TEMP, 11, 65))
        bucket.run(12)
        found.append([(a.kind, a.time_ns, a.value, a.limit) for a in bucket.alerts])
    assert found[0] == found[1]
    assert found[0] == [("raised", T0 + 2 * S, 65, 60), ("cleared", T0 + 11 * S, 65, 70)]


def test_a_threshold_that_is_read_before_older_samples_waits_for_them() -> None:
    bucket = Bucket()
    bucket.set("A", 10, 70)
    bucket.run_until(20, until_s=5)
    bucket.restart()
    for at_s in range(3):
        bucket.say("A", at_s, (TEMP, at_s, 65))
    bucket.run_until(20, until_s=5)
    bucket.say("A", 11, (TEMP, 11, 65))
    bucket.run(21)
    assert [(a.kind, a.limit) for a in bucket.alerts] == [("raised", 60), ("cleared", 70)]
    assert bucket.twins.waiting == []


def test_a_replay_that_stood_still_for_an_hour_begins_anew_with_or_without_a_look_between() -> None:
    found = []
    for tick in (True, False):
        bucket = Bucket()
        bucket.say("A", 1_000, (TEMP, 999, 20.0))
        bucket.say("A", 1_001, (TEMP, 100, 70.0), (TEMP, 101, 70.0))
        if tick:
            bucket.run(1_001)
            bucket.tick(4_700)
        bucket.say("A", 4_800, (TEMP, 102, 70.0), (TEMP, 103, 70.0), (TEMP, 104, 70.0))
        bucket.run(4_800)
        found.append([a.time_ns for a in bucket.alerts if a.rule == "temperature"])
    assert found == [[T0 + 104 * S]] * 2
