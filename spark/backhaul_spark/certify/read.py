"""Read certificates back, as they are or as they were known at a time. No Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.assurance.certificates import Certificate, Ends, Missing, Reasoned
from backhaul_spark.certify.states import RUN_APP
from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.schemas import CERTIFICATES_SUPERSEDED, CERTIFICATES_TABLE
from backhaul_spark.tables.superseded import rows_known_at

if TYPE_CHECKING:
    from datetime import datetime


def certificates_known_at(
    root: str, at: datetime | None, wanted: pc.Expression | None = None
) -> pa.Table:
    """Return the certificates as they are, or as a reader at time `at` would have found them.

    Args:
        root: the table root.
        at: with its time zone; None for now.
        wanted: a filter on their columns.

    Raises:
        TableMissing: nothing was ever certified.
        NotKept: superseded ones are kept since a later time only.
    """
    if at is None:
        table = open_table(root, CERTIFICATES_TABLE)
        return dataset_of(table, CERTIFICATES_TABLE).to_table(filter=wanted)
    specs = CERTIFICATES_TABLE, CERTIFICATES_SUPERSEDED
    return rows_known_at(root, specs, RUN_APP, "certified_at", at, wanted)


def certified_hours(root: str, device: str | None = None) -> list[tuple[str, Certificate]]:
    """Return (device, certificate) of all devices or one, by device and hour.

    Raises:
        TableMissing: nothing was ever certified.
    """
    wanted = pc.field("device") == device if device is not None else None
    rows = certificates_known_at(root, None, wanted)
    rows = rows.sort_by([("device", "ascending"), ("hour", "ascending")])
    rows = rows.set_column(1, "hour", rows.column("hour").cast(pa.int64()))
    return [(row["device"], _certificate(row)) for row in rows.to_pylist()]


def _certificate(row: dict[str, Any]) -> Certificate:
    explained = json.loads(row["explained_ranges"])
    return Certificate(
        row["hour"] * 1000,
        row["state"],
        tuple(json.loads(row["epochs"])),
        tuple(Missing(*each) for each in json.loads(row["missing_ranges"])),
        tuple(
            Reasoned(lane, epoch, low, high or 0, why) for lane, epoch, low, high, why in explained
        ),
        row["why"],
        tuple(Ends(*each) for each in json.loads(row["chain"] or "[]")),
    )
