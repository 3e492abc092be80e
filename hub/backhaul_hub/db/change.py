"""A statement and its rows, to be written with others in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class RowChange(NamedTuple):
    """Rows for hub.db: one statement, executed once for each tuple of values."""

    statement: str
    rows: Sequence[tuple[Any, ...]]
