"""What must be in tables and streams after a storm of kills, worked out from UP, and what is there.

UP is read with nats-py and the tables with delta-rs, past the jobs that wrote them. Of alerts, silence is
worked out here from when messages were stored; what the other rules say of an uninterrupted fleet
comes from `recompute-alerts`. Each check returns complaints, none where all is right.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_codec import decode
from backhaul_codec.subjects import parse_uplink
from backhaul_spark.rollup.files import KEYS
from tests.support.restatement import same_from_scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from backhaul_hub.nats.stream_reader import Stored

_MINUTE_NS = 60_000_000_000
_SECOND_NS = 1_000_000_000
# Words of the housekeeping between vehicle and hub are no points (wire-format.md).
_MARK = "mark"
_PLACE = ("device", "lane", "epoch", "seq", "index")
_SHOWN = 5

Kind = Literal["lost", "doubled", "wrong"]
Place = tuple[str, str, int, int, int]


class Complaint(NamedTuple):
    """What is not as it should be, how often, and some of it in words."""

    kind: Kind
    number: int
    text: str


class Reading(NamedTuple):
    """One point, by which it is known again in the table."""

    node: str
    type: str
    key: str
    time_ns: int
    value: float | str


def readings_of(messages: Iterable[Stored]) -> dict[Place, Reading]:
    """Return every point of UP by its place; a repeated message says nothing new."""
    found: dict[Place, Reading] = {}
    for each in messages:
        at = parse_uplink(each.subject)
        if at.letter == "e" and at.type == _MARK:
            continue
        said = decode(each.body, node=at.node, type=at.type, key=at.key)
        for index, point in enumerate(said.points):
            place = (at.device, at.lane, said.epoch, said.seq, index)
            assert isinstance(point.value, float | str), point  # all that is simulated
            found[place] = Reading(point.node, point.type, point.key, point.time, point.value)
    return found


def check_points(root: Path, readings: dict[Place, Reading]) -> list[Complaint]:
    """Complain unless the table has every reading, once, with its value, and no other."""
    said = ["node", "type", "key", "time_ns"]
    columns = [*_PLACE, *said, "value_f64", "value_text"]
    rows = DeltaTable(str(root / "points")).to_pyarrow_table(columns=columns).to_pylist()
    places = Counter(tuple(row[name] for name in _PLACE) for row in rows)
    there = {
        tuple(row[name] for name in _PLACE): (
            *(row[name] for name in said),
            row["value_text"] if row["value_f64"] is None else row["value_f64"],
        )
        for row in rows
    }
    wrong = [
        place for place, reading in readings.items() if there.get(place) not in (None, reading)
    ]
    return [
        *_complaint("lost", "points missing", readings.keys() - there.keys()),
        *_complaint("doubled", "points that nobody sent", there.keys() - readings.keys()),
        *_complaint("doubled", "points doubled", _doubled(places)),
        *_complaint("wrong", "points with another value", wrong),
    ]


def check_rollups(root: Path, anew: Path, readings: dict[Place, Reading]) -> list[Complaint]:
    """Complain unless each window is there once, says what its points say, and has all its versions."""
    rows = DeltaTable(str(root / "rollups")).to_pyarrow_table()
    former = DeltaTable(str(root / "rollups_superseded")).to_pyarrow_table()
    complaints = []
    try:
        same_from_scratch(anew, root)
    except Exception as error:  # noqa: BLE001 - whatever it is belongs among the complaints
        complaints.append(Complaint("wrong", 1, f"rollups: {error}"))
    keys = _keys(rows)
    versions: dict[Any, list[int]] = defaultdict(list)
    for key, version in zip(_keys(former), former.column("version").to_pylist(), strict=True):
        versions[key].append(version)
    broken = [
        key
        for key, version in zip(keys, rows.column("version").to_pylist(), strict=True)
        if sorted(versions[key]) != list(range(1, version))
    ]
    return [
        *complaints,
        *_complaint("doubled", "windows doubled", _doubled(Counter(keys))),
        *_complaint("wrong", "windows whose versions are not 1, 2, .. once each", broken),
        *_complaint("doubled", "former versions of no window", versions.keys() - set(keys)),
        *_complaint("wrong", "minutes that are not their points", _wrong_minutes(rows, readings)),
    ]


def _wrong_minutes(rows: pa.Table, readings: dict[Place, Reading]) -> list[Any]:
    """Compare each minute's count, least, greatest and sum with those of the readings."""
    values: dict[Any, list[float]] = defaultdict(list)
    for place, said in readings.items():
        if isinstance(said.value, float):
            series = (place[0], said.node, said.type, said.key)
            values[*series, said.time_ns // _MINUTE_NS].append(said.value)
    minutes = rows.filter((pc.field("width") == "1m") & (pc.field("count") > 0))
    start = minutes.column("window_start").cast(pa.int64()).to_numpy() * 1000 // _MINUTE_NS
    names = ["device", "node", "type", "key", "count", "min", "max", "sum"]
    found = {
        (*row[:4], minute): row[4:]
        for minute, *row in zip(
            start.tolist(), *(minutes.column(name).to_pylist() for name in names), strict=True
        )
    }
    wrong = [
        key
        for key, (count, least, greatest, total) in found.items()
        if (count, least, greatest)
        != (len(v := values.get(key, [])), min(v, default=0), max(v, default=0))
        or not math.isclose(total, math.fsum(v), rel_tol=1e-9)
    ]
    return [*wrong, *(values.keys() - found.keys())]


def silences(messages: Iterable[Stored], after_s: float, end_ns: int) -> set[str]:
    """Return the ids of alerts of silence, from when each device's messages were stored.

    Args:
        messages: all of UP.
        after_s: as twin.toml says.
        end_ns: when silence was last looked for.
    """
    stored: dict[str, list[int]] = defaultdict(list)
    for each in messages:
        stored[each.subject.split(".")[1]].append(each.stored_ns // 1000 * 1000)
    found = set()
    after_ns = int(after_s * _SECOND_NS)
    for device, times in stored.items():
        times.sort()
        for before, after in zip(times, [*times[1:], end_ns], strict=True):
            if after - before > after_ns:
                found.add(f"{device}:silence:raised:{before + after_ns}")
                if after != end_ns:
                    found.add(f"{device}:silence:cleared:{after}")
    return found


class Told(NamedTuple):
    """An alert as the hub stored it."""

    stored_ns: int
    alert: dict[str, Any]


def check_alerts(events: Sequence[Told], table: pa.Table, expected: set[str]) -> list[Complaint]:
    """Complain unless the hub's stream and the table have each expected alert once, and no other."""
    said = {told.alert["id"]: told.alert for told in events}
    rows = {row["id"]: row for row in table.to_pylist()}
    compared = ("rule", "kind", "late", "value", "limit", "unit")
    other = [
        id_
        for id_ in said.keys() & rows.keys()
        if any(said[id_][name] != rows[id_][name] for name in compared)
        or said[id_]["time"] != rows[id_]["time_ns"]
        or said[id_].get("command", {}).get("name", "") != rows[id_]["command"]
    ]
    return [
        *_complaint("lost", "alerts missing in TWIN_EVENTS", expected - said.keys()),
        *_complaint("doubled", "alerts in TWIN_EVENTS that should not be", said.keys() - expected),
        *_complaint(
            "doubled",
            "alerts twice in TWIN_EVENTS",
            _doubled(Counter(t.alert["id"] for t in events)),
        ),
        *_complaint("lost", "alerts missing in the table", expected - rows.keys()),
        *_complaint("doubled", "alerts in the table that should not be", rows.keys() - expected),
        *_complaint(
            "doubled", "alerts twice in the table", _doubled(Counter(table["id"].to_pylist()))
        ),
        *_complaint("wrong", "alerts that stream and table tell differently", other),
    ]


def check_commands(
    events: Sequence[Told], bodies: Sequence[bytes], late_after_s: float
) -> list[Complaint]:
    """Complain unless each alert of heat that came in time has its command once, and nothing else has.

    Args:
        events: all alerts.
        bodies: of all messages that were ever in TWIN_CMD.
        late_after_s: as twin.toml says. One that was older when it was told has none.
    """
    asked = {_digest(t.alert["id"]): t.alert for t in events if "command" in t.alert}
    commands = [json.loads(body) for body in bodies]
    found = {each["id"]: each for each in commands}
    lacking = [
        told.alert["id"]
        for told in events
        if told.alert["rule"] == "temperature"
        and told.alert["kind"] == "raised"
        and "command" not in told.alert
        and told.stored_ns - told.alert["time"] <= late_after_s * _SECOND_NS
    ]
    wrong = [
        id_
        for id_ in found.keys() & asked.keys()
        if found[id_]["params"] != {"target_c": asked[id_]["limit"] - 5}
    ]
    return [
        *_complaint("lost", "alerts in time without a command", lacking),
        *_complaint("lost", "commands missing in TWIN_CMD", asked.keys() - found.keys()),
        *_complaint("doubled", "commands that no alert asks for", found.keys() - asked.keys()),
        *_complaint(
            "doubled",
            "commands twice in TWIN_CMD",
            _doubled(Counter(each["id"] for each in commands)),
        ),
        *_complaint("wrong", "commands with another target", wrong),
    ]


def _digest(alert_id: str) -> str:
    return hashlib.sha256(alert_id.encode()).hexdigest()[:32]


def _keys(rows: pa.Table) -> list[Any]:
    return list(zip(*(rows.column(name).to_pylist() for name in KEYS), strict=True))


def _doubled(counts: Counter[Any]) -> list[Any]:
    return [key for key, count in counts.items() if count > 1]


def _complaint(kind: Kind, what: str, which: Iterable[Any]) -> list[Complaint]:
    listed = sorted(which, key=str)
    shown = ", ".join(map(str, listed[:_SHOWN]))
    return [Complaint(kind, len(listed), f"{len(listed):,} {what}: {shown}")] if listed else []
