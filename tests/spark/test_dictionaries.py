"""Ingest of bundles that are packed against a dictionary: found, missing, and taken up once it is there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from backhaul_codec import CodecError, Point, chain, encode_bundle
from backhaul_codec.subjects import (
    BUNDLE_SUBJECT,
    DICTIONARY_STREAM,
    dictionary_subject,
    stored_dictionary_subject,
)
from backhaul_codec.wire.dictionaries import digest_of, encode_dictionary, pack_with
from backhaul_codec.wire.envelope import NO_LINK, unseal
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import BatchOutcome, Ingest
from backhaul_spark.ingest.stream import IngestQuery
from backhaul_spark.nats import dictionaries
from backhaul_spark.nats.dictionaries import DictionaryReader
from backhaul_spark.nats.endpoint import endpoint_from
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.spark_server import HubServer

pytestmark = [pytest.mark.nats]
DEVICE = "VID-001"


def bundle(seq: int) -> bytes:
    """Return a bundle of two nodes, as it is in its lane."""
    points = [
        Point(node, "temperature", T0_NS + seq * 10**9, 20.5 + seq) for node in ("cabin", "cargo")
    ]
    message = encode_bundle(points, epoch=0, seq=0)
    return chain(message, epoch=1, seq=seq, link=NO_LINK)


DICTIONARY = unseal(bundle(1))[1]
CARRIER = chain(encode_dictionary(DICTIONARY), epoch=1, seq=2, link=NO_LINK)


def packed(seq: int) -> bytes:
    message = pack_with(bundle(seq), DICTIONARY)
    assert len(message) < len(bundle(seq))
    return message


@pytest.fixture(autouse=True)
def nothing_cached() -> Iterator[None]:
    """Executors of one test do not know the dictionaries of another."""
    dictionaries._cached.clear()
    yield
    dictionaries._cached.clear()


def keep(hub: HubServer) -> None:
    """Put the dictionary where the hub keeps it."""
    hub.put_raw(stored_dictionary_subject(DEVICE, digest_of(DICTIONARY)), CARRIER)


def make_store(hub: HubServer) -> None:
    hub.make_stream(DICTIONARY_STREAM, subjects="dict.>", max_msgs_per_subject=1)


def test_a_dictionary_is_found_or_said_to_be_missing(hub_server: HubServer) -> None:
    here = DictionaryReader(endpoint_from(hub_server.options))
    assert here.plain([DEVICE], [bundle(1)]) == [bundle(1)]
    [missing] = here.plain([DEVICE], [packed(3)])
    assert isinstance(missing, CodecError)
    assert missing.code == "dictionary"
    make_store(hub_server)
    keep(hub_server)
    found, of_another = here.plain([DEVICE, "VID-002"], [packed(3), packed(3)])
    assert isinstance(found, bytes)
    assert unseal(found) == unseal(bundle(3))
    assert isinstance(of_another, CodecError), "a dictionary is of one device"


def test_a_vehicle_that_names_ever_new_dictionaries_is_asked_about_a_few_times(
    hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    here = DictionaryReader(endpoint_from(hub_server.options))
    monkeypatch.setattr(here, "_read", lambda device, digest: asked.append(digest))
    hostile = [packed(3)[:24] + number.to_bytes(6, "big") + packed(3)[30:] for number in range(100)]
    assert all(isinstance(each, CodecError) for each in here.plain([DEVICE] * 100, hostile))
    assert len(asked) == dictionaries.MISSING_A_DEVICE


def test_those_that_are_there_are_all_found_however_many_a_vehicle_used(
    hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a backlog of weeks; the twin job passes over what is not found."""
    many = [DICTIONARY + bytes([number]) for number in range(dictionaries.MISSING_A_DEVICE + 5)]
    held = {digest_of(each): each for each in many}
    here = DictionaryReader(endpoint_from(hub_server.options))
    monkeypatch.setattr(here, "_read", lambda device, digest: held.get(digest))
    found = here.plain([DEVICE] * len(many), [pack_with(bundle(3), each) for each in many])
    assert not [each for each in found if isinstance(each, CodecError)]


@pytest.mark.spark
def test_each_reading_is_in_points_once_also_where_its_dictionary_came_late(
    spark: SparkSession, hub_server: HubServer, tmp_path: Path
) -> None:
    root = str(tmp_path / "tables")

    def once() -> list[BatchOutcome]:
        outcomes: list[BatchOutcome] = []
        ingest = Ingest(root, SYSTEM_CLOCK)
        options = hub_server.options | {"partitions": "1"}
        IngestQuery(spark, ingest, options, SYSTEM_CLOCK, outcomes.append).run(None)
        return outcomes

    def seqs() -> Counter[int]:
        table = DeltaTable(f"{root}/points").to_pyarrow_table(columns=["seq"])
        return Counter(table.column("seq").to_pylist())

    make_store(hub_server)
    hub_server.put([bundle(1)], leaf=BUNDLE_SUBJECT)
    hub_server.put([CARRIER], leaf=dictionary_subject(digest_of(DICTIONARY)))
    hub_server.put([packed(3), packed(4)], leaf=BUNDLE_SUBJECT)
    [outcome] = once()
    assert (outcome.messages, outcome.points, outcome.rejected) == (2, 2, 2)
    assert seqs() == Counter({1: 2})
    rejects = DeltaTable(f"{root}/rejects").to_pyarrow_table().to_pylist()
    assert {(row["code"], row["stream_seq"]) for row in rejects} == {
        ("dictionary", 3),
        ("dictionary", 4),
    }

    keep(hub_server)
    hub_server.put([packed(5)], leaf=BUNDLE_SUBJECT)
    [outcome] = once()
    assert (outcome.messages, outcome.points, outcome.rejected) == (3, 6, 0)
    assert seqs() == Counter({1: 2, 3: 2, 4: 2, 5: 2})

    hub_server.put([packed(6)], leaf=BUNDLE_SUBJECT)
    [outcome] = once()
    assert (outcome.messages, outcome.repeated) == (1, 2), "what was taken up is not taken up anew"
    assert seqs() == Counter({1: 2, 3: 2, 4: 2, 5: 2, 6: 2})
    nodes = DeltaTable(f"{root}/points").to_pyarrow_table(columns=["node", "letter"])
    assert Counter(nodes.column("node").to_pylist()) == Counter(cabin=5, cargo=5)
    assert set(nodes.column("letter").to_pylist()) == {"f"}
