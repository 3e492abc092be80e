"""docs/security.md names every attack, and every rule that it gets through without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .every_attack import ATTACKS

if TYPE_CHECKING:
    from .attack import Attack

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_in_the_table_with_what_it_gets_through(attack: Attack) -> None:
    rows = [row for row in DOCUMENT.read_text().splitlines() if f"`{attack.name}`" in row]
    assert len(rows) == 1
    where = rows[0].split(" | ")[-1]
    assert [each.name for each in attack.falls_with if each.name not in where] == []
    assert attack.falls_with or "nowhere" in where
