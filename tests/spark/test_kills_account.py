"""The account of `python -m benchmarks kills` complains where something is lost, doubled or wrong."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

from backhaul_codec import Point, encode_frame
from backhaul_hub.nats.stream_reader import Stored
from tests.support.kills_account import (
    Told,
    check_alerts,
    check_commands,
    check_points,
    check_rollups,
    readings_of,
    silences,
)
from tests.support.spark_fleet import MINUTE_NS, Fleet
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kills_account import Place, Reading

SECOND_NS = 1_000_000_000
SENT = [[(0, 1.0), (5, 3.0)], [(MINUTE_NS, 2.0)], [(7, 4.0)]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of three messages, the last of which restates a minute."""
    root = tmp_path_factory.mktemp("kills") / "tables"
    fleet = Fleet(root)
    for rows in SENT:
        fleet.send(*rows)
        fleet.rollup()
    return root


@pytest.fixture
def root(tables: Path, tmp_path: Path) -> Path:
    """A copy, to be spoilt."""
    return Path(shutil.copytree(tables, tmp_path / "tables"))


@pytest.fixture
def readings() -> dict[Place, Reading]:
    """The same as UP has it, one message twice."""
    bodies = [
        encode_frame([Point("battery", "soc", T0_NS + at, v) for at, v in rows], epoch=1, seq=seq)
        for seq, rows in enumerate(SENT, 1)
    ]
    subject = "up.VID-001.f.battery"
    return readings_of(Stored(n, subject, b, T0_NS) for n, b in enumerate([*bodies, bodies[0]]))


def double(root: Path, table: str) -> None:
    """Have a table hold its first row twice."""
    rows = DeltaTable(root / table).to_pyarrow_table()
    write_deltalake(root / table, rows.slice(0, 1), mode="append")


def lose(root: Path, table: str) -> None:
    """Have a table lose its first row."""
    rows = DeltaTable(root / table).to_pyarrow_table()
    write_deltalake(root / table, rows.slice(1), mode="overwrite")


def test_what_is_right_is_no_complaint(
    root: Path, tmp_path: Path, readings: dict[Place, Reading]
) -> None:
    assert len(readings) == 4
    assert check_points(root, readings) == []
    assert check_rollups(root, tmp_path / "anew", readings) == []


@pytest.mark.parametrize(("spoil", "kind"), [(lose, "lost"), (double, "doubled")])
def test_points_lost_and_doubled_are_told(
    root: Path, readings: dict[Place, Reading], spoil: Callable[[Path, str], None], kind: str
) -> None:
    spoil(root, "points")
    assert [each.kind for each in check_points(root, readings)] == [kind]


def test_points_that_differ_from_what_was_sent_are_told(
    root: Path, readings: dict[Place, Reading]
) -> None:
    place, *others = readings
    wrong = readings | {place: readings[place]._replace(value=9.0)}
    [complaint] = check_points(root, wrong)
    assert (complaint.kind, complaint.number) == ("wrong", 1)
    [complaint] = check_points(root, {place: readings[place] for place in others})
    assert (complaint.kind, complaint.number) == ("doubled", 1)


@pytest.mark.parametrize("table", ["rollups", "rollups_superseded"])
@pytest.mark.parametrize("spoil", [lose, double])
def test_windows_and_versions_lost_and_doubled_are_told(
    root: Path,
    tmp_path: Path,
    readings: dict[Place, Reading],
    table: str,
    spoil: Callable[[Path, str], None],
) -> None:
    spoil(root, table)
    assert check_rollups(root, tmp_path / "anew", readings)


def test_minutes_that_are_not_what_was_sent_are_told(
    root: Path, tmp_path: Path, readings: dict[Place, Reading]
) -> None:
    place = next(iter(readings))
    wrong = readings | {place: readings[place]._replace(value=9.0)}
    [complaint] = check_rollups(root, tmp_path / "anew", wrong)
    assert "minutes that are not their points" in complaint.text


def test_silence_follows_from_when_messages_were_stored() -> None:
    """A gap within what was stored ends; one at the end does not. 20 s are not more than 20 s."""
    times = (0, 20, 41, 50)
    stored = [Stored(at, "up.V.f.battery", b"", at * SECOND_NS) for at in times]
    assert silences(stored, 20, 60 * SECOND_NS) == {
        f"V:silence:raised:{40 * SECOND_NS}",
        f"V:silence:cleared:{41 * SECOND_NS}",
    }
    assert f"V:silence:raised:{70 * SECOND_NS}" in silences(stored, 20, 90 * SECOND_NS)


def told(id_: str = "V:temperature:raised:5", **more: Any) -> Told:
    """An alert as the hub stored it a second after."""
    said = {"rule": "temperature", "kind": "raised", "late": False, "value": 70.0, "limit": 60.0}
    said |= {"unit": "deg C", "command": {"name": "cool_down", "params": {"target_c": 55}}}
    return Told(SECOND_NS, said | {"id": id_, "time": 5} | more)


def rows_of(*events: Told) -> pa.Table:
    """The table as the job writes it."""
    rows = [
        each.alert | {"time_ns": each.alert["time"], "command": each.alert["command"]["name"]}
        for each in events
    ]
    return pa.Table.from_pylist(rows)


def test_alerts_missing_doubled_and_unlike_are_told() -> None:
    one, two = told(), told("V:temperature:raised:6", time=6)
    both = {one.alert["id"], two.alert["id"]}
    assert check_alerts([one, two], rows_of(one, two), both) == []
    for events, table, kinds in [
        ([one], rows_of(one, two), ["lost"]),
        ([one, two, two], rows_of(one, two), ["doubled"]),
        ([one, two], rows_of(one), ["lost"]),
        ([one, two], rows_of(one, two, two), ["doubled"]),
        ([one, two, told("other")], rows_of(one, two, told("other")), ["doubled", "doubled"]),
        ([one, two], rows_of(one, told(two.alert["id"], time=6, value=71.0)), ["wrong"]),
    ]:
        assert [each.kind for each in check_alerts(events, table, both)] == kinds


def test_commands_missing_doubled_and_unlike_are_told() -> None:
    event = told()
    id_ = hashlib.sha256(event.alert["id"].encode()).hexdigest()[:32]
    right = json.dumps({"id": id_, "params": {"target_c": 55}}).encode()
    other = json.dumps({"id": id_, "params": {"target_c": 50}}).encode()
    bare = Told(SECOND_NS, {name: v for name, v in event.alert.items() if name != "command"})
    assert check_commands([event], [right], 120) == []
    assert check_commands([bare._replace(stored_ns=200 * SECOND_NS)], [], 120) == []
    for events, bodies, kind in [
        ([event], [], "lost"),
        ([event], [right, right], "doubled"),
        ([], [right], "doubled"),
        ([event], [other], "wrong"),
        ([bare], [], "lost"),
    ]:
        assert [each.kind for each in check_commands(events, bodies, 120)] == [kind]
