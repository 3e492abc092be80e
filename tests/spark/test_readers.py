"""The tables for tools that know nothing of backhaul: pandas, and DuckDB by its own reader of Delta."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from deltalake import DeltaTable

from backhaul_spark.tables.schemas import TABLES
from tests.support.every_table import write_every_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backhaul_spark.tables.schemas import TableSpec

pytestmark = pytest.mark.slow

NAMED = pytest.mark.parametrize("spec", TABLES, ids=lambda spec: str(spec.name))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    write_every_table(directory)
    return directory


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its extension `delta`, as a package brings it: INSTALL would download it."""
    packages = Path(duckdb.__file__).parents[1]
    [extension] = packages.glob("duckdb_ext/extensions/*/*/delta.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        yield connection


@NAMED
def test_duckdb_reads_every_row_as_it_was_written(
    root: Path, duck: duckdb.DuckDBPyConnection, spec: TableSpec
) -> None:
    written = DeltaTable(str(root / spec.name)).to_pyarrow_table()
    found = duck.execute(f"SELECT * FROM delta_scan('{root}/{spec.name}')").fetch_arrow_table()
    assert found.num_rows > 0
    assert found.column_names == spec.schema.names
    keys = [(name, "ascending") for name in found.column_names]
    expected = written.select(found.column_names).cast(spec.schema)
    assert found.cast(spec.schema).sort_by(keys) == expected.sort_by(keys)


@NAMED
def test_pandas_reads_every_table_whole_and_by_a_filter(root: Path, spec: TableSpec) -> None:
    table = DeltaTable(str(root / spec.name))
    frame = table.to_pandas()
    assert list(frame.columns) == spec.schema.names
    text = next(field.name for field in spec.schema if field.type == "string")
    [first, *_] = frame[text]
    part = table.to_pandas(filters=[(text, "=", first)])
    assert 0 < len(part) == (frame[text] == first).sum()


def test_the_question_for_grafana_is_answered(root: Path, duck: duckdb.DuckDBPyConnection) -> None:
    """The macros are put in as Grafana's plugin says it does."""
    page = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
    _, _, rest = page.partition("    SELECT window_start AS time")
    question = "SELECT window_start AS time" + rest.partition(";")[0]
    asked = question.replace("ROOT", str(root)).replace(
        "$__timeFilter(window_start)", "window_start BETWEEN $__timeFrom AND $__timeTo"
    )
    for macro, time in (
        ("$__timeFrom", "2026-01-01T00:00:00Z"),
        ("$__timeTo", "2026-01-02T00:00:00Z"),
    ):
        asked = asked.replace(macro, f"'{time}'::TIMESTAMPTZ")
    found = duck.execute(asked).fetchall()
    assert [row[1:] for row in found] == [("VID-002", 4.8, 1.0, 7.0)]
