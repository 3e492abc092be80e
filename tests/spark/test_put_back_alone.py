"""One table of a root is put back from a copy, or deleted, without the others: nothing is written over that."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.errors import TablesApartError
from backhaul_spark.ingest.batch import Ingest
from tests.spark.ingest_world import World, frames

if TYPE_CHECKING:
    from pathlib import Path


def put_back(root: Path, copy: Path, *tables: str) -> None:
    for table in tables:
        shutil.rmtree(root / table)
        if (copy / table).exists():
            shutil.copytree(copy / table, root / table)


@pytest.mark.parametrize("table", ["points", "coverage"])
@pytest.mark.parametrize("copied", [True, False], ids=["older", "gone"])
def test_a_table_that_was_put_back_alone_is_named_and_nothing_is_written(
    tmp_path: Path, table: str, *, copied: bool
) -> None:
    root, copy = tmp_path / "tables", tmp_path / "copy"
    world = World(root)
    world.take(frames(1, 2))
    if copied:
        shutil.copytree(root, copy)
    world.take(frames(3, first_seq=3))
    world.take(frames(4, first_seq=4))
    put_back(root, copy, table)
    for _ in range(2):
        with pytest.raises(
            TablesApartError, match=f"table {table} .* was put back alone"
        ) as caught:
            Ingest(str(root), SYSTEM_CLOCK)
        assert "from one copy" in caught.value.hint


def test_tables_that_were_put_back_together_go_on_and_double_nothing(tmp_path: Path) -> None:
    root, copy = tmp_path / "tables", tmp_path / "copy"
    world = World(root)
    world.take(frames(1, 2))
    shutil.copytree(root, copy)
    world.take(frames(3, first_seq=3))
    shutil.rmtree(root)
    shutil.copytree(copy, root)
    again = World(root)
    assert again.take(frames(1, 2, 3)).messages == 1
    assert set(again.points().values()) == {1}
