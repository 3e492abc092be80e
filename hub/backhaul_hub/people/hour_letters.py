"""The letters of hours that were judged once, for all browsers: of a device again only where its facts are others. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import LaneState

WINDOWS_MAX = 8
"""Stretches of hours that are kept: of 10,000 devices a day takes 1 MB, a month 8 MB."""


def standing(state: LaneState) -> Hashable:
    """Return the part of a lane's state that changes hours. If all of a lane is held, its length changes none."""
    held, highest = state.held, max(state.seen.highest, state.explained.highest, state.said)
    plain = not state.receipts and not state.chain.forked and len(held) == 1
    if plain and held.contiguous >= highest:
        return None
    return tuple(held), state.explained.total, len(state.receipts), highest, state.chain.forked_from


class Facts(NamedTuple):
    """The facts behind the letters of a device, to be compared."""

    words: int
    """How many words of its lanes the vehicle has said since the start."""
    imported: Hashable
    lanes: tuple[Hashable, ...]

    @classmethod
    def of(
        cls, words: int, imported: Hashable, lanes: Mapping[LaneKey, LaneState], oldest_ns: int
    ) -> Facts:
        """Return the facts of a device.

        Args:
            words: how many words of its lanes it has said.
            imported: how its imports stand.
            lanes: as they are now.
            oldest_ns: the time of its oldest mark: an epoch that nobody has marked counts from there on.
        """
        each = tuple(
            (
                key.lane,
                key.epoch,
                not state.seen or state.last_seen_ns >= oldest_ns,
                standing(state),
            )
            for key, state in lanes.items()
        )
        return cls(words, imported, each)


@dataclass(slots=True)
class _Judged:
    facts: Facts
    letters: str
    turn: int


@dataclass(eq=False, slots=True)
class Window:
    """One stretch of hours."""

    _letters: HourLetters
    _judged: dict[str, _Judged] = field(default_factory=dict)
    oldest_ns: dict[str, int] = field(default_factory=dict)
    """By device: the time of its oldest mark, as of its judgement."""

    def letters(self, device: str, facts: Facts) -> str | None:
        """Return the letters of a device; None where they have to be judged."""
        known = self._judged.get(device)
        return known.letters if known is not None and known.facts == facts else None

    def told(self, device: str) -> str:
        """Return the letters that were judged last."""
        return self._judged[device].letters

    def turn(self, device: str) -> int:
        """Return the turn of the last change of its letters."""
        return self._judged[device].turn

    def put(self, device: str, facts: Facts, letters: str, oldest_ns: int) -> None:
        """Take in a judgement."""
        known = self._judged.get(device)
        self.oldest_ns[device] = oldest_ns
        if known is not None and known.letters == letters:
            known.facts = facts
            return
        self._letters.turn += 1
        self._judged[device] = _Judged(facts, letters, self._letters.turn)


class HourLetters:
    """Keeps letters, each with the turn of its last change.

    Args:
        name: no other control plane's: what a browser knows of another one counts for nothing.
    """

    def __init__(self, name: str) -> None:
        self.turn = 0
        """Rises with each device whose letters changed."""
        self._name = name
        self._windows: dict[tuple[int, int], Window] = {}

    def window(self, from_ns: int, to_ns: int) -> Window:
        """Return a stretch; the one that was asked for longest ago makes room."""
        key = from_ns, to_ns
        found = self._windows.pop(key, None) or Window(self)
        self._windows[key] = found
        if len(self._windows) > WINDOWS_MAX:
            del self._windows[next(iter(self._windows))]
        return found

    def token(self, devices: Iterable[str]) -> str:
        """Return a word; a later question with it is told the changes since now, of the same devices."""
        return f"{self._name}.{_digest(devices)}.{self.turn}"

    def since(self, token: str, devices: Iterable[str]) -> int:
        """Return the turn of a word; -1 where all has to be told."""
        head, _, turn = token.rpartition(".")
        if head != f"{self._name}.{_digest(devices)}" or not turn.isdecimal():
            return -1
        return int(turn)


def _digest(devices: Iterable[str]) -> str:
    return blake2b("\n".join(devices).encode(), digest_size=8).hexdigest()
