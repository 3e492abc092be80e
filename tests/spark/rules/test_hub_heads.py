"""Which messages of DOWN are asked for thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_spark.decode.samples import SAMPLE_ROWS
from backhaul_spark.nats.offsets import Span
from backhaul_spark.nats.stored import StreamInfo
from backhaul_spark.rules import hub_heads
from backhaul_spark.rules.config import plan_from
from backhaul_spark.source.jetstream_source import SourceSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def test_a_stream_without_messages_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is new, nor one of which all was deleted."""
    streams = {
        name: StreamInfo(name, "2026-01-01T00:00:00Z", first, last, messages, 0)
        for name, first, last, messages in (
            ("DOWN_00", 0, 0, 0),
            ("DOWN_01", 8, 7, 0),
            ("DOWN_02", 3, 7, 4),
        )
    }
    asked: list[Span] = []

    def read(settings: SourceSettings, span: Span) -> Iterator[pa.RecordBatch]:
        asked.append(span)
        yield pa.RecordBatch.from_pylist([], SAMPLE_ROWS)

    monkeypatch.setattr(SourceSettings, "streams", lambda self: streams)
    monkeypatch.setattr(hub_heads, "read_span", read)
    source = {"servers": "nats://127.0.0.1:1"}
    assert hub_heads.hub_heads(source, plan_from({}, "test")) == []
    assert asked == [Span("DOWN_02", 3, 7)]
