"""Schema versions: older tables gain columns and keep their files, newer ones are left alone."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.errors import TableNewerError, TablesBusyError
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.query.history import History, parse_series
from backhaul_spark.rollup.known_at import rollups_known_at
from backhaul_spark.tables import compaction
from backhaul_spark.tables import delta as tables
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.delta import (
    IngestTables,
    dataset_of,
    make_table,
    open_table,
    transactions,
)
from backhaul_spark.tables.schemas import (
    HOUR_REPORTS_TABLE,
    POINTS_TABLE,
    ROLLUPS_TABLE,
    SCHEMA_VERSION,
    TableSpec,
)
from tests.support.spark_fleet import DAY_NS, HOUR_NS, Fleet
from tests.support.spark_frames import T0_NS

pytestmark = pytest.mark.slow

ADDED = {"rollups": ["state"], "certificates": ["run"]}


def as_version_1(root: str, spec: TableSpec) -> None:
    """Put the table as schema version 1 had it in the place of what is there, rows and ids kept."""
    uri = f"{root}/{spec.name}"
    table = DeltaTable(uri)
    rows = table.to_pyarrow_table().drop_columns(ADDED[spec.name])
    if spec is ROLLUPS_TABLE:
        rows = rows.filter(pc.field("width") != "1d")
    ids = {app: table.transaction_version(app) for app in ("backhaul-rollup", "backhaul-ingest")}
    shutil.rmtree(uri)
    old = DeltaTable.create(
        uri,
        schema=rows.schema,
        partition_by=list(spec.partition_by),
        configuration={"backhaul.schema": "1"},
        raise_if_key_not_exists=False,
    )
    known = transactions({app: each for app, each in ids.items() if each})
    write_deltalake(old, rows, mode="append", commit_properties=known)


@pytest.fixture
def old(tmp_path: Path) -> Fleet:
    """Tables of schema version 1: an hour with a completeness report, rolled up."""
    fleet = Fleet(tmp_path, T0_NS + int(2.5 * HOUR_NS))
    fleet.mark(0, 0)
    fleet.send((0, 1.0))
    fleet.mark(2, 1)
    fleet.report_hours()
    fleet.rollup()
    for spec in (ROLLUPS_TABLE, HOUR_REPORTS_TABLE):
        as_version_1(fleet.root, spec)
        shutil.rmtree(f"{fleet.root}/{spec.name}_superseded")
    return fleet


def test_an_older_table_is_read_as_it_is(old: Fleet) -> None:
    version = DeltaTable(f"{old.root}/rollups").version()
    answer = History(old.root).ask(parse_series("VID-001", "battery.soc"), resolution="1h")
    assert answer.rows.column("state").to_pylist() == [None]
    assert DeltaTable(f"{old.root}/rollups").version() == version


def test_an_older_table_gains_columns_and_keeps_its_files(old: Fleet) -> None:
    files = set(DeltaTable(f"{old.root}/rollups").file_uris())
    old.send((DAY_NS, 2.0))
    old.now_ns = T0_NS + DAY_NS
    assert old.rollup().created == 3
    table = DeltaTable(f"{old.root}/rollups")
    assert files < set(table.file_uris())
    assert [field.name for field in table.schema().fields] == ROLLUPS_TABLE.schema.names
    assert table.metadata().configuration["backhaul.schema"] == str(SCHEMA_VERSION)
    assert table.protocol().min_reader_version == 1
    assert {row["state"] for row in old.rows()} == {None, "waiting"}
    old.report_hours()
    old.now_ns = T0_NS + 2 * DAY_NS
    old.send((5, 3.0))
    old.rollup()
    assert old.windows("1h")[0]["version"] == 2
    assert old.windows("1h")[0]["state"] == "complete"
    known = rollups_known_at(old.root, datetime(2026, 1, 2, 12, tzinfo=UTC))
    assert {row["version"] for row in known.to_pylist()} == {1}


def test_evolving_that_was_killed_half_way_is_finished(old: Fleet) -> None:
    table = DeltaTable(f"{old.root}/rollups")
    table.alter.add_columns([Field.from_arrow(ROLLUPS_TABLE.schema.field("state"))])
    assert make_table(old.root, ROLLUPS_TABLE).metadata().configuration["backhaul.schema"] == str(
        SCHEMA_VERSION
    )


@pytest.mark.parametrize("opener", [open_table, make_table], ids=["open", "make"])
def test_a_newer_table_is_refused(tmp_path: Path, opener: Any) -> None:
    table = make_table(str(tmp_path), POINTS_TABLE)
    table.alter.set_table_properties(
        {"backhaul.schema": str(SCHEMA_VERSION + 1)}, raise_if_not_exists=False
    )
    with pytest.raises(
        TableNewerError, match=r"schema version (\d+), this backhaul knows \d+"
    ) as caught:
        opener(str(tmp_path), POINTS_TABLE)
    assert "up to date" in caught.value.hint


def test_of_two_that_make_a_table_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = DeltaTable.create

    def too_late(*given: Any, **named: Any) -> None:
        create(*given, **named)  # the other one, between the look and the commit of this one
        raise CommitFailedError("Protocol changed since last commit")

    monkeypatch.setattr(DeltaTable, "create", too_late)
    assert make_table(str(tmp_path), POINTS_TABLE).version() == 0


def test_no_thread_of_arrow_needs_python_to_read_a_table(tmp_path: Path) -> None:
    """One that does when the program ends aborts it (apache/arrow#34314)."""
    dataset = dataset_of(make_table(str(tmp_path), POINTS_TABLE))
    assert isinstance(dataset.filesystem.base_fs, LocalFileSystem)
    package = Path(tables.__file__).parent
    called = [path.name for path in package.rglob("*.py") if "to_pyarrow_" in path.read_text()]
    assert called == ["delta.py"], "read by dataset_of"


def test_an_ingest_goes_on_when_others_only_take_files_out(tmp_path: Path) -> None:
    tables = IngestTables(str(tmp_path))
    tables.commit_points([], "app", 0)
    DeltaTable(f"{tmp_path}/points").alter.set_table_properties(
        {"backhaul.points_from": "2026-01-01"}, raise_if_not_exists=False
    )
    tables.commit_points([], "app", 1)
    assert tables.done("app") == 1


def test_of_two_compactions_one_is_refused_and_no_row_is_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path)
    for second in range(4):
        fleet.send((second, 1.0))
    slow = open_table(fleet.root, POINTS_TABLE)
    assert compact(fleet.root, POINTS_TABLE, SYSTEM_CLOCK) == (4, 1)
    monkeypatch.setattr(compaction, "open_table", lambda root, spec: slow)
    with pytest.raises(TablesBusyError, match="tidies up points"):
        compact(fleet.root, POINTS_TABLE, SYSTEM_CLOCK)
    assert len(fleet.rows("points")) == 4
    fleet.send((9, 1.0))
    assert len(fleet.rows("points")) == 5
    Ingest(fleet.root, SYSTEM_CLOCK)
