"""Messages that a vehicle pushes to the hub beside its stream, while the hub does not source the lane.

A lane that only trickles need not be sourced: a source's heartbeats cost its link more than the messages. The
vehicle appends each message to OUT as always, and publishes the same bytes once more, on a subject that only this
vehicle may use. The hub takes them into UP under the subject that a source would have given them. A push is not
acknowledged: the hub's watermark covers it, and where that stands still the lane is sourced again.
"""

from __future__ import annotations

PUSHES = "u.>"
"""The subjects of all vehicles' pushes."""


def push_subject(device: str, token: str, leaf_subject: str) -> str:
    """Return where a device pushes a message of its own subject; the token keeps others from forging it."""
    return f"u.{device}.{token}.{leaf_subject}"
