"""What programs and operators were told, in a file: appended and synced before anything else is done.

One JSON object a line. A line says `asked` before something is sent and then, under the same number,
`kept` or `refused` once that was answered; what was asked and never answered may or may not be kept.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Word = Literal["kept", "refused", "unknown"]


class Reading(NamedTuple):
    """A point as the checker knows it: no two that are published are equal."""

    device: str
    node: str
    time_ns: int
    value: float


class Happening(NamedTuple):
    """An event as the checker knows it."""

    device: str
    number: int


class Write(NamedTuple):
    """A value written to a series that one side alone writes: numbers, each greater than the last."""

    device: str
    node: str
    value: float


@dataclass(slots=True)
class Entry:
    """One thing that was asked, and what was answered. Times are of this machine's clock."""

    what: str
    device: str
    asked_ns: int
    body: dict[str, Any]
    word: Word = "unknown"
    answered_ns: int = 0


@dataclass(slots=True)
class Told:
    """All that a diary says."""

    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Iterable[str]) -> Told:
        """Read a diary; a line that was cut short at the end was never answered to anybody."""
        entries: dict[int, Entry] = {}
        for line in lines:
            if not line.endswith("\n"):
                break
            said = json.loads(line)
            number = said.pop("number")
            word, at_ns = said.pop("word"), said.pop("at_ns")
            if word == "asked":
                entries[number] = Entry(said.pop("what"), said.pop("device"), at_ns, said)
            else:
                entries[number].word, entries[number].answered_ns = word, at_ns
        return cls(list(entries.values()))

    @classmethod
    def read(cls, path: Path) -> Told:
        """Read a diary's file."""
        with path.open() as lines:
            return cls.of(lines)

    def readings(self, word: Word) -> set[Reading]:
        """Return the readings that got this answer."""
        return {
            each
            for entry in self._of("readings")
            if entry.word == word
            for each in readings_of(entry)
        }

    def happenings(self, word: Word) -> set[Happening]:
        """Return the events that got this answer."""
        return {happening_of(entry) for entry in self._of("event") if entry.word == word}

    def writes(self, word: Word) -> set[Write]:
        """Return the config writes that got this answer, of either end."""
        return {write_of(entry) for entry in self._of("config") if entry.word == word}

    def commands(self, word: Word) -> set[str]:
        """Return the ids of commands that got this answer."""
        return {entry.body["id"] for entry in self._of("command") if entry.word == word}

    def commands_between(self, low_ns: int, high_ns: int) -> set[str]:
        """Return the ids of commands that were acknowledged, maybe, in a stretch of time."""
        return {
            entry.body["id"]
            for entry in self._of("command")
            if entry.word == "kept" and entry.asked_ns <= high_ns and low_ns <= entry.answered_ns
        }

    def kept_between(self, device: str, low_ns: int, high_ns: int) -> set[Reading]:
        """Return what a device surely acknowledged in a stretch of time."""
        return {
            each
            for entry in self._of("readings")
            if entry.device == device and entry.word == "kept"
            if low_ns <= entry.asked_ns and entry.answered_ns < high_ns
            for each in readings_of(entry)
        }

    def _of(self, what: str) -> Iterable[Entry]:
        return (entry for entry in self.entries if entry.what == what)


def happening_of(entry: Entry) -> Happening:
    """Return the event that an entry is about."""
    return Happening(entry.device, entry.body["event"])


def write_of(entry: Entry) -> Write:
    """Return the config write that an entry is about."""
    return Write(entry.device, entry.body["node"], entry.body["value"])


def readings_of(entry: Entry) -> list[Reading]:
    """Return the readings that an entry is about: numbered on, a millisecond apart."""
    body = entry.body
    return [
        Reading(
            entry.device, body["node"], body["time_ns"] + at * 1_000_000, float(body["first"] + at)
        )
        for at in range(body["many"])
    ]


class Diary:
    """Appends to a diary.

    Args:
        path: is made, and not there before.
        now_ns: the time, in ns since the Unix epoch.
    """

    def __init__(self, path: Path, now_ns: Callable[[], int]) -> None:
        self._file = path.open("x")
        self._now_ns = now_ns
        self._numbers = count()
        self._syncing = asyncio.Lock()

    async def asked(self, what: str, device: str, **body: Any) -> int:
        """Note that something is about to be sent; return the number to answer it under."""
        number = next(self._numbers)
        await self._append(number, "asked", {"what": what, "device": device, **body})
        return number

    async def answered(self, number: int, word: Word) -> None:
        """Note what was answered."""
        await self._append(number, word, {})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    async def _append(self, number: int, word: str, body: dict[str, Any]) -> None:
        said = {"number": number, "word": word, "at_ns": self._now_ns(), **body}
        self._file.write(json.dumps(said) + "\n")
        self._file.flush()
        async with self._syncing:
            await asyncio.to_thread(os.fdatasync, self._file.fileno())
