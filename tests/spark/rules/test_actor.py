"""From stored messages to what Spark's operator yields, without a JVM."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester

from backhaul_codec import Opaque, Point, encode_bundle, encode_frame, encode_point
from backhaul_codec.points import JSON
from backhaul_codec.protocol.presence import BEAT, presence_message
from backhaul_codec.wire.dictionaries import digest_of, pack_with
from backhaul_codec.wire.envelope import unseal
from backhaul_spark.cli.jobs.twin import passed_over
from backhaul_spark.decode import points
from backhaul_spark.decode.sample_batch import (
    ALIVE,
    AWAY,
    MARKS,
    SAMPLE,
    UNTIMELY,
    Batch,
    Unread,
    device_hash,
)
from backhaul_spark.decode.samples import Wanted, sample_rows
from backhaul_spark.decode.series import SeriesKey, parse_series
from backhaul_spark.errors import OptionError
from backhaul_spark.nats import dictionaries
from backhaul_spark.nats.dictionaries import DictionaryReader
from backhaul_spark.nats.endpoint import Endpoint
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.stored import Stored
from backhaul_spark.rules.actor import TwinActor, read_until, tables_of
from backhaul_spark.rules.config import plan_from
from backhaul_spark.source.jetstream_source import SourceSettings
from tests.support.twin_batches import T0, S

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa  # type: ignore[import-untyped]

SOC, TEMP = SeriesKey("battery", "soc"), SeriesKey("battery", "temp")
LIMIT = SeriesKey("config", "temp_max")
WANTED = Wanted((SOC, TEMP), (LIMIT,), 1)
STORED_S = 100
STORED_NS = T0 + STORED_S * S


def stored(*messages: tuple[str, bytes], stream: str = "UP_00") -> pa.RecordBatch:
    """Messages (subject, body) as the source has them, stored STORED_S after T0."""
    part = Stored(
        seqs=list(range(1, len(messages) + 1)),
        subjects=[subject for subject, _ in messages],
        times=["2026-01-01T00:01:40Z"] * len(messages),
        bodies=[body for _, body in messages],
    )
    return message_batch(stream, part)


def frame(seq: int, *points: tuple[str, float, Any], clock: int = 0) -> bytes:
    made = [Point("battery", type_, T0 + int(at * S), value) for type_, at, value in points]
    return encode_frame(made, epoch=1, seq=seq, clock=clock)


def seen(*messages: tuple[str, bytes], wanted: Wanted = WANTED) -> Batch:
    return Batch.join(batches(sample_rows(stored(*messages), wanted)))


def batches(rows: pa.RecordBatch) -> list[Batch]:
    columns = [rows.column(name).to_pylist() for name in ("messages", "samples", "said")]
    return [Batch.unpack(*parts) for parts in zip(*columns, strict=True)]


def test_wanted_points_come_out_of_frames_and_all_messages_are_signs_of_life() -> None:
    batch = seen(
        ("up.A.f.battery", frame(1, ("soc", 1, 80.5), ("other", 1, 5.0), ("temp", 2, 21))),
        ("up.B.f.battery", frame(7, ("other", 1, 5.0))),
        ("up.B.f.battery", b"garbage"),
    )
    assert batch.devices == ["A", "B"]
    assert batch.messages["seq"].tolist() == [1, 7]
    assert set(batch.messages["stored_ns"].tolist()) == {T0 + STORED_S * S}
    rows = [tuple(row) for row in batch.samples[["message", "signal", "time_ns", "value"]].tolist()]
    assert rows == [(0, 0, T0 + S, 80.5), (0, 1, T0 + 2 * S, 21.0)]


def test_wanted_points_come_out_of_bundles_also_of_packed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bundle(seq: int) -> bytes:
        made = [Point("battery", "soc", T0 + seq * S, 80.0 + seq), Point("gps", "soc", T0, 1.0)]
        return encode_bundle(made, epoch=1, seq=seq)

    known = unseal(bundle(1))[1]
    reader = DictionaryReader(Endpoint((("localhost", 1),)))
    held = {("A", digest_of(known)): known}
    monkeypatch.setattr(dictionaries, "_cached", OrderedDict())
    monkeypatch.setattr(reader, "_read", lambda *key: held.get(key))
    messages = [
        ("up.A.b", bundle(1)),
        ("up.A.b", pack_with(bundle(2), known)),
        ("up.B.b", pack_with(bundle(3), known)),
    ]
    [batch] = batches(sample_rows(stored(*messages), WANTED, reader))
    rows = [tuple(row) for row in batch.samples[["message", "signal", "time_ns", "value"]].tolist()]
    assert rows == [(0, 0, T0 + S, 81.0), (1, 0, T0 + 2 * S, 82.0)]
    assert batch.devices == ["A", "B"], "what cannot be read yet is a sign of life all the same"
    assert batch.unread == [Unread("B", 1, STORED_NS, STORED_NS)]


def test_a_point_that_cannot_be_true_or_is_deleted_or_text_is_no_sample() -> None:
    gone = encode_point(Point("battery", "soc", T0, 5.0, tombstone=1), epoch=1, seq=9)
    batch = seen(
        ("up.A.f.battery", frame(1, ("soc", STORED_S + 61, 1.0), ("soc", STORED_S + 59, 2.0))),
        ("up.A.f.battery", frame(2, ("soc", 1, 3.0), clock=2)),
        ("up.A.f.battery", frame(3, ("soc", 1, "full"))),
        ("up.A.p.battery.soc.%", gone),
    )
    assert batch.samples["signal"].tolist() == [UNTIMELY, 0, UNTIMELY]


def test_a_threshold_is_read_from_both_directions() -> None:
    def limit(value: float, at: float = 0, **more: Any) -> Point:
        return Point("config", "temp_max", T0 + int(at * S), value, **more)

    node_frame = encode_frame([limit(50, origin="hub:ann")], epoch=0, seq=0)
    batch = seen(
        ("up.A.p.config.temp_max.%", encode_point(limit(70), epoch=1, seq=1)),
        ("up.A.p.config.temp_max.%", encode_point(limit(70, STORED_S + 6), epoch=1, seq=2)),
        ("in.B.p.config.temp_max.%", encode_point(limit(60, origin="hub"), epoch=0, seq=0)),
        ("in.B.p.config", node_frame),
        ("in.B.p.config.other.%", encode_point(Point("config", "other", T0, 1.0), epoch=0, seq=0)),
        ("in.B.c.abc", b"a command"),
        ("in.B.s.watermark", b"{}"),
        ("in.B.p.config.temp_max.%", b"broken"),
    )
    assert [(h.device, h.value, h.origin) for h in batch.heads] == [
        ("A", 70, ""),
        ("B", 60, "hub"),
        ("B", 50, "hub:ann"),
    ]
    # What the hub writes is no sign of life of a vehicle.
    assert batch.devices == ["A"]
    assert len(batch.messages) == 2


def test_a_mark_is_known_by_its_why() -> None:
    def mark(body: bytes, epoch: int = 1) -> bytes:
        return encode_point(Point("", "mark", T0, Opaque(JSON, body)), epoch=epoch, seq=5)

    batch = seen(
        ("up.A.e.mark", mark(b'{"epoch": 1, "lanes": {"live": 4}, "why": "link"}')),
        ("up.A.e.mark", mark(b'{"epoch": 1, "lanes": {"live": 4}, "why": "start"}')),
        ("up.A.e.mark", mark(b'{"epoch": 1, "lanes": {"live": 4}, "why": "moon"}')),
        ("up.A.e.mark", mark(b'{"epoch": 2, "lanes": {}, "why": "link"}')),
        ("up.A.e.mark", mark(b"[]")),
    )
    assert batch.messages["mark"].tolist() == [MARKS["link"], MARKS["start"], 5, 0, 0]


def test_what_is_decoded_in_chunks_stays_with_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = encode_point(Point("config", "temp_max", T0, 70.0), epoch=1, seq=2)
    messages = [
        ("up.A.f.battery", b"garbage"),
        ("up.A.f.battery", frame(1, ("soc", 1, 80.0), ("soc", 2, 81.0))),
        ("up.B.f.battery", frame(1, ("temp", 1, 20.0))),
        ("up.C.p.config.temp_max.%", limit),
        ("up.A.f.battery", frame(2, ("soc", 3, 82.0))),
    ]
    whole = seen(*messages)
    monkeypatch.setattr(points, "CHUNK_MESSAGES", 1)
    cut = seen(*messages)
    assert cut.samples.tolist() == whole.samples.tolist()
    assert [head.device for head in cut.heads] == [head.device for head in whole.heads] == ["C"]


def test_every_bucket_gets_a_row_and_only_its_own_devices() -> None:
    messages = [
        (f"up.D{n}.f.battery", frame(1, ("soc", n, float(n)), ("temp", n, n))) for n in range(50)
    ]
    rows = sample_rows(stored(*messages), Wanted((SOC, TEMP), (LIMIT,), 7))
    assert rows.column("bucket").to_pylist() == list(range(7))
    assert set(rows.column("until_ns").to_pylist()) == {T0 + STORED_S * S}
    parts = batches(rows)
    assert sum(len(part.messages) for part in parts) == 50
    both = Batch.join(parts)
    found = {}
    for row in both.samples[both.samples["signal"] == 0]:
        found[int(both.messages["device"][row["message"]])] = row["value"]
    assert sorted(found.values()) == list(range(50))
    assert sorted(both.devices) == sorted(f"D{n}" for n in range(50))
    empty = batches(sample_rows(stored(("up.A.x", b"")), Wanted((SOC,), (), 2)))
    assert [len(part.messages) for part in empty] == [0, 0]
    assert np.concatenate([part.samples for part in empty]).dtype == SAMPLE


@pytest.mark.parametrize("text", ["soc", "a.b.c.d", "a.b c"], ids=["one", "four", "blank"])
def test_what_is_no_series_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"a series such as battery\.soc"):
        SourceSettings({"servers": "nats://h", "signals": text})
    assert str(parse_series("a.b.c%20d")) == "a.b.c%20d"


class Actor:
    """The operator in Spark's own tester: one bucket."""

    def __init__(self, **twin: Any) -> None:
        self.plan = plan_from({"twin": {"buckets": 1, "grace_s": 0} | twin}, "test")
        self.tester = TwsTester(TwinActor(self.plan, T0 // 1_000_000), timeMode="ProcessingTime")
        self.wanted = Wanted(self.plan.series, self.plan.heads, 1)
        self.bucket = 0
        self.at(0)

    def at(self, seconds: float) -> dict[str, list[dict[str, Any]]]:
        """Let the clock be at so many seconds after T0; return what timers say."""
        return self._said(self.tester.setProcessingTime(T0 // 1_000_000 + int(seconds * 1000)))

    def take(
        self, *messages: tuple[str, bytes], reader: DictionaryReader | None = None
    ) -> dict[str, list[dict[str, Any]]]:
        rows = sample_rows(stored(*messages), self.wanted, reader).to_pandas()
        return self._said(self.tester.testInPandas(self.bucket, rows.drop(columns="bucket")))

    @staticmethod
    def _said(frame: Sequence[Any] | pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
        rows = [] if not len(frame) else list(zip(frame["what"], frame["content"], strict=True))  # type: ignore[call-overload]
        return {what: table.to_pylist() for what, table in tables_of(rows).items()}


HOT = frame(1, ("temp", 90, 70), ("temp", 91, 70), ("temp", 92, 70))


def test_the_actor_says_alerts_and_snapshots_and_remembers_between_batches() -> None:
    actor = Actor()
    actor.at(STORED_S)
    first = actor.take(("up.A.f.battery", HOT))
    assert [row["rule"] for row in first["alerts"]] == ["temperature"]
    assert [row["device"] for row in first["snapshots"]] == ["A"]
    again = actor.take(("up.A.f.battery", HOT))
    assert again == {"alerts": [], "snapshots": [], "unread": []}
    cool = actor.take(("up.A.f.battery", frame(2, ("temp", 93, 20))))
    assert [row["kind"] for row in cool["alerts"]] == ["cleared"]
    assert [row["open_alerts"] for row in cool["snapshots"]] == ["[]"]


def test_what_the_hub_has_lost_the_dictionary_of_is_named_with_its_device_cause_and_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hot = [Point("battery", "temp", T0 + at * S, 70) for at in (90, 91, 92)]
    bundles = [encode_bundle(hot, epoch=1, seq=seq) for seq in (2, 3)]
    lost = [pack_with(each, unseal(each)[1]) for each in bundles]
    reader = DictionaryReader(Endpoint((("localhost", 1),)))
    monkeypatch.setattr(dictionaries, "_cached", OrderedDict())
    monkeypatch.setattr(reader, "_read", lambda *_: None)
    actor = Actor()
    actor.at(STORED_S)
    said = actor.take(
        ("up.A.f.battery", HOT), ("up.B.b", lost[0]), ("up.B.b", lost[1]), reader=reader
    )
    assert [row["device"] for row in said["alerts"]] == ["A"], "the others' are judged all the same"
    [row] = said["unread"]
    assert Unread(**row) == Unread("B", 2, STORED_NS, STORED_NS)
    assert passed_over(Unread(**row), "/tables") == (
        "B: passed over 2 messages that the hub stored from 2026-01-01 00:01:40 to 2026-01-01 00:01:40 UTC: "
        "it has lost the dictionary that they are packed against (condition dictionary-missing). Once ingest has "
        "taken them up, backhaul-spark recompute-alerts --table-root /tables --device B gives their alerts"
    )


def test_a_device_that_speaks_is_shown_once_in_a_while() -> None:
    actor = Actor(snapshot_every_s=60)
    shown = []
    for number in range(10):
        actor.at(STORED_S + 20 * number)
        said = actor.take(("up.A.f.battery", frame(number + 1, ("soc", number, 50.0))))
        shown.append(len(said["snapshots"]))
    assert shown == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]


def test_the_hubs_word_on_who_is_there_reaches_each_bucket() -> None:
    """It goes to no vehicle, and is no message of one."""
    words = [presence_message("A", there=True), presence_message("B", there=False)]
    words += [(BEAT, b"{}"), (f"{BEAT}.C", b"?"), (f"{BEAT}.no id", words[0][1])]
    rows = sample_rows(stored(*words, stream="DOWN_00"), replace(WANTED, buckets=2))
    found = batches(rows)
    assert len(found) == 2
    for batch in found:
        assert batch.watched_ns == T0 + STORED_S * S
    whole = Batch.join(found)
    assert sorted(whole.devices) == ["A", "B"]
    marks = dict(
        zip(whole.messages["device"].tolist(), whole.messages["mark"].tolist(), strict=True)
    )
    assert marks == {device_hash("A"): ALIVE, device_hash("B"): AWAY}
    assert seen(("up.A.f.battery", frame(1, ("soc", 0, 80.0)))).watched_ns == 0


def test_the_timer_finds_silence_once_however_long_it_ticks() -> None:
    actor = Actor()
    actor.at(STORED_S)
    actor.take(("up.A.f.battery", frame(1, ("soc", 1, 50.0))))
    raised = [alert for s in range(105, 900, 5) for alert in actor.at(s)["alerts"]]
    assert [(row["rule"], row["kind"], row["time_ns"]) for row in raised] == [
        ("silence", "raised", T0 + (STORED_S + 300) * S)
    ]


def test_a_query_that_has_just_started_waits_before_it_calls_anybody_silent() -> None:
    actor = Actor(grace_s=1000)
    actor.at(STORED_S)
    actor.take(("up.A.f.battery", frame(1, ("soc", 1, 50.0))))
    assert [s for s in range(105, 1200, 5) if actor.at(s)["alerts"]] == [1000]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (4, 2), (2, 3)], ids=str)
def test_another_number_of_buckets_than_the_checkpoints_is_refused(before: int, after: int) -> None:
    """Devices would be looked for in buckets that they are not in, and begin anew there."""
    old = Actor(buckets=before)
    devices = [f"V{number}" for number in range(40)]
    mine = [name for name in devices if device_hash(name) % before == before - 1]
    old.bucket = before - 1
    old.take(*((f"up.{name}.f.battery", HOT) for name in mine))
    new = Actor(buckets=after)
    for name in ("numbers", "names"):
        kept = old.tester.peekValueState(name, old.bucket)
        assert kept is not None
        new.tester.updateValueState(name, old.bucket, kept)
    new.bucket = old.bucket
    with pytest.raises(OptionError, match="as the checkpoint was made with"):
        new.take((f"up.{mine[0]}.f.battery", frame(2, ("temp", 93, 20))))


def test_a_batch_that_is_behind_makes_nobody_silent() -> None:
    """What it read was stored an hour ago: of the hour since there is more to come."""
    now_ns, stored_ns = T0 + 5000 * S, T0 + STORED_S * S
    assert read_until(now_ns, stored_ns, same_batch=True) == stored_ns
    assert read_until(now_ns, stored_ns, same_batch=False) == now_ns
    assert read_until(now_ns, now_ns - S, same_batch=True) == now_ns
    actor = Actor()
    actor.at(5000)
    actor.take(("up.A.f.battery", frame(1, ("soc", 1, 50.0))))
    assert len(actor.at(5005)["alerts"]) == 1
