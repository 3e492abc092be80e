"""The decision on a request to be enrolled: the rules of one-time tokens. Pure.

A token is used up by the first key that asks with it. A repeat by that key gets the same answer, so
an answer that was lost does no harm; every other key is refused.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from backhaul_codec.protocol.enrolment import Code, EnrolmentRefused, Request
from backhaul_hub.device import Device

_SECOND_NS = 1_000_000_000
_VOID: dict[str, tuple[Code, str]] = {
    "revoked": ("revoked", "{} was revoked"),
    "replaced": ("replaced", "{} was given another token"),
    "restored": ("replaced", "this hub was put back from a backup"),
}


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One token, as hub.db has it: never its secret."""

    id: str
    device: str
    device_token: str
    """The token that the device will have in its subjects."""
    made_ns: int
    expires_ns: int
    settings: str
    """What the identity document says of link and nodes, as JSON."""
    public_key: str = ""
    """Of whoever has used it; empty: nobody."""
    used_ns: int = 0
    voided_ns: int = 0
    """When it was taken back: the device was revoked, or given another token."""
    why_voided: str = ""

    def state(self, now_ns: int) -> str:
        """Return `voided`, `used`, `expired` or `open`."""
        if self.voided_ns:
            return "voided"
        if self.used_ns:
            return "used"
        return "expired" if now_ns >= self.expires_ns else "open"


@dataclass(frozen=True, slots=True)
class Accept:
    """The request uses the token up: sign a user for this key, and store both at once."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The asker is the device already: answer as it stands now."""


Decision: TypeAlias = Accept | Repeat | EnrolmentRefused


def decide(
    request: Request,
    enrolment: Enrolment | None,
    known: Device | None,
    spent_keys: Container[str],
    now_ns: int,
) -> Decision:
    """Decide on a request whose proof holds.

    ``enrolment``: the token it names, None where hub.db has none. ``known``: its device, None
    where there is no such device yet. ``spent_keys``: public keys that were revoked or
    replaced, whoever's.
    """
    if enrolment is None:
        return _refused("unknown", "this hub has made no such token, or has forgotten it")
    device = enrolment.device
    if enrolment.voided_ns:
        code, why = _VOID.get(enrolment.why_voided, _VOID["replaced"])
        at = _time(enrolment.voided_ns)
        return _refused(code, f"the token is void: {why.format(device)} at {at}")
    if enrolment.used_ns:
        return _used(request, enrolment, known)
    if now_ns >= enrolment.expires_ns:
        at = _time(enrolment.expires_ns)
        return _refused("expired", f"the token has expired at {at}; make another one")
    if known is not None and not known.revoked_ns:
        return _refused("enrolled", f"{device} is enrolled already, in another way")
    if request.public_key in spent_keys:
        return _refused("old_key", "this key was a device's before, and no key is given out twice")
    return Accept()


def _used(request: Request, enrolment: Enrolment, known: Device | None) -> Decision:
    if (
        known is not None
        and known.token == enrolment.device_token
        and known.public_key == request.public_key
    ):
        return Repeat()
    if request.public_key == enrolment.public_key:
        return _refused("old_key", f"{enrolment.device} has another key by now")
    at = _time(enrolment.used_ns)
    return _refused("used", f"the token was used at {at} by another key")


def _refused(code: Code, message: str) -> EnrolmentRefused:
    return EnrolmentRefused(code=code, message=message)


def _time(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // _SECOND_NS, UTC):%Y-%m-%d %H:%M:%S} UTC"
