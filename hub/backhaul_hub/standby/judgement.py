"""The fate of an entry that the journal did not acknowledge, by the message in its place. Pure.

The writer sends each entry with the sequence that it expects to be the journal's last. Whether its message was
late, lost, or stored without a word is not known from silence, nor from a refusal, which may be of the same
entry sent a second time.
"""

from __future__ import annotations

from enum import Enum, auto


class DoubtVerdict(Enum):
    """The result for an entry that is in doubt."""

    STORED = auto()
    """The journal has it."""
    AGAIN = auto()
    """The journal has not got it, and goes no further than the writer knows: send it again."""
    ASK = auto()
    """Nobody knows yet: ask again."""
    DEPOSED = auto()
    """Another entry stands in its place: another machine leads."""
    LOST = auto()
    """The journal ends before what the writer has committed: it is not the one it was."""


def judge(position: int, nonce: str, found: str | None, last_seq: int) -> DoubtVerdict:
    """Judge an entry by the journal, as the stream's leader tells of it.

    Args:
        position: the last sequence that the writer knows, which its entry follows.
        nonce: the entry's.
        found: the nonce of the message at `position` + 1; None: there is none.
        last_seq: the journal's last sequence, asked for after that.
    """
    if found is not None:
        return DoubtVerdict.STORED if found == nonce else DoubtVerdict.DEPOSED
    if last_seq < position:
        return DoubtVerdict.LOST
    # What came between the two questions may be this entry, late.
    return DoubtVerdict.AGAIN if last_seq == position else DoubtVerdict.ASK
