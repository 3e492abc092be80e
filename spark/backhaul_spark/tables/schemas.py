"""The tables under a table root: names, columns, partitions. docs/tables.md explains each column."""

from __future__ import annotations

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


POINTS_TABLE = TableSpec(
    "points",
    pa.schema([*POINTS, *columns("ingested_at timestamp, ingest bigint, date date")]),
    ("date",),
    "every point of every vehicle, once",
)

COVERAGE_TABLE = TableSpec(
    "coverage",
    columns(
        """
        device string, lane string, epoch bigint, lo bigint, hi bigint, points bigint,
        ingest bigint, link bigint, hash bigint
        """
    ),
    (),
    "which messages of each lane the points table holds",
)

REJECTS_TABLE = TableSpec(
    "rejects",
    columns(
        """
        stream string, stream_seq bigint, subject string, code string, reason string,
        bytes bigint, stored_at timestamp, ingested_at timestamp, ingest bigint
        """
    ),
    (),
    "messages that could not be read",
)

GAPS_TABLE = TableSpec(
    "source_gaps",
    columns(
        """
        stream string, lo bigint, hi bigint, code string, reason string, ingested_at timestamp,
        ingest bigint
        """
    ),
    (),
    "sequences of the hub's streams that were gone before they were read",
)

RECEIPTS_TABLE = TableSpec(
    "receipts",
    columns(
        """
        device string, lane string, epoch bigint, lo bigint, hi bigint, reason string,
        ingest bigint
        """
    ),
    (),
    "sequences that a vehicle says will never come, and why",
)

MARKS_TABLE = TableSpec(
    "marks",
    columns(
        """
        device string, epoch bigint, seq bigint, time_ns bigint, lanes string, why string,
        ingest bigint, chain string
        """
    ),
    (),
    "how far each lane of a vehicle was at a time, by its own word",
)

ENDED_TABLE = TableSpec(
    "ended_epochs",
    columns(
        """
        device string, old bigint, new bigint, time_ns bigint, lanes string, why string,
        ingest bigint
        """
    ),
    (),
    "ledgers whose place another one took",
)

SAID_AGAIN_TABLE = TableSpec(
    "said_again",
    columns(
        """
        device string, time_ns bigint, stream string, stream_seq bigint, index int, digest string,
        ingest bigint
        """
    ),
    (),
    "readings that points has because they were said again; their first had not come",
)

HASHES_TABLE = TableSpec(
    "hashes",
    columns(
        """
        device string, lane string, epoch bigint, lo bigint, hi bigint, hashes binary,
        link bigint, ingest bigint, came string, date date
        """
    ),
    # Who compares looks at what came again, and then at the newest days first.
    ("came", "date"),
    "the hash of each message that came, in its lane's chain",
)

FORKS_TABLE = TableSpec(
    "forks",
    columns(
        """
        device string, lane string, epoch bigint, seq bigint, ingest bigint
        """
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

# Completeness reports: the table and `certified_at` keep the names that readers of the tables know.
HOUR_REPORTS_TABLE = TableSpec(
    "certificates",
    columns(
        """
        device string, hour timestamp, state string, missing bigint, missing_ranges string,
        explained bigint, explained_ranges string, epochs string, why string, version bigint,
        certified_at timestamp, ingest bigint, date date, run bigint, chain string
        """
    ),
    ("date",),
    "whether all that a vehicle acknowledged in an hour is in points",
)

ROLLUPS_TABLE = TableSpec(
    "rollups",
    columns(
        """
        device string, node string, type string, key string, window_start timestamp, count bigint,
        min double, max double, mean double, sum double, first double, last double, nans bigint,
        texts bigint, first_text string, last_text string, first_time_ns bigint,
        last_time_ns bigint, version bigint, restated_at timestamp, ingest bigint, width string,
        date date, state string
        """
    ),
    # All widths in one table: a rollup becomes visible in one commit, and no crash can leave the
    # minutes ahead of the hours.
    ("width", "date"),
    "one row a series and window of a minute (1m), an hour (1h) or a day (1d)",
)

ALERTS_TABLE = TableSpec(
    "alerts",
    pa.schema([*ALERTS, *columns("batch bigint, written_at timestamp, date date")]),
    ("date",),
    "every alert of the twin job, once; by the day that it is about",
)

TWINS_TABLE = TableSpec("twins", SNAPSHOTS, (), "the newest that the twin job knows of each device")

ANOMALIES_TABLE = TableSpec(
    "anomalies",
    columns(
        """
        id string, hour int, rank int, kind string, device string, model string, firmware string,
        node string, type string, key string, score double, value double, expected double,
        peers bigint, cohort string, hours int, hours_seen int, hours_complete int,
        hours_explained int, hours_waiting int, also string, text string, state string,
        version bigint, computed_at timestamp, ingest bigint, date date
        """
    ),
    ("date",),
    "what stands out in the fleet, by day and by hour, ranked",
)

FLEET_DAYS_TABLE = TableSpec(
    "fleet_days",
    columns(
        """
        model string, firmware string, node string, type string, key string, devices bigint,
        silent bigint, points bigint, hours bigint, hours_seen bigint, hours_complete bigint,
        hours_explained bigint, hours_waiting bigint, median double, mad double,
        fall_median double, fall_mad double, anomalies bigint, version bigint,
        computed_at timestamp, ingest bigint, date date
        """
    ),
    (),
    "one row a day, model and firmware, and one more for each of their signals",
)

# Beside anomalies, and not in it: whoever reads anomalies takes each row for something that stands out.
UNJUDGED_TABLE = TableSpec(
    "unjudged",
    columns(
        """
        hour int, reason string, device string, node string, type string, key string,
        devices bigint, text string, version bigint, computed_at timestamp, ingest bigint, date date
        """
    ),
    ("date",),
    "what was not judged of a day or an hour, and why",
)

# Of a row of the next three: `closed` is the hour (since 1970) whose readings made it certain, null while later
# readings may change it; `date`: of its beginning.
TRIPS_TABLE = TableSpec(
    "trips",
    columns(
        """
        device string, started_at timestamp, ended_at timestamp, start_ns bigint, end_ns bigint,
        duration_s double, distance_m double, idle_s double, energy_wh double,
        speed_max_mps double, fixes bigint, start_lat double, start_lon double, end_lat double,
        end_lon double, start_cell string, end_cell string, began string, ended string,
        closed bigint, version bigint, restated_at timestamp, ingest bigint, date date
        """
    ),
    ("date",),
    "each way of a vehicle from one stop to the next",
)

STOPS_TABLE = TableSpec(
    "stops",
    columns(
        """
        device string, started_at timestamp, ended_at timestamp, start_ns bigint, end_ns bigint,
        dwell_s double, idle_s double, energy_wh double, fixes bigint, lat double, lon double,
        cell string, ended string, closed bigint, version bigint, restated_at timestamp,
        ingest bigint, date date
        """
    ),
    ("date",),
    "where and how long each vehicle stood",
)

FENCES_TABLE = TableSpec(
    "fences",
    columns(
        """
        device string, fence string, kind string, at timestamp, time_ns bigint, before_ns bigint,
        inside_s double, lat double, lon double, cell string, closed bigint, version bigint,
        restated_at timestamp, ingest bigint, date date
        """
    ),
    ("date",),
    "vehicles that entered a fence, left it, or dwelt in it",
)

PLACE_STATES_TABLE = TableSpec(
    "place_states",
    columns("device string, hour bigint, state string, ingest bigint, date date"),
    ("date",),
    "what is known of a vehicle's place after each hour with readings of it, to go on from there",
)

ERASURES_TABLE = TableSpec(
    "erasures",
    columns(
        """
        device string, asked_at timestamp, done_at timestamp, rows bigint
        """
    ),
    (),
    "vehicles of which nothing is kept in any table, on request",
)


def _superseded(spec: TableSpec) -> TableSpec:
    more = columns(
        """
        superseded_at timestamp, superseded_by bigint, superseded_on date
        """
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
HOUR_REPORTS_SUPERSEDED = _superseded(HOUR_REPORTS_TABLE)
TRIPS_SUPERSEDED = _superseded(TRIPS_TABLE)
STOPS_SUPERSEDED = _superseded(STOPS_TABLE)
FENCES_SUPERSEDED = _superseded(FENCES_TABLE)

TABLES = (
    *INGEST_TABLES,
    ROLLUPS_TABLE,
    ROLLUPS_SUPERSEDED,
    HOUR_REPORTS_TABLE,
    HOUR_REPORTS_SUPERSEDED,
    FORKS_TABLE,
    ANOMALIES_TABLE,
    UNJUDGED_TABLE,
    FLEET_DAYS_TABLE,
    ALERTS_TABLE,
    TWINS_TABLE,
    TRIPS_TABLE,
    TRIPS_SUPERSEDED,
    STOPS_TABLE,
    STOPS_SUPERSEDED,
    FENCES_TABLE,
    FENCES_SUPERSEDED,
    PLACE_STATES_TABLE,
    ERASURES_TABLE,
)
