"""Read the tables `alerts` and `twins` back. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.schemas import ALERTS_TABLE, TWINS_TABLE, TableSpec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def alerts(
    root: str, *, since: datetime | None, device: str | None = None, rule: str | None = None
) -> pa.Table:
    """Return alerts about the time from `since` on, the newest last; of one device or rule, or of all.

    Raises:
        TableMissingError: no twin job has ever written there.
    """
    wanted = pc.scalar(True)
    if since is not None:
        moment = since.astimezone(UTC)
        since_ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
        wanted = (pc.field("date") >= moment.date()) & (pc.field("time_ns") >= since_ns)
    for name, value in (("device", device), ("rule", rule)):
        if value is not None:
            wanted &= pc.field(name) == value
    return _rows(root, ALERTS_TABLE, wanted).sort_by(
        [("time_ns", "ascending"), ("id", "ascending")]
    )


def twins(root: str, device: str | None = None) -> pa.Table:
    """Return the newest snapshot of each device, or of one, by device.

    Raises:
        TableMissingError: no twin job has ever written there.
    """
    wanted = pc.scalar(True) if device is None else pc.field("device") == device
    return _rows(root, TWINS_TABLE, wanted).sort_by("device")


def _rows(root: str, spec: TableSpec, wanted: pc.Expression) -> pa.Table:
    return dataset_of(open_table(root, spec)).to_table(filter=wanted)
