"""Consumers of good messages, which take part in the reading of UP, told in stream order.

A batch of UP goes through one turn: every good message is told to continuity and to each consumer,
then the read position, the lanes and the consumers' own rows are written to hub.db in one
transaction, then the consumers hear that it stands. One reader has the turn at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backhaul_hub.continuity.examine import Examined
from backhaul_hub.db.change import RowChange


class Consumer(Protocol):
    """Takes in vehicles' messages.

    Everything must bear repetition. A message comes again where a lane was sent again, or UP had lost
    it: purged, put back from a copy, made anew (`is_new` is False then). It comes with `is_new` True
    where hub.db itself was put back.
    """

    def on_message(self, said: Examined, is_new: bool) -> None:
        """Take in one good message: no I/O, and no exception, for any body of a device.

        Args:
            said: the message, with what is read of it already: nobody reads a frame a second time.
            is_new: whether this seq never came before, as far as hub.db knows.
        """

    def take_changes(self) -> Sequence[RowChange]:
        """Return the rows to write along with the messages of this turn, and forget them.

        Where the disk refuses, the same rows are tried again before anything else is taken in.
        """

    def stored(self) -> None:
        """Take in that the turn is on disk: now it may be acted upon (set an event, no I/O)."""
