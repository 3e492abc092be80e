"""The data source in a real Spark session: formats, secrets, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from backhaul_spark.errors import LoginRefusedError, OptionError
from backhaul_spark.ingest.stream import named_error
from backhaul_spark.source.jetstream_source import JetStreamSource, SourceSettings
from tests.support.spark_frames import frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.spark_server import HubServer

pytestmark = [pytest.mark.spark, pytest.mark.nats]


@pytest.fixture
def load(spark: SparkSession, hub_server: HubServer) -> Callable[..., DataFrame]:
    """Read the hub's streams in batch."""
    spark.dataSource.register(JetStreamSource)

    def load_one(**options: str) -> DataFrame:
        options = hub_server.options | options
        return spark.read.format("jetstream").options(**options).load()

    return load_one


def test_a_batch_read_gives_messages_or_points(
    load: Callable[..., DataFrame], hub_server: HubServer
) -> None:
    hub_server.put([frame(1), b"garbage that is no envelope", frame(2, [7, 8, 9])])
    messages = load(partitions="2").orderBy("stream_seq").collect()
    assert [(m.stream_seq, m.seq, m.code) for m in messages] == [
        (1, 1, None),
        (2, None, "version"),
        (3, 2, None),
    ]
    assert bytes(messages[0].body) == frame(1)
    points = load(format="points").orderBy("stream_seq", "index").collect()
    assert [(p.seq, p["index"], p.value_f64, p.value_i64) for p in points if not p.code] == [
        (1, 0, 1.5, None),
        (1, 1, 2.5, None),
        (2, 0, None, 7),
        (2, 1, None, 8),
        (2, 2, None, 9),
    ]
    [bad] = [p for p in points if p.code]
    assert (bad.stream_seq, bad.subject, bad.device) == (2, "up.VID-001.f.battery", "VID-001")


def test_the_password_is_in_no_plan(load: Callable[..., DataFrame], hub_server: HubServer) -> None:
    hub_server.put([frame(1)])
    frame_ = load()
    plan = frame_._jdf.queryExecution().toString()
    assert "s3cret" not in plan


def test_an_error_of_ours_is_found_in_what_spark_makes_of_it(
    load: Callable[..., DataFrame], hub_server: HubServer
) -> None:
    hub_server.put([frame(1)])
    hub_server.credentials.write_text('user = "spark"\npassword = "wrong"\n')
    with pytest.raises(Exception, match="refused the login") as caught:
        load().collect()
    named = named_error(caught.value)
    assert "refused the login" in str(named)
    assert named.hint == LoginRefusedError.hint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "rows"}, "messages or points"),
        ({"onGap": "ignore"}, "fail or record"),
        ({"starting": "noon"}, "earliest or latest"),
        ({"partitions": "0"}, "whole number"),
        ({"maxMessages": "many"}, "whole number"),
        ({"servers": ""}, "at least one server"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SourceSettings({"servers": "nats://hub"} | options)
