"""The tables under a table root: names, columns, partitions. docs/tables.md explains each column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_spark.columns import columns
from backhaul_spark.decode.points import POINTS

# Raised with every change to a column; a table keeps the number of its columns as a property.
# Columns are only ever added, at the end, so that older tables evolve without a row rewritten:
#   1  the first
#   2  rollups.state, certificates.run, and the tables of what was superseded
#   3  the table said_again
#   4  the chain: coverage.link, coverage.hash, marks.chain, certificates.chain, the tables hashes and forks
SCHEMA_VERSION = 4


# `kind`: raised or cleared; `severity`: info, warning or critical; `time_ns`: of the event; `command`:
# "" for none; `params`: a JSON object.
ALERTS = columns(
    """
    id string not null, device string not null, rule string not null, kind string not null,
    severity string not null, time_ns bigint not null, late boolean not null,
    node string not null, type string not null, key string not null, value double, limit double,
    unit string not null, text string not null, command string not null, params string not null
    """
)
# `last_seen_ns`: when the hub stored the device's newest message; `health`: 0 (bad) to 1; `soc_pct`: null
# where it was never said; `soc_rate_pct_h`: negative while it falls, null where it is not known yet;
# `open_alerts`: a JSON list of rules' names; `statistics`: a JSON object, series to figures; `at_ns`: when
# this was taken.
SNAPSHOTS = columns(
    """
    device string not null, last_seen_ns bigint not null, health double not null, soc_pct double,
    soc_rate_pct_h double, open_alerts string not null, statistics string not null,
    at_ns bigint not null
    """
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its directory under the root, its columns, its partition columns."""

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    description: str


_made: list[TableSpec] = []


def _table(
    name: str, fields: str | Iterable[pa.Field], description: str, by: tuple[str, ...] = ()
) -> TableSpec:
    """Return a table, which is one of TABLES then."""
    schema = columns(fields) if isinstance(fields, str) else pa.schema(fields)
    _made.append(TableSpec(name, schema, by, description))
    return _made[-1]


POINTS_TABLE = _table(
    "points",
    [*POINTS, *columns("ingested_at timestamp, ingest bigint, date date")],
    "every point of every vehicle, once",
    by=("date",),
)

COVERAGE_TABLE = _table(
    "coverage",
    """
    device string, lane string, epoch bigint, lo bigint, hi bigint, points bigint, ingest bigint,
    link bigint, hash bigint
    """,
    "which messages of each lane the points table holds",
)

REJECTS_TABLE = _table(
    "rejects",
    """
    stream string, stream_seq bigint, subject string, code string, reason string, bytes bigint,
    stored_at timestamp, ingested_at timestamp, ingest bigint
    """,
    "messages that could not be read",
)

GAPS_TABLE = _table(
    "source_gaps",
    """
    stream string, lo bigint, hi bigint, code string, reason string, ingested_at timestamp,
    ingest bigint
    """,
    "sequences of the hub's streams that were gone before they were read",
)

RECEIPTS_TABLE = _table(
    "receipts",
    """
    device string, lane string, epoch bigint, lo bigint, hi bigint, reason string, ingest bigint
    """,
    "sequences that a vehicle says will never come, and why",
)

MARKS_TABLE = _table(
    "marks",
    """
    device string, epoch bigint, seq bigint, time_ns bigint, lanes string, why string,
    ingest bigint, chain string
    """,
    "how far each lane of a vehicle was at a time, by its own word",
)

ENDED_TABLE = _table(
    "ended_epochs",
    """
    device string, old bigint, new bigint, time_ns bigint, lanes string, why string, ingest bigint
    """,
    "ledgers whose place another one took",
)

SAID_AGAIN_TABLE = _table(
    "said_again",
    """
    device string, time_ns bigint, stream string, stream_seq bigint, index int, digest string,
    ingest bigint
    """,
    "readings that points has because they were said again; their first had not come",
)

HASHES_TABLE = _table(
    "hashes",
    """
    device string, lane string, epoch bigint, lo bigint, hi bigint, hashes binary, link bigint,
    ingest bigint, came string, date date
    """,
    "the hash of each message that came, in its lane's chain",
    # Who compares looks at what came again, and then at the newest days first.
    by=("came", "date"),
)

FORKS_TABLE = _table(
    "forks",
    "device string, lane string, epoch bigint, seq bigint, ingest bigint",
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

# Completeness reports: the table and `certified_at` keep the names that readers of the tables know.
HOUR_REPORTS_TABLE = _table(
    "certificates",
    """
    device string, hour timestamp, state string, missing bigint, missing_ranges string,
    explained bigint, explained_ranges string, epochs string, why string, version bigint,
    certified_at timestamp, ingest bigint, date date, run bigint, chain string
    """,
    "whether all that a vehicle acknowledged in an hour is in points",
    by=("date",),
)

ROLLUPS_TABLE = _table(
    "rollups",
    """
    device string, node string, type string, key string, window_start timestamp, count bigint,
    min double, max double, mean double, sum double, first double, last double, nans bigint,
    texts bigint, first_text string, last_text string, first_time_ns bigint, last_time_ns bigint,
    version bigint, restated_at timestamp, ingest bigint, width string, date date, state string
    """,
    "one row a series and window of a minute (1m), an hour (1h) or a day (1d)",
    # All widths in one table: a rollup becomes visible in one commit, and no crash can leave the
    # minutes ahead of the hours.
    by=("width", "date"),
)

ALERTS_TABLE = _table(
    "alerts",
    [*ALERTS, *columns("batch bigint, written_at timestamp, date date")],
    "every alert of the twin job, once; by the day that it is about",
    by=("date",),
)

TWINS_TABLE = _table("twins", SNAPSHOTS, "the newest that the twin job knows of each device")

ANOMALIES_TABLE = _table(
    "anomalies",
    """
    id string, hour int, rank int, kind string, device string, model string, firmware string,
    node string, type string, key string, score double, value double, expected double, peers bigint,
    cohort string, hours int, hours_seen int, hours_complete int, hours_explained int,
    hours_waiting int, also string, text string, state string, version bigint,
    computed_at timestamp, ingest bigint, date date
    """,
    "what stands out in the fleet, by day and by hour, ranked",
    by=("date",),
)

FLEET_DAYS_TABLE = _table(
    "fleet_days",
    """
    model string, firmware string, node string, type string, key string, devices bigint,
    silent bigint, points bigint, hours bigint, hours_seen bigint, hours_complete bigint,
    hours_explained bigint, hours_waiting bigint, median double, mad double, fall_median double,
    fall_mad double, anomalies bigint, version bigint, computed_at timestamp, ingest bigint,
    date date
    """,
    "one row a day, model and firmware, and one more for each of their signals",
)

# Beside anomalies, and not in it: whoever reads anomalies takes each row for something that stands out.
UNJUDGED_TABLE = _table(
    "unjudged",
    """
    hour int, reason string, device string, node string, type string, key string, devices bigint,
    text string, version bigint, computed_at timestamp, ingest bigint, date date
    """,
    "what was not judged of a day or an hour, and why",
    by=("date",),
)

# Of a row of the next three: `closed` is the hour (since 1970) whose readings made it certain, null while later
# readings may change it; `date`: of its beginning.
TRIPS_TABLE = _table(
    "trips",
    """
    device string, started_at timestamp, ended_at timestamp, start_ns bigint, end_ns bigint,
    duration_s double, distance_m double, idle_s double, energy_wh double, speed_max_mps double,
    fixes bigint, start_lat double, start_lon double, end_lat double, end_lon double,
    start_cell string, end_cell string, began string, ended string, closed bigint, version bigint,
    restated_at timestamp, ingest bigint, date date
    """,
    "each way of a vehicle from one stop to the next",
    by=("date",),
)

STOPS_TABLE = _table(
    "stops",
    """
    device string, started_at timestamp, ended_at timestamp, start_ns bigint, end_ns bigint,
    dwell_s double, idle_s double, energy_wh double, fixes bigint, lat double, lon double,
    cell string, ended string, closed bigint, version bigint, restated_at timestamp, ingest bigint,
    date date
    """,
    "where and how long each vehicle stood",
    by=("date",),
)

FENCES_TABLE = _table(
    "fences",
    """
    device string, fence string, kind string, at timestamp, time_ns bigint, before_ns bigint,
    inside_s double, lat double, lon double, cell string, closed bigint, version bigint,
    restated_at timestamp, ingest bigint, date date
    """,
    "vehicles that entered a fence, left it, or dwelt in it",
    by=("date",),
)

PLACE_STATES_TABLE = _table(
    "place_states",
    "device string, hour bigint, state string, ingest bigint, date date",
    "what is known of a vehicle's place after each hour with readings of it, to go on from there",
    by=("date",),
)

ERASURES_TABLE = _table(
    "erasures",
    "device string, asked_at timestamp, done_at timestamp, rows bigint",
    "vehicles of which nothing is kept in any table, on request",
)


# By the day they were superseded on: retention drops whole days, and a question about what was known at a time
# reads from that day on.
_SUPERSEDED = {
    spec.name: _table(
        f"{spec.name}_superseded",
        [
            *spec.schema,
            *columns("superseded_at timestamp, superseded_by bigint, superseded_on date"),
        ],
        f"rows of {spec.name} as they were before newer versions took their place",
        by=("superseded_on",),
    )
    for spec in (ROLLUPS_TABLE, HOUR_REPORTS_TABLE, TRIPS_TABLE, STOPS_TABLE, FENCES_TABLE)
}
SUPERSEDED = tuple(_SUPERSEDED.values())
TABLES = tuple(_made)


def superseded_of(spec: TableSpec) -> TableSpec:
    """Return the table of former rows of a table whose rows have versions."""
    return _SUPERSEDED[spec.name]
