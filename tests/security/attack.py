"""What an attack is, and the list of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .ground import Ground
    from .weaknesses import Weakness

    Deed = Callable[[Ground], Awaitable[list[str] | None]]


@dataclass(frozen=True)
class Attack:
    """One attack.

    Its deed returns what it has got beyond what `Ground` sees by itself (None: nothing).
    """

    deed: Deed
    falls_with: tuple[Weakness, ...]
    """Rules, any of which dropped lets it through; none: docs/security.md says why."""
    harm: str
    """What is then seen: part of one of the sentences of `Ground.attacked`."""

    @property
    def name(self) -> str:
        return self.deed.__name__


ATTACKS: list[Attack] = []


def attack(*falls_with: Weakness, harm: str = "") -> Callable[[Deed], Deed]:
    """Enter an attack into the list."""

    def enter(deed: Deed) -> Deed:
        assert bool(falls_with) == bool(harm)
        ATTACKS.append(Attack(deed, falls_with, harm))
        return deed

    return enter
