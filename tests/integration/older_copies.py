"""Older copies of a vehicle's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.epochs import ledger_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.rig.parts import DeviceRig


def parts(rig: DeviceRig) -> tuple[Path, Path]:
    """Return where the ledger and the leaf's store are."""
    return ledger_of(rig), rig.agent_toml.parent / "backhaul-leaf"


def older(part: Path, name: str) -> Path:
    return part.with_name(f"{name}-{part.name}")
