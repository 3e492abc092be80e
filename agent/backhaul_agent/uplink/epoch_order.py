"""Which epoch of a lane is appended to OUT: one after the other, the oldest first. Pure, no I/O.

A new epoch begins where the one before ends in the stream: with every message of it appended, each
under the sequence that it would have had anyway. So a store that a power cut rolled back is made whole
before anything new gets a sequence (docs/adr/0007), and what an agent had not sent when it died leaves
in its turn, without being asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.uplink.appender import Tail


def choose(
    chain: Sequence[CommittedLane],
    tail: Tail,
    created: str,
    finished: AbstractSet[int] = frozenset(),
) -> CommittedLane:
    """Return the lane that appending goes on with, in the stream ``created`` that ends so.

    ``chain``: the lane's epochs, the oldest first, the current one last. ``tail`` tells the
    position in any of them. ``finished``: epochs that were appended to their ends since the
    connection began.
    """
    last_written = _last_written(chain, tail, created)
    if last_written is None:
        # A stream made anew: everything that the hub may lack, from the oldest on.
        owing = (lane for lane in chain if not lane.whole)
        return next((each for each in owing if each.epoch not in finished), chain[-1])
    lane = chain[last_written]
    at_end = tail.epoch == lane.epoch and (tail.seq or 0) >= lane.last_seq
    if lane.steps.created == created and lane.steps.short(lane.last_seq, tail.stream_seq):
        at_end = False  # the store went back into what was appended again behind the last seq
    if lane is not chain[-1] and (at_end or lane.epoch in finished):
        later = (each for each in chain[last_written + 1 :] if each.epoch not in finished)
        return next((each for each in later if _has_used(each, tail, created)), chain[-1])
    return lane


def _has_used(lane: CommittedLane, tail: Tail, created: str) -> bool:
    """Whether sequences are, or were, an epoch's: of its messages, or of those appended again in it.

    Also where it has no message: the stream may have lost what was appended again in it, and the hub has
    passed those sequences.
    """
    short = lane.steps.created == created and lane.steps.short(lane.last_seq, tail.stream_seq)
    return bool(lane.last_seq or short)


def _last_written(chain: Sequence[CommittedLane], tail: Tail, created: str) -> int | None:
    """Return the place in the chain of the epoch that was appended last to a stream."""
    for place in reversed(range(len(chain))):
        if tail.epoch == chain[place].epoch:
            return place
    if tail.epoch is not None:
        return None
    for place in reversed(range(len(chain))):
        if chain[place].steps.created == created:
            return place
    return None
