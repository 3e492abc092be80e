"""Messages that pass a vehicle's link beside the streams, while nothing sources these: pushed up, or spoken down.

A lane that only trickles need not be sourced: a source's heartbeats cost its link more than the messages. The
vehicle appends each message to OUT as always, and publishes the same bytes once more, on a subject that only this
vehicle may use. The hub takes them into UP under the subject that a source would have given them. A push is not
acknowledged: the hub's watermark covers it, and where that stands still the lane is sourced again.

Likewise IN need not source DOWN. The hub says each message that it has put into DOWN for a vehicle once more, on a
subject that only this vehicle may hear; where the vehicle does not listen there, the server drops it. What is more
than passing has the vehicle source DOWN again, which brings the same message for good.
"""

from __future__ import annotations

PUSHES = "u.>"
"""The subjects of all vehicles' pushes."""


def push_subject(device: str, token: str, leaf_subject: str) -> str:
    """Return where a device pushes a message of its own subject; the token keeps others from forging it."""
    return f"u.{device}.{token}.{leaf_subject}"


BESIDE = "w.>"
"""The subjects of all that the hub speaks beside DOWN."""
WAKE = "s.wake"
"""Spoken beside only: IN is to be sourced, for there may be something that this vehicle has not heard."""
_PASSING = ("s.watermark.", "s.held.", "s.digest", "s.resend.")


def beside_subject(device: str, token: str, leaf_subject: str) -> str:
    """Return where the hub says a message for a device once more; no other device can listen."""
    return f"w.{device}.{token}.{leaf_subject}"


def is_passing(leaf_subject: str) -> bool:
    """Tell whether a message of the hub's only says how things stand: it is said again when they have changed.

    All others change something for good, and so count only once they have come through IN.
    """
    return leaf_subject.startswith(_PASSING)
