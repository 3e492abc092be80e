"""Meanings and units of columns, for the schemas of the tables themselves. Pure.

A table that is made gets them as each column's `comment` and `unit`, which readers of Delta show. docs/tables.md says more.
"""

from __future__ import annotations

import re

import pyarrow as pa  # type: ignore[import-untyped]

_SERIES = """
device: the vehicle
node: node of the series
type: type of the series
key: key of the series, "" for none
"""
_VERSIONED = """
version: 1, and one more each time the row was restated
restated_at: when this version was computed, UTC
ingest: the last ingest whose points are in it
date: partition: UTC day
"""
_NOTES = {
    "points": f"""
{_SERIES}
lane: lane of the message
epoch: incarnation of the vehicle's ledger
seq: the message's place in its lane
index: the point's place in its message, from 0
letter: how it travelled: f telemetry, p point, e or a event, r command result
time: when it was read, UTC, rounded down
time_ns [ns]: when it was read, since 1970
dtype: 1 float64, 2 int64, 3 uint64, 4 text, 5 bytes, 6 JSON, 7 protobuf, above that opaque
value_f64: of dtype 1, in the unit of the series
value_i64: of dtypes 2 and 3, in the unit of the series; a uint64 as two's complement
value_text: of dtypes 4 and 6
value_bytes: of dtypes 5 and from 7 on
tombstone: odd means deleted
ingest: number of the ingest that brought it
date: partition: UTC day of time
""",
    "rollups": f"""
{_SERIES}{_VERSIONED}
width: partition: 1m, 1h or 1d
window_start: beginning of the window, UTC
count: numbers that are not NaN
min: least of these, in the unit of the series
max: greatest, in the unit of the series
mean: mean, in the unit of the series
sum: sum, in the unit of the series
first: first by time, in the unit of the series
last: last by time, in the unit of the series
nans: NaN values
texts: text values
first_text: first of these
last_text: last of these
first_time_ns [ns]: of the first value of either kind, since 1970
last_time_ns [ns]: of the last value of either kind, since 1970
state: complete, imported, explained or waiting: whether all of it has come
""",
    "certificates": """
device: the vehicle
hour: beginning of the hour, UTC
state: complete, explained, imported, waiting or erased
missing: messages missing without a reason
explained: messages that will not come
certified_at: when this was judged, UTC
date: partition: UTC day
""",
    "trips": f"""
device: the vehicle
{_VERSIONED}
started_at: first fix, UTC
ended_at: last fix, UTC
start_ns [ns]: first fix, since 1970
end_ns [ns]: last fix, since 1970
duration_s [s]: between both
distance_m [m]: the way
idle_s [s]: of the duration, halted on the way or with the engine on meanwhile
energy_wh [Wh]: used on the way
speed_max_mps [m/s]: highest speed
fixes: positions that it was made of
start_lat [deg]: latitude of the start
start_lon [deg]: longitude of the start
end_lat [deg]: latitude of the end
end_lon [deg]: longitude of the end
start_cell: H3 cell of the start
end_cell: H3 cell of the end
""",
    "stops": f"""
device: the vehicle
{_VERSIONED}
started_at: first fix, UTC
ended_at: last fix, UTC
start_ns [ns]: first fix, since 1970
end_ns [ns]: last fix, since 1970
dwell_s [s]: how long it stood
idle_s [s]: how long the engine ran meanwhile
energy_wh [Wh]: used meanwhile
lat [deg]: latitude of the middle
lon [deg]: longitude of the middle
cell: H3 cell of the middle
""",
    "fences": f"""
device: the vehicle
{_VERSIONED}
fence: name of the fence
kind: entered, left or dwelt
at: when, UTC
time_ns [ns]: when, since 1970
inside_s [s]: how long it had been inside
lat [deg]: latitude of the fix
lon [deg]: longitude of the fix
cell: H3 cell of the fix
""",
    "alerts": """
id: unique
device: the vehicle
rule: name of the rule
kind: raised or cleared
severity: info, warning or critical
time_ns [ns]: of the event, since 1970
value: what was measured, in `unit`
limit: its limit, in `unit`
unit: unit of value and limit
text: a sentence for people
""",
    "twins": """
device: the vehicle
last_seen_ns [ns]: when the hub stored its newest message, since 1970
health: 0 (bad) to 1
soc_pct [%]: charge of its battery
soc_rate_pct_h [%/h]: how it changes
at_ns [ns]: when this was taken, since 1970
""",
}


def described(table: str, schema: pa.Schema) -> pa.Schema:
    """Return a table's schema with `comment` and `unit` in the metadata of the columns that have such; `doc` is Iceberg's name for the first."""
    notes = {
        name: (unit, text)
        for name, unit, text in re.findall(
            r"^(\w+)(?: \[(.+?)\])?: (.+)$", _NOTES.get(table, ""), re.MULTILINE
        )
    }
    return pa.schema([_described(field, *notes.get(field.name, ("", ""))) for field in schema])


def _described(field: pa.Field, unit: str, text: str) -> pa.Field:
    if not text:
        return field
    comment = f"{text} ({unit})" if unit else text
    known = {"comment": comment, "doc": comment} | ({"unit": unit} if unit else {})
    return field.with_metadata(known)
