"""The parts of the benchmark of a gateway: its work, what it is compared with, and its account."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random
from typing import Any

import pytest
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from backhaul_codec import Point
from tests.support.errors import LostDataError
from tests.support.gateway_floor import read, self_contained
from tests.support.gateway_work import RandomWalk, Work
from tests.support.readings_account import Account
from tests.support.sparkplug import (
    DataType,
    Metric,
    Payload,
    SparkplugError,
    birth,
    decode,
    encode,
)

NOW_MS = 1_750_000_000_123

# Of the published schema, sparkplug_b.proto: the fields that are written here, and one that is not.
_PAYLOAD = (("timestamp", 1, "UINT64"), ("metrics", 2, "Metric"), ("seq", 3, "UINT64"))
_METRIC = (
    ("name", 1, "STRING"),
    ("alias", 2, "UINT64"),
    ("timestamp", 3, "UINT64"),
    ("datatype", 4, "UINT32"),
    ("is_historical", 5, "BOOL"),
    ("int_value", 10, "UINT32"),
    ("long_value", 11, "UINT64"),
    ("float_value", 12, "FLOAT"),
    ("double_value", 13, "DOUBLE"),
    ("boolean_value", 14, "BOOL"),
    ("string_value", 15, "STRING"),
)


@pytest.fixture(scope="module")
def schema() -> Any:
    """The message class that protobuf itself makes of the schema."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="spb.proto", package="spb", syntax="proto2")
    for name, fields in (("Metric", _METRIC), ("Payload", _PAYLOAD)):
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            made = message.field.add(name=field_name, number=number, label=field.LABEL_OPTIONAL)
            if kind == "Metric":
                made.type, made.type_name = field.TYPE_MESSAGE, ".spb.Metric"
                made.label = field.LABEL_REPEATED
            else:
                made.type = getattr(field, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("spb.Payload"))


METRICS = [
    Metric(21.5, NOW_MS, 0),
    Metric(-0.1, NOW_MS, 130),
    Metric(49.0123456, NOW_MS, 2),
    Metric(-7, NOW_MS, 3),
    Metric(12, NOW_MS, 4),
    Metric("closed", NOW_MS, 5),
    Metric(0.0, NOW_MS, 6, "sensor00/temperature", DataType.FLOAT),
]


def test_protobuf_itself_reads_a_payload(schema: Any) -> None:
    found = schema.FromString(encode(Payload(NOW_MS, 255, METRICS)))
    assert (found.timestamp, found.seq, len(found.metrics)) == (NOW_MS, 255, len(METRICS))
    assert [metric.alias for metric in found.metrics] == [0, 130, 2, 3, 4, 5, 6]
    assert {metric.timestamp for metric in found.metrics} == {NOW_MS}
    assert found.metrics[0].float_value == 21.5
    assert found.metrics[2].double_value == 49.0123456
    assert found.metrics[3].long_value == 2**64 - 7
    assert found.metrics[5].string_value == "closed"
    assert (found.metrics[6].name, found.metrics[6].datatype) == ("sensor00/temperature", 9)
    assert not found.metrics[0].HasField("name")
    assert not found.metrics[0].HasField("datatype")


def test_what_protobuf_writes_is_read_and_a_field_that_no_gateway_needs_is_passed_over(
    schema: Any,
) -> None:
    made = schema(timestamp=NOW_MS, seq=3)
    metric = made.metrics.add(alias=1, timestamp=NOW_MS, float_value=21.5, is_historical=True)
    assert metric.alias == 1
    body = made.SerializeToString()
    assert decode(body) == Payload(NOW_MS, 3, [Metric(21.5, NOW_MS, 1)])


def test_a_payload_comes_back_as_it_was() -> None:
    assert decode(encode(Payload(NOW_MS, 255, METRICS))) == Payload(NOW_MS, 255, METRICS)
    named = birth(["a", "b"], NOW_MS)
    assert decode(encode(named)) == named
    assert [metric.alias for metric in named.metrics] == [0, 1]


def test_a_metric_takes_16_bytes() -> None:
    """Alias, timestamp and float32, as any encoder of the specification has it."""
    one, two = (len(encode(Payload(NOW_MS, 1, METRICS[:1] * count))) for count in (1, 2))
    assert two - one == 2 + 2 + 7 + 5


@pytest.mark.parametrize("cut", [1, 3, 12, 20])
def test_a_payload_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(SparkplugError):
        decode(encode(Payload(NOW_MS, 1, METRICS[:1]))[:-cut])


def test_values_walk_by_small_steps_and_stay_in_range() -> None:
    walk = RandomWalk(Random(1))
    values = [walk.next() for _ in range(5_000)]
    steps = [abs(b - a) for a, b in pairwise(values)]
    assert max(steps) < 0.31
    assert min(values) >= 15
    assert max(values) <= 80
    assert all(round(value, 1) == value for value in values)
    assert len(set(values)) > 100


def test_nodes_are_read_together_or_each_at_its_own_moment() -> None:
    together = list(islice(Work(30, 2).readings(Random(1)), 3))
    assert [reading.at_s for reading in together] == [0, 1, 2]
    assert {len(reading.values) for reading in together} == {60}
    apart = list(islice(Work(30, 2, spread=True).readings(Random(1)), 60))
    assert [reading.at_s for reading in apart] == pytest.approx([n / 30 for n in range(60)])
    assert {len(reading.values) for reading in apart} == {2}
    assert len({value.node for reading in apart[:30] for value in reading.values}) == 30
    sparse = list(islice(Work(30, 1, every_s=10).readings(Random(1)), 2))
    assert [reading.at_s for reading in sparse] == [0, 10]


def test_the_floor_holds_what_it_was_given() -> None:
    work = Work(30, 2)
    turns = [each.values for each in islice(work.readings(Random(1)), 10)]
    assert read(self_contained(NOW_MS, turns[:1])) == (NOW_MS, turns[:1])
    assert read(self_contained(NOW_MS, turns)) == (NOW_MS, turns)
    assert len(self_contained(NOW_MS, turns[:1])) < 4 * work.points_a_turn


def points(count: int) -> list[Point]:
    return [Point("a", "x", 1_000_000 * number, number / 10) for number in range(count)]


def test_an_account_is_exact_when_each_reading_came_once() -> None:
    account = Account()
    account.send(points(3))
    assert account.take(points(2), message=("bulk", 1, 1))
    assert not account.take(points(2), message=("bulk", 1, 1))  # it came again
    assert account.missing == 1
    with pytest.raises(LostDataError) as lost:
        account.require_exact("hub")
    assert (lost.value.missing, lost.value.doubled) == (1, 0)
    assert account.take(points(3)[2:], message=("bulk", 1, 2))
    account.require_exact("hub")
    assert (account.arrived, account.repeats) == (3, 1)


@pytest.mark.parametrize(
    "came",
    [points(1), [Point("a", "x", 0, 7.0)], [Point("b", "x", 0, 0.0)], [Point("a", "x", 9, 0.0)]],
    ids=["again in another message", "with another value", "of another node", "of another time"],
)
def test_an_account_sees_a_reading_that_is_not_as_it_was_sent(came: list[Point]) -> None:
    account = Account()
    account.send(points(1))
    account.take(points(1), message=1)
    account.take(came, message=2)
    with pytest.raises(LostDataError) as lost:
        account.require_exact("hub")
    assert lost.value.doubled == 1
