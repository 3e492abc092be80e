"""Readings as the table of points has them, for benchmarks that write millions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_spark.columns import STAMP
from backhaul_spark.decode.points import POINTS


def points_batch(
    types: pa.DictionaryArray,
    time_ns: NDArray[np.int64],
    values: NDArray[np.float64],
    seq: NDArray[np.int64],
    index: NDArray[np.int64],
    *,
    devices: pa.DictionaryArray | None = None,
    nodes: pa.DictionaryArray | None = None,
) -> pa.RecordBatch:
    """Return rows of `points`, all arguments with an entry a row.

    Args:
        types: what each reading is of.
        time_ns: when it was taken, in ns since 1970.
        values: float64, in any unit.
        seq: of its message.
        index: its place there.
        devices: of which vehicle; None: all of VID-001.
        nodes: of which node; None: all of battery.
    """
    count = len(time_ns)

    def same(text: str) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))

    stored = pa.array((time_ns // 1_000_000_000 + 1) * 1_000_000).cast(STAMP)
    known: dict[str, Any] = {
        "device": same("VID-001") if devices is None else devices,
        "lane": same("bulk"),
        "letter": same("f"),
        "node": same("battery") if nodes is None else nodes,
        "type": types,
        "key": same(""),
        "origin": same(""),
        "stream": same("UP_00"),
        "epoch": pa.array(np.ones(count, np.int64)),
        "seq": pa.array(seq),
        "index": pa.array(index.astype(np.int32)),
        "time": pa.array(time_ns // 1000).cast(STAMP),
        "time_ns": pa.array(time_ns),
        "dtype": pa.array(np.ones(count, np.int16)),
        "value_f64": pa.array(values),
        "value_i64": pa.nulls(count, pa.int64()),
        "value_text": pa.nulls(count, pa.string()).dictionary_encode(),
        "value_bytes": pa.nulls(count, pa.binary()).dictionary_encode(),
        "tombstone": pa.array(np.zeros(count, np.int16)),
        "clock": pa.array(np.zeros(count, np.int16)),
        "stream_seq": pa.array(seq),
        "stored_at": stored.dictionary_encode(),
    }
    return pa.RecordBatch.from_arrays([known[name] for name in POINTS.names], POINTS.names)
