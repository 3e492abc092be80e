"""The pages say what the code has: every column, every command, every table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backhaul_spark.cli.main import cli
from backhaul_spark.tables.schemas import TABLES

if TYPE_CHECKING:
    from backhaul_spark.tables.schemas import TableSpec

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: str(spec.name))
def test_every_column_is_documented(spec: TableSpec) -> None:
    page = (ROOT / "docs/tables.md").read_text()
    assert f"ROOT/{spec.name}/" in page
    words = set(page.replace(",", " ").replace(":", " ").replace("|", " ").split())
    assert set(spec.schema.names) <= words


def test_every_command_is_in_the_readme() -> None:
    page = (ROOT / "spark/README.md").read_text()
    for name in cli.summaries:
        assert f"backhaul-spark {name}" in page
