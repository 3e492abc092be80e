"""Runs in which something was lost with a ledger."""

from __future__ import annotations

from tests.chaos.damage import Damage
from tests.chaos.sound_run import (
    EPOCH,
    HOUR,
    VID,
    Case,
    frame,
)


def damage(*numbers: int, device: str = VID, until: int = 0) -> Damage:
    """Return the damage of a ledger that had these readings alone."""
    made = Damage(device, EPOCH, HOUR + 100, until and HOUR + until)
    made.add_rows([("f.imu", frame(2, *numbers))] if numbers else [])
    return made


def gone_with_a_ledger(case: Case) -> None:
    """Have readings 3 and 4 be gone with a ledger that had them alone."""
    case.forget(2)
    case.found.complete_hours = {}
    case.replace_ledger()
    case.found.damages = [damage(3, 4)]


def put_back(*numbers: int, in_out: tuple[int, ...] = ()) -> Damage:
    """Return what is gone with a ledger that an older copy replaced, and what waited in OUT alone."""
    made = damage(*numbers, until=1)
    made.put_back, made.in_out = True, damage(*in_out)
    return made
