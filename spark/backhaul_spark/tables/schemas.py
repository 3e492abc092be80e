"""The tables under a table root: names, columns, partitions. docs/tables.md explains each column."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_spark.decode.points import POINTS
from backhaul_spark.nats.messages import STAMP

# Raised with every change to a column; a table keeps the number of its columns as a property.
# Columns are only ever added, at the end, so that older tables evolve without a row rewritten:
#   1  the first
#   2  rollups.state, certificates.run, and the tables of what was superseded
#   3  the table said_again
#   4  the chain: coverage.link, coverage.hash, marks.chain, certificates.chain, the tables hashes and forks
SCHEMA_VERSION = 4


ALERTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("device", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # raised | cleared
        pa.field("severity", pa.string(), nullable=False),  # info | warning | critical
        pa.field("time_ns", pa.int64(), nullable=False),  # event time
        pa.field("late", pa.bool_(), nullable=False),
        pa.field("node", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("limit", pa.float64()),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("command", pa.string(), nullable=False),  # "" for none
        pa.field("params", pa.string(), nullable=False),  # JSON object; "{}" for none
    ]
)
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


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its directory under the root, its columns, its partition columns."""

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    description: str


def _fields(*pairs: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in pairs])


POINTS_TABLE = TableSpec(
    "points",
    pa.schema(
        [
            *POINTS,
            pa.field("ingested_at", STAMP),
            pa.field("ingest", pa.int64()),
            pa.field("date", pa.date32()),
        ]
    ),
    ("date",),
    "every point of every vehicle, once",
)

COVERAGE_TABLE = TableSpec(
    "coverage",
    _fields(
        ("device", pa.string()),
        ("lane", pa.string()),
        ("epoch", pa.int64()),
        ("lo", pa.int64()),
        ("hi", pa.int64()),
        ("points", pa.int64()),
        ("ingest", pa.int64()),
        ("link", pa.int64()),
        ("hash", pa.int64()),
    ),
    (),
    "which messages of each lane the points table holds",
)

REJECTS_TABLE = TableSpec(
    "rejects",
    _fields(
        ("stream", pa.string()),
        ("stream_seq", pa.int64()),
        ("subject", pa.string()),
        ("code", pa.string()),
        ("reason", pa.string()),
        ("bytes", pa.int64()),
        ("stored_at", STAMP),
        ("ingested_at", STAMP),
        ("ingest", pa.int64()),
    ),
    (),
    "messages that could not be read",
)

GAPS_TABLE = TableSpec(
    "source_gaps",
    _fields(
        ("stream", pa.string()),
        ("lo", pa.int64()),
        ("hi", pa.int64()),
        ("code", pa.string()),
        ("reason", pa.string()),
        ("ingested_at", STAMP),
        ("ingest", pa.int64()),
    ),
    (),
    "sequences of the hub's streams that were gone before they were read",
)

RECEIPTS_TABLE = TableSpec(
    "receipts",
    _fields(
        ("device", pa.string()),
        ("lane", pa.string()),
        ("epoch", pa.int64()),
        ("lo", pa.int64()),
        ("hi", pa.int64()),
        ("reason", pa.string()),
        ("ingest", pa.int64()),
    ),
    (),
    "sequences that a vehicle says will never come, and why",
)

MARKS_TABLE = TableSpec(
    "marks",
    _fields(
        ("device", pa.string()),
        ("epoch", pa.int64()),
        ("seq", pa.int64()),
        ("time_ns", pa.int64()),
        ("lanes", pa.string()),
        ("why", pa.string()),
        ("ingest", pa.int64()),
        ("chain", pa.string()),
    ),
    (),
    "how far each lane of a vehicle was at a time, by its own word",
)

ENDED_TABLE = TableSpec(
    "ended_epochs",
    _fields(
        ("device", pa.string()),
        ("old", pa.int64()),
        ("new", pa.int64()),
        ("time_ns", pa.int64()),
        ("lanes", pa.string()),
        ("why", pa.string()),
        ("ingest", pa.int64()),
    ),
    (),
    "ledgers whose place another one took",
)

SAID_AGAIN_TABLE = TableSpec(
    "said_again",
    _fields(
        ("device", pa.string()),
        ("time_ns", pa.int64()),
        ("stream", pa.string()),
        ("stream_seq", pa.int64()),
        ("index", pa.int32()),
        ("digest", pa.string()),
        ("ingest", pa.int64()),
    ),
    (),
    "readings that points has because they were said again; their first had not come",
)

HASHES_TABLE = TableSpec(
    "hashes",
    _fields(
        ("device", pa.string()),
        ("lane", pa.string()),
        ("epoch", pa.int64()),
        ("lo", pa.int64()),
        ("hi", pa.int64()),
        ("hashes", pa.binary()),
        ("link", pa.int64()),
        ("ingest", pa.int64()),
        ("came", pa.string()),
        ("date", pa.date32()),
    ),
    # Who compares looks at what came again, and then at the newest days first.
    ("came", "date"),
    "the hash of each message that came, in its lane's chain",
)

FORKS_TABLE = TableSpec(
    "forks",
    _fields(
        ("device", pa.string()),
        ("lane", pa.string()),
        ("epoch", pa.int64()),
        ("seq", pa.int64()),
        ("ingest", pa.int64()),
    ),
    (),
    "messages that came with two contents, or that their vehicle says are others",
)

INGEST_TABLES = (
    POINTS_TABLE,
    COVERAGE_TABLE,
    REJECTS_TABLE,
    GAPS_TABLE,
    RECEIPTS_TABLE,
    MARKS_TABLE,
    ENDED_TABLE,
    SAID_AGAIN_TABLE,
    HASHES_TABLE,
)

CERTIFICATES_TABLE = TableSpec(
    "certificates",
    _fields(
        ("device", pa.string()),
        ("hour", STAMP),
        ("state", pa.string()),
        ("missing", pa.int64()),
        ("missing_ranges", pa.string()),
        ("explained", pa.int64()),
        ("explained_ranges", pa.string()),
        ("epochs", pa.string()),
        ("why", pa.string()),
        ("version", pa.int64()),
        ("certified_at", STAMP),
        ("ingest", pa.int64()),
        ("date", pa.date32()),
        ("run", pa.int64()),
        ("chain", pa.string()),
    ),
    ("date",),
    "whether all that a vehicle acknowledged in an hour is in points",
)

ROLLUPS_TABLE = TableSpec(
    "rollups",
    _fields(
        ("device", pa.string()),
        ("node", pa.string()),
        ("type", pa.string()),
        ("key", pa.string()),
        ("window_start", STAMP),
        ("count", pa.int64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("mean", pa.float64()),
        ("sum", pa.float64()),
        ("first", pa.float64()),
        ("last", pa.float64()),
        ("nans", pa.int64()),
        ("texts", pa.int64()),
        ("first_text", pa.string()),
        ("last_text", pa.string()),
        ("first_time_ns", pa.int64()),
        ("last_time_ns", pa.int64()),
        ("version", pa.int64()),
        ("restated_at", STAMP),
        ("ingest", pa.int64()),
        ("width", pa.string()),
        ("date", pa.date32()),
        ("state", pa.string()),
    ),
    # All widths in one table: a rollup becomes visible in one commit, and no crash can leave the
    # minutes ahead of the hours.
    ("width", "date"),
    "one row a series and window of a minute (1m), an hour (1h) or a day (1d)",
)

ALERTS_TABLE = TableSpec(
    "alerts",
    pa.schema(
        [
            *ALERTS,
            pa.field("batch", pa.int64()),
            pa.field("written_at", STAMP),
            pa.field("date", pa.date32()),
        ]
    ),
    ("date",),
    "every alert of the twin job, once; by the day that it is about",
)

TWINS_TABLE = TableSpec("twins", SNAPSHOTS, (), "the newest that the twin job knows of each device")

ANOMALIES_TABLE = TableSpec(
    "anomalies",
    _fields(
        ("id", pa.string()),
        ("hour", pa.int32()),
        ("rank", pa.int32()),
        ("kind", pa.string()),
        ("device", pa.string()),
        ("model", pa.string()),
        ("firmware", pa.string()),
        ("node", pa.string()),
        ("type", pa.string()),
        ("key", pa.string()),
        ("score", pa.float64()),
        ("value", pa.float64()),
        ("expected", pa.float64()),
        ("peers", pa.int64()),
        ("cohort", pa.string()),
        ("hours", pa.int32()),
        ("hours_seen", pa.int32()),
        ("hours_complete", pa.int32()),
        ("hours_explained", pa.int32()),
        ("hours_waiting", pa.int32()),
        ("also", pa.string()),
        ("text", pa.string()),
        ("state", pa.string()),
        ("version", pa.int64()),
        ("computed_at", STAMP),
        ("ingest", pa.int64()),
        ("date", pa.date32()),
    ),
    ("date",),
    "what stands out in the fleet, by day and by hour, ranked",
)

FLEET_DAYS_TABLE = TableSpec(
    "fleet_days",
    _fields(
        ("model", pa.string()),
        ("firmware", pa.string()),
        ("node", pa.string()),
        ("type", pa.string()),
        ("key", pa.string()),
        ("devices", pa.int64()),
        ("silent", pa.int64()),
        ("points", pa.int64()),
        ("hours", pa.int64()),
        ("hours_seen", pa.int64()),
        ("hours_complete", pa.int64()),
        ("hours_explained", pa.int64()),
        ("hours_waiting", pa.int64()),
        ("median", pa.float64()),
        ("mad", pa.float64()),
        ("fall_median", pa.float64()),
        ("fall_mad", pa.float64()),
        ("anomalies", pa.int64()),
        ("version", pa.int64()),
        ("computed_at", STAMP),
        ("ingest", pa.int64()),
        ("date", pa.date32()),
    ),
    (),
    "one row a day, model and firmware, and one more for each of their signals",
)


def _superseded(spec: TableSpec) -> TableSpec:
    more = _fields(
        ("superseded_at", STAMP), ("superseded_by", pa.int64()), ("superseded_on", pa.date32())
    )
    return TableSpec(
        f"{spec.name}_superseded",
        pa.schema([*spec.schema, *more]),
        # By the day they were superseded on: retention drops whole days, and a question about what
        # was known at a time reads from that day on.
        ("superseded_on",),
        f"rows of {spec.name} as they were before newer versions took their place",
    )


ROLLUPS_SUPERSEDED = _superseded(ROLLUPS_TABLE)
CERTIFICATES_SUPERSEDED = _superseded(CERTIFICATES_TABLE)

TABLES = (
    *INGEST_TABLES,
    ROLLUPS_TABLE,
    ROLLUPS_SUPERSEDED,
    CERTIFICATES_TABLE,
    CERTIFICATES_SUPERSEDED,
    FORKS_TABLE,
    ANOMALIES_TABLE,
    FLEET_DAYS_TABLE,
    ALERTS_TABLE,
    TWINS_TABLE,
)
