"""Reading real streams by sequence range."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_runtime.clock import SystemClock
from backhaul_spark.errors import (
    LoginRefusedError,
    StreamClosedError,
    StreamMissingError,
    UnreachableError,
)
from backhaul_spark.nats import direct_get
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.direct_get import list_streams, read_range
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.nats.offsets import GAP_RETENTION, GAP_REWOUND, Span
from backhaul_spark.source.jetstream_source import (
    JetStreamStreamReader,
    SourceSettings,
    SpanPartition,
    read_span,
)

if TYPE_CHECKING:
    from backhaul_spark.nats.stored import Stored
    from tests.support.spark_server import HubServer

pytestmark = pytest.mark.nats


def read(hub: HubServer, lo: int, hi: int, stream: str = "UP_00") -> list[Stored]:
    return list(read_range(endpoint_from(hub.options), stream, lo, hi))


def test_messages_come_back_as_they_went_in(hub_server: HubServer) -> None:
    hub_server.put([b"one", b"", b"three" * 1000])
    [part] = read(hub_server, 1, 3)
    assert part.seqs == [1, 2, 3]
    assert part.subjects == ["up.VID-001.f.battery"] * 3
    assert part.bodies == [b"one", b"", b"three" * 1000]
    assert part.times[0].endswith("Z")


def test_a_range_ends_where_it_says_also_after_deletions(hub_server: HubServer) -> None:
    hub_server.put([b"%d" % n for n in range(1, 11)])
    for seq in (3, 4, 7):
        hub_server.delete_message(seq)
    assert [s for part in read(hub_server, 2, 8) for s in part.seqs] == [2, 5, 6, 8]
    assert read(hub_server, 3, 4) == []
    assert read(hub_server, 11, 20) == []


def test_long_ranges_take_several_requests(
    hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_server.put([b"x" * 300] * 50)
    monkeypatch.setattr(direct_get, "BATCH_MESSAGES", 7)
    parts = read(hub_server, 1, 50)
    assert len(parts) == 8
    assert [s for part in parts for s in part.seqs] == list(range(1, 51))
    monkeypatch.setattr(direct_get, "BATCH_BYTES", 1000)
    assert [s for part in read(hub_server, 4, 50) for s in part.seqs] == list(range(4, 51))


def test_headers_of_a_sender_cannot_pose_as_the_servers(hub_server: HubServer) -> None:
    """A device may publish headers of these names; the server writes its own after them."""
    connection = hub_server._control()
    header = b"NATS/1.0\r\nNats-Subject: up.EVIL.f.x\r\nNats-Sequence: 99\r\n\r\n"
    reply = connection.send("$JS.API.INFO", b"")
    connection.answer(reply, "warm up")
    connection._write(
        b"HPUB up.VID-001.f.battery %s %d %d\r\n%sbody\r\n"
        % (reply, len(header), len(header) + 4, header)
    )
    connection.answer(reply, "ack")
    connection.close()
    [part] = read(hub_server, 1, 1)
    assert (part.seqs, part.subjects) == ([1], ["up.VID-001.f.battery"])


def test_streams_are_found_by_pattern(hub_server: HubServer) -> None:
    hub_server.make_stream("UP_01", subjects="other.>")
    hub_server.make_stream("DOWN_00", subjects="in.>")
    endpoint = endpoint_from(hub_server.options)
    assert list(list_streams(endpoint, ["UP_*"])) == ["UP_00", "UP_01"]
    assert list_streams(endpoint, ["NONE_*"]) == {}
    with pytest.raises(StreamMissingError, match="UP_77"):
        list_streams(endpoint, ["UP_77"])


def test_a_missing_stream_and_one_without_direct_get_have_names(hub_server: HubServer) -> None:
    with pytest.raises(StreamMissingError, match="NOPE"):
        read(hub_server, 1, 2, "NOPE")
    hub_server.make_stream("SHUT", subjects="shut.>", allow_direct=False)
    with pytest.raises(StreamClosedError, match="SHUT"):
        read(hub_server, 1, 2, "SHUT")


def test_a_wrong_password_is_refused_at_once(hub_server: HubServer) -> None:
    endpoint = endpoint_from({"servers": hub_server.url, "user": "spark", "password": "wrong"})
    with pytest.raises(LoginRefusedError):
        list_streams(endpoint, ["UP_*"])


def test_no_server_is_unreachable(hub_server: HubServer) -> None:
    hub_server.server.stop()
    with pytest.raises(UnreachableError):
        list_streams(endpoint_from(hub_server.options), ["UP_*"])


def test_a_read_goes_on_after_the_server_was_away(
    hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_server.put([b"x"] * 40)
    monkeypatch.setattr(direct_get, "BATCH_MESSAGES", 10)
    seqs: list[int] = []

    class Meanwhile(SystemClock):
        """While the reader waits the server is started again, however long that takes."""

        def sleep(self, seconds: float) -> None:
            if not hub_server.server.running:
                hub_server.server.start()

    endpoint = endpoint_from(hub_server.options)
    for part in read_range(endpoint, "UP_00", 1, 40, clock=Meanwhile()):
        seqs += part.seqs
        if len(seqs) == 20:
            hub_server.server.kill()
    assert seqs == list(range(1, 41))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each connection that is opened, or tried."""
    count: list[int] = []

    class Counted(Connection):
        def __init__(self, *args: object, **kwargs: object) -> None:
            count.append(1)
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(direct_get, "Connection", Counted)
    return count


def test_the_connection_is_kept_between_reads(hub_server: HubServer, opened: list[int]) -> None:
    hub_server.put([b"x"])
    for _ in range(3):
        read(hub_server, 1, 1)
    assert len(opened) == 1


def reader(hub: HubServer, **more: str) -> JetStreamStreamReader:
    return JetStreamStreamReader(SourceSettings(hub.options | more))


def test_a_store_that_went_back_in_time_is_noticed(hub_server: HubServer) -> None:
    """A power cut at the hub: other messages under the same numbers, the stream's name unchanged."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    hub_server.put([b"a"] * 5)
    source = reader(hub_server, onGap="record")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    mark = end["streams"]["UP_00"]
    assert (mark["seq"], bool(mark["stamp"])) == (5, True)
    assert source.latestOffset(end, ReadAllAvailable()) == end
    mark["stamp"] = "2020-01-01T00:00:00Z"  # not the message that is there now
    again = source.latestOffset(end, ReadAllAvailable())
    assert (again["streams"]["UP_00"]["rewound"], again["streams"]["UP_00"]["seq"]) == (1, 5)
    pieces = source.partitions(end, again)
    spans = [piece.span for piece in pieces if isinstance(piece, SpanPartition)]
    assert next((s.gap, s.lo, s.hi) for s in spans) == ("gap_rewound", 6, 5)
    assert sum(s.count for s in spans) == 5


def test_a_store_that_went_back_before_its_last_message_was_looked_at_is_noticed(
    hub_server: HubServer,
) -> None:
    """The offset has a sequence that the stream spoke of, and no stamp: the message was gone by then."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    hub_server.put([b"a"] * 5)
    source = reader(hub_server, onGap="record")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    end["streams"]["UP_00"]["stamp"] = ""
    assert source.latestOffset(end, ReadAllAvailable())["streams"]["UP_00"]["rewound"] == 1


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_stream_of_which_nothing_was_read_yet_did_not_go_back(
    hub_server: HubServer, starting: str
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    hub_server.put([b"a"] * 5)
    hub_server.delete_message(1)
    source = reader(hub_server, onGap="record", starting=starting)
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert (end["streams"]["UP_00"]["rewound"], end["streams"]["UP_00"]["seq"]) == (0, 5)


def test_nor_did_one_that_is_empty(hub_server: HubServer) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    source = reader(hub_server, onGap="record")
    start = source.initialOffset()
    assert source.latestOffset(start, ReadAllAvailable()) == start
    assert start["streams"]["UP_00"]["seq"] == 0


def test_deleted_messages_inside_a_range_are_a_gap_row(hub_server: HubServer) -> None:
    hub_server.put([b"x"] * 6)
    hub_server.delete_message(3)
    hub_server.delete_message(6)
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    source = reader(hub_server, onGap="record", partitions="1")
    start = source.initialOffset()
    mark = start | {"streams": {"UP_00": start["streams"]["UP_00"] | {"seq": 0}}}
    pieces = source.partitions(mark, source.latestOffset(mark, ReadAllAvailable()))
    rows = [row for piece in pieces for batch in source.read(piece) for row in batch.to_pylist()]
    gaps = [(row["stream_seq"], row["missing"]) for row in rows if row["missing"] is not None]
    assert gaps == [(3, 1), (6, 1)]


def test_reading_ends_in_time_when_the_server_stays_away(
    hub_server: HubServer, opened: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_get, "ATTEMPTS", 2)
    hub_server.server.stop()
    with pytest.raises(UnreachableError):
        read(hub_server, 1, 5)
    assert 2 <= len(opened) <= 4


def test_the_server_keeps_nothing_for_what_was_asked_before(hub_server: HubServer) -> None:
    """Through the import of another account it does, for as long as the inbox is subscribed."""
    hub_server.put([b"one"])
    job = endpoint_from({"servers": hub_server.url, "user": "job", "password": "all"})
    for _ in range(20):
        assert list(read_range(replace(job, api="jobsapi"), "UP_00", 1, 1))
    system = endpoint_from({"servers": hub_server.url, "user": "system", "password": "all"})
    with closing(Connection(system)) as connection:
        _, answer = connection.request("$SYS.REQ.ACCOUNT.HUB.INFO", b"")
    kept = json.loads(answer)["data"].get("responses", {})
    assert len(kept) <= 1  # the last one: the connection is lent out again with another inbox


def test_what_only_the_leader_of_a_cluster_lacked_is_read_and_no_gap(hub_server: HubServer) -> None:
    """A batch was planned by the word of a leader whose disk was damaged; here the one server has the messages."""
    hub_server.put([b"one", b"two", b"three"])
    settings = SourceSettings(hub_server.options | {"onGap": "record"})

    def rows(*span: Any) -> list[tuple[int, int | None]]:
        found = [row for batch in read_span(settings, Span(*span)) for row in batch.to_pylist()]
        return [(row["stream_seq"], row["missing"]) for row in found]

    assert rows("UP_00", 1, 3, GAP_RETENTION) == [(1, 3)]
    settings.endpoint = replace(settings.endpoint, servers=2 * settings.endpoint.servers)
    assert rows("UP_00", 1, 3, GAP_RETENTION) == [(1, None), (2, None), (3, None)]
    assert rows("UP_00", 4, 9, GAP_RETENTION) == [(4, 6)]
    assert rows("UP_00", 1, 3, GAP_REWOUND) == [(1, 3)]
