"""docs/readers.md is right: each snippet runs as it stands there, and finds what is in the tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.jobs.iceberg import publish
from backhaul_spark.tables import column_notes
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.schemas import POINTS_TABLE, TABLES
from tests.support.every_table import write_every_table
from tests.support.spark_fleet import Fleet

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

    from backhaul_spark.tables.schemas import TableSpec

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/readers.md"
SNIPPETS = dict(
    re.findall(
        r"^## (\w+)\n(?:(?!^## ).)*?```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
)
[_, ICEBERG_IN_DUCKDB] = re.findall(
    r"```python\n(.*?)```", PAGE.read_text().partition("## Iceberg")[2], re.DOTALL
)
PACKAGES = Path(duckdb.__file__).parents[1]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    write_every_table(directory)
    return directory


@pytest.fixture(scope="module")
def iceberg(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("iceberg")
    publish(str(root), str(directory))
    return directory


def ran(snippet: str, **names: object) -> Any:
    """Run a snippet with these names in the place of its own words; extensions come from packages, not from the network."""
    for word, value in names.items():
        snippet = snippet.replace(word, str(value))
    snippet = snippet.replace("2026-01-31", "2026-01-01")
    snippet = re.sub(r"INSTALL \w+; ", "", snippet)
    for name in re.findall(r"LOAD (\w+)", snippet):
        [file] = PACKAGES.glob(f"duckdb_ext/extensions/*/*/{name}.duckdb_extension")
        snippet = snippet.replace(f"LOAD {name}", f"LOAD '{file}'")
    found: dict[str, Any] = {}
    exec(snippet, found)
    return found["rows"]


def rollups(root: Path, width: str) -> list[dict[str, Any]]:
    table = DeltaTable(str(root / "rollups")).to_pyarrow_table(filters=[("width", "=", width)])
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def catalog_in(directory: Path) -> SqlCatalog:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("backhaul", uri=f"sqlite:///{directory}/catalog.db")


def test_the_page_has_all_of_them() -> None:
    assert list(SNIPPETS) == ["DuckDB", "pandas", "polars", "Spark", "Iceberg"]


def test_duckdb(root: Path) -> None:
    assert ran(SNIPPETS["DuckDB"], ROOT=root) == [("VID-002", 1.5)]


def test_pandas(root: Path) -> None:
    hours = [row for row in rollups(root, "1h") if row["device"] == "VID-002"]
    frame = ran(SNIPPETS["pandas"], ROOT=root)
    assert len(frame) == len(hours) > 0
    assert sorted(frame["count"]) == sorted(row["count"] for row in hours)


def test_polars(root: Path) -> None:
    expected: dict[str, int] = {}
    for row in rollups(root, "1d"):
        expected[row["device"]] = expected.get(row["device"], 0) + row["count"]
    found = ran(SNIPPETS["polars"], ROOT=root)
    assert dict(found.iter_rows()) == expected


def test_polars_reads_every_table(root: Path) -> None:
    import polars

    for spec in TABLES:
        uri = str(root / spec.name)
        frame = polars.read_delta(uri)
        assert frame.columns == spec.schema.names
        assert frame.height == DeltaTable(uri).to_pyarrow_table().num_rows > 0


def test_iceberg(root: Path, iceberg: Path) -> None:
    frame = ran(SNIPPETS["Iceberg"], ICEBERG=iceberg)
    assert set(frame["width"]) == {"1h"}
    assert sorted(frame["sum"].dropna()) == sorted(
        row["sum"] for row in rollups(root, "1h") if row["sum"] is not None
    )


def test_iceberg_in_duckdb(root: Path, iceberg: Path) -> None:
    metadata = catalog_in(iceberg).load_table("backhaul.rollups").metadata_location
    found = ran(ICEBERG_IN_DUCKDB, METADATA=metadata)
    assert sorted(found) == sorted((row["device"], row["count"]) for row in rollups(root, "1h"))


def test_every_table_is_in_iceberg_row_by_row(root: Path, iceberg: Path) -> None:
    catalog = catalog_in(iceberg)
    for spec in TABLES:
        found = catalog.load_table(f"backhaul.{spec.name}").scan().to_arrow().cast(spec.schema)
        written = DeltaTable(str(root / spec.name)).to_pyarrow_table().select(spec.schema.names)
        keys = [(name, "ascending") for name in spec.schema.names]
        assert found.num_rows > 0
        assert found.sort_by(keys) == written.cast(spec.schema).sort_by(keys), spec.name


def test_a_second_run_brings_what_has_changed_in_one_snapshot(tmp_path: Path) -> None:
    fleet, out = Fleet(tmp_path / "tables"), tmp_path / "iceberg"
    fleet.send((0, 1.0), (7, 2.0))
    first = {each.name: each for each in publish(fleet.root, str(out))}
    assert (first["points"].added, first["points"].removed) == (1, 0)
    again = {each.name: each for each in publish(fleet.root, str(out))}
    assert {name: each.metadata for name, each in again.items()} == {
        name: each.metadata for name, each in first.items()
    }
    fleet.send((9, 3.0))
    compact(fleet.root, POINTS_TABLE, SYSTEM_CLOCK)
    result = CliRunner().invoke(cli, ["iceberg", "--table-root", fleet.root, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert re.search(r"^points +\+1 -1 files", result.stdout, re.MULTILINE)
    table = catalog_in(out).load_table("backhaul.points")
    assert sorted(table.scan().to_arrow().column("value_f64").to_pylist()) == [1.0, 2.0, 3.0]
    assert len(table.snapshots()) == 2


def test_nothing_of_the_tables_is_deleted_by_iceberg(iceberg: Path) -> None:
    for spec in TABLES:
        properties = catalog_in(iceberg).load_table(f"backhaul.{spec.name}").properties
        assert properties["gc.enabled"] == "false"


def test_a_filter_by_day_opens_no_other_file(root: Path, iceberg: Path) -> None:
    table = catalog_in(iceberg).load_table("backhaul.rollups")
    tasks = list(table.scan(row_filter="width = '1d'").plan_files())
    assert {task.file.file_path for task in tasks} == {
        file for file in DeltaTable(str(root / "rollups")).file_uris() if "width=1d" in file
    }
    assert all("width" not in pq.read_schema(task.file.file_path).names for task in tasks)


def test_columns_say_their_units_and_meanings(root: Path, iceberg: Path) -> None:
    for name in ("points", "rollups", "trips", "stops", "fences", "alerts", "twins"):
        for field in DeltaTable(str(root / name)).schema().fields:
            unit = re.search(r"_(ns|s|m|wh|mps|pct|pct_h)$", field.name)
            if unit is not None and field.name not in ("before_ns", "stream_seq"):
                units = {"wh": "Wh", "mps": "m/s", "pct": "%", "pct_h": "%/h"}
                assert field.metadata["unit"] == units.get(unit[1], unit[1]), (name, field.name)
    schema = catalog_in(iceberg).load_table("backhaul.trips").schema()
    assert schema.find_field("distance_m").doc == "the way (m)"


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: str(spec.name))
def test_notes_are_of_columns_that_are_there(spec: TableSpec) -> None:
    lines = re.findall(
        r"^(\w+)(?: \[.+\])?: ", column_notes._NOTES.get(spec.name, ""), re.MULTILINE
    )
    assert set(lines) <= set(spec.schema.names)
    assert len(lines) == len(set(lines))
