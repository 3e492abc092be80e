"""The demonstration's account notices a reading that is missing, doubled, or not the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

from backhaul_codec import Point
from demo.account import Account

if TYPE_CHECKING:
    from pathlib import Path

POINTS = [Point("battery", "soc", time, time / 4) for time in range(1, 4)]


def write_history(path: Path, values: list[tuple[int, float]]) -> None:
    rows = [
        {"device": "VID-001", "node": "battery", "type": "soc", "key": "", "time_ns": time}
        | {"dtype": 1, "value_f64": value, "value_i64": 0, "value_text": "", "value_bytes": b""}
        for time, value in values
    ]
    write_deltalake(path, pa.Table.from_pylist(rows))


@pytest.mark.parametrize(
    ("values", "missing", "doubled"),
    [
        ([(1, 0.25), (2, 0.5), (3, 0.75)], 0, 0),
        ([(1, 0.25), (2, 0.5)], 1, 0),
        ([(1, 0.25), (2, 0.5), (2, 0.5), (3, 0.75)], 0, 1),
        ([(1, 0.25), (2, 0.5), (3, 0.7500000000000001)], 1, 0),
    ],
    ids=["complete", "missing", "doubled", "another bit"],
)
def test_the_verdict(
    tmp_path: Path, values: list[tuple[int, float]], missing: int, doubled: int
) -> None:
    account = Account()
    account.kept("VID-001", POINTS)
    write_history(tmp_path / "points", values)
    verdict = account.close(tmp_path / "points")["VID-001"]
    assert (verdict.missing, verdict.doubled) == (missing, doubled)
    assert verdict.sound is (missing == doubled == 0)
