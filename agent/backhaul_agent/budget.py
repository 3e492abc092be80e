"""What a message is worth when the ledger runs out of room, and what goes first: a pure core.

Events are worth more than configuration, that more than state, that more than telemetry. Above all
of them stands what the account itself rests on: a receipt that was given up would turn the gap that
it explains into silence.
"""

from __future__ import annotations

TELEMETRY, STATE, CONFIG, EVENT, ACCOUNT = range(5)

# Events that say how to read all the others; they are never given up.
_ACCOUNT_EVENTS = frozenset({"receipt", "epoch", "clock", "quarantined"})
_POINT_OF_NODE = 4  # tokens of p.<node>.<type>.<key>


def class_of(subject: str) -> int:
    """Return the value class of a message by its leaf subject alone.

    A point of a node counts as state: whoever writes one as configuration says so. Edges, and
    frames of points that hold or fall as one, are configuration by what they are.
    """
    letter, *rest = subject.split(".")
    if letter == "n" and len(rest) > 1:  # n.<node>.: a lane of one node
        letter, *rest = rest[1:]
    if letter == "f":
        return TELEMETRY
    if letter == "p":
        return STATE if len(rest) + 1 == _POINT_OF_NODE else CONFIG
    if letter == "e" and rest[:1] and rest[0] in _ACCOUNT_EVENTS:
        return ACCOUNT
    return EVENT
