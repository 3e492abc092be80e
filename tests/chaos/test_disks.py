"""Disks of a run's own: full is full, room is given back, and what they hold stays to be looked at."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tests.chaos.disks import mounted
from tests.chaos.faults_disk import needed
from tests.chaos.kinds import KINDS
from tests.chaos.schedule import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.world import World

BYTES = b"x" * 10_000


async def test_a_full_disk_takes_nothing_until_it_is_drained_and_leaves_all_behind(
    tmp_path: Path,
) -> None:
    outer, inner = tmp_path / "vehicle", tmp_path / "vehicle" / "ledger"
    async with mounted([inner, outer]) as disks:
        if len(disks) < 2:
            pytest.skip("no file systems of its own for this test")
        (inner / "before").write_bytes(BYTES)
        await disks[inner].fill()
        with pytest.raises(OSError, match="No space left"):
            (inner / "meanwhile").write_bytes(BYTES)
        (outer / "beside").write_bytes(BYTES)
        await disks[inner].drain()
        (inner / "after").write_bytes(BYTES)
        await disks[outer].fill()
    assert not outer.is_mount()
    assert not inner.is_mount()
    for kept in (inner / "before", inner / "after", outer / "beside"):
        assert kept.read_bytes() == BYTES
    assert [path.name for path in tmp_path.iterdir()] == ["vehicle"]


def test_only_what_a_schedule_fills_is_on_a_disk_of_its_own() -> None:
    kinds = ("cut", "full-ledger", "full-leaf")
    faults = [Fault(1.0, 1.0, kind, f"VID-00{n}") for n, kind in enumerate(kinds)]
    assert needed([*faults, Fault(1.0, 1.0, "full-hub", "hub")]) == {
        ("VID-001", "ledger"), ("VID-002", "leaf"), ("VID-002", "ledger"), ("hub", "hub")
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["full-ledger", "full-leaf", "full-hub"])
async def test_where_no_disk_may_be_mounted_a_fault_is_passed_over_and_counted(kind: str) -> None:
    world = SimpleNamespace(disks={}, passed_over=Counter[str]())
    await KINDS[kind](cast("World", world), Fault(1.0, 1.0, kind, "VID-001"))
    assert world.passed_over == {kind: 1}
