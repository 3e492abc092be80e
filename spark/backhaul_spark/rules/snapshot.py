"""What the twin of one device knows, as rows of Arrow. docs/twin-actor.md explains each column."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

SNAPSHOTS = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        # When the hub stored the newest message of the device.
        pa.field("last_seen_ns", pa.int64(), nullable=False),
        pa.field("health", pa.float64(), nullable=False),  # 0 (bad) to 1
        pa.field("soc_pct", pa.float64()),  # null: never said
        # Percent an hour, negative while it falls; null: not known yet.
        pa.field("soc_rate_pct_h", pa.float64()),
        pa.field("open_alerts", pa.string(), nullable=False),  # JSON list of names of rules
        pa.field("statistics", pa.string(), nullable=False),  # JSON object, series to figures
        pa.field("at_ns", pa.int64(), nullable=False),  # when this was taken
    ]
)
