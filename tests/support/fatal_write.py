"""A program that is killed at one of its writes of a file."""

from __future__ import annotations

from typing import Any

from backhaul_agent import files


class Killed(Exception):
    """The program is no more."""


class FatalWrite:
    """Stands for `files.write_whole`; the program is killed at write number `fatal`, from 1 on."""

    def __init__(self) -> None:
        self.fatal = 0
        self.writes = 0

    def __call__(self, *arguments: Any, **more: Any) -> None:
        self.writes += 1
        if self.writes == self.fatal:
            raise Killed
        files.write_whole(*arguments, **more)

    def at(self, number: int) -> None:
        """Begin to count anew; none is fatal where the number is 0."""
        self.fatal, self.writes = number, 0
