"""Which vehicles' agents are there, by the hub's word: messages of DOWN that go to no vehicle. Pure.

``in._alive.<device>`` says whether the agent of a device is connected, when that changes; ``in._alive`` that
the control plane still looks, each `BEAT_S`: what it said last of a vehicle holds for as long as it does. No device id
begins with ``_``, so no vehicle is sent these.
"""

from __future__ import annotations

BEAT = "in._alive"
BEAT_S = 60.0
BELIEVED_S = 150.0
"""For so long after a beat what was said holds: two may be missed."""
_THERE, _GONE = b'{"alive": true}', b'{"alive": false}'


def presence_message(device: str, *, there: bool) -> tuple[str, bytes]:
    """Return subject and body of the word that a device's agent is there, or is not."""
    return f"{BEAT}.{device}", _THERE if there else _GONE


def read_presence(subject: str, body: bytes) -> tuple[str, bool] | None:
    """Return which device a message is about, and whether its agent is there; None: it is none of these."""
    prefix, _, device = subject.rpartition(".")
    if prefix != BEAT or not device or body not in (_THERE, _GONE):
        return None
    return device, body == _THERE
