"""A stream whose store went back after a batch of it was planned: the batch ends, and what comes then is read. No JVM."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from backhaul_spark.errors import MessagesGoneError
from backhaul_spark.nats import direct_get
from backhaul_spark.source import jetstream_source as source_module
from backhaul_spark.source.jetstream_source import JetStreamStreamReader, SourceSettings

if TYPE_CHECKING:
    from backhaul_spark.nats.stored import StreamInfo
    from tests.support.spark_server import HubServer

pytestmark = pytest.mark.nats

ALL = ReadAllAvailable()


@pytest.fixture(params=[1, 3], ids=["one server", "cluster"])
def replicas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have the one server speak of its streams as a cluster's would that agree; waits take no time."""
    honest, count = direct_get._stream_info, int(request.param)

    def told(answer: dict[str, Any]) -> StreamInfo:
        return replace(honest(answer), replicas=count)

    monkeypatch.setattr(direct_get, "_stream_info", told)
    monkeypatch.setattr(source_module, "_REWIND_LOOK_S", 0.0)
    monkeypatch.setattr(direct_get, "ATTEMPTS", 1)
    return count


def reader(hub: HubServer, on_gap: str = "record") -> JetStreamStreamReader:
    options = {"servers": hub.url, "user": "control", "password": "all", "onGap": on_gap}
    return JetStreamStreamReader(SourceSettings(options))


def rows(source: JetStreamStreamReader, start: Any, end: Any) -> list[tuple[int, int | None]]:
    """Return (sequence, missing) of what a batch reads."""
    pieces = source.partitions(start, end)
    read = [row for piece in pieces for part in source.read(piece) for row in part.to_pylist()]
    return sorted((row["stream_seq"], row["missing"]) for row in read)


def planned_and_gone_back(hub: HubServer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan messages 4 to 8, and put a copy of the store back that ends at 5; return both offsets."""
    source = reader(hub)
    hub.put([b"a"] * 3)
    start = source.latestOffset(source.initialOffset(), ALL)
    hub.put([b"a"] * 2)
    copy = hub.server.directory / "copy"
    hub.server.stop()
    shutil.copytree(hub.server.store, copy)
    hub.server.start()
    hub.put([b"a"] * 3)
    end = source.latestOffset(start, ALL)
    hub.server.stop()
    hub.server.wipe()
    shutil.copytree(copy, hub.server.store)
    hub.server.start()
    direct_get.close_connections()
    return start, end


@pytest.mark.usefixtures("replicas")
def test_what_was_planned_and_is_gone_is_a_gap_and_the_stream_starts_over(
    hub_server: HubServer,
) -> None:
    start, end = planned_and_gone_back(hub_server)
    source = reader(hub_server)
    assert rows(source, start, end) == [(4, None), (5, None), (6, 3)]
    hub_server.put([b"b"])
    again = source.latestOffset(end, ALL)
    assert rows(source, end, again) == [*((seq, None) for seq in range(1, 7)), (9, 0)]
    assert source.latestOffset(again, ALL) == again


@pytest.mark.usefixtures("replicas")
def test_whoever_wants_no_gap_is_told(hub_server: HubServer) -> None:
    start, end = planned_and_gone_back(hub_server)
    with pytest.raises(MessagesGoneError, match="6 to 8"):
        rows(reader(hub_server, "fail"), start, end)


class Deposed(SourceSettings):
    """Asks a leader that ends at 5, for as long as it is believed in, and then the one in its place."""

    asked = 0
    lasts = 10**6

    def streams(self) -> dict[str, StreamInfo]:
        self.asked += 1
        late = self.asked <= self.lasts
        found = super().streams()
        return {n: replace(i, last_seq=5) if late else i for n, i in found.items()}


@pytest.mark.parametrize("replicas", [3], indirect=True)
@pytest.mark.usefixtures("replicas")
def test_a_leader_that_others_replaced_hides_nothing(hub_server: HubServer) -> None:
    source = reader(hub_server)
    start = source.initialOffset()
    hub_server.put([b"a"] * 8)
    end = source.latestOffset(start, ALL)
    source._settings = deposed = Deposed(
        {"servers": hub_server.url, "user": "control", "password": "all", "onGap": "record"}
    )
    deposed.lasts = 3
    assert rows(source, start, end) == [(seq, None) for seq in range(1, 9)]
    assert source.latestOffset(end, ALL) == end
    # Even where it is believed in for longer than any is.
    deposed.asked, deposed.lasts = 0, 10**6
    assert rows(source, start, end) == [*((seq, None) for seq in range(1, 6)), (6, 3)]
    deposed.lasts = 0
    again = source.latestOffset(end, ALL)
    assert rows(source, end, again) == [*((seq, None) for seq in range(1, 9)), (9, 0)]
    assert source.latestOffset(again, ALL) == again
