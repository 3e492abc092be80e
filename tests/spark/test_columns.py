"""Schemas as text: `backhaul_spark.columns`."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from backhaul_spark.columns import STAMP, columns


def test_columns_are_fields_in_their_order_and_null_is_allowed_unless_it_is_said() -> None:
    assert columns("device string not null, at timestamp,\n hour int") == pa.schema(
        [
            pa.field("device", pa.string(), nullable=False),
            pa.field("at", STAMP),
            pa.field("hour", pa.int32()),
        ]
    )


@pytest.mark.parametrize("text", ["device text", "device", "device string null", "device string,"])
def test_a_column_that_cannot_be_read_is_an_error_at_import(text: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        columns(text)
