"""Another key for this vehicle, over the air: made here, certified by the hub, taken by the leaf.

`step` decides on what the hub wishes; `KeyRotation` does it. Every step may be repeated: the key is on
disk before anybody hears of it, and a login is written whole or not at all. Until the leaf server has
logged in with the new key the hub takes the old one, which stays beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import structlog

from backhaul_agent.enrol.request import new_key
from backhaul_agent.files import write_whole
from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_agent.ledger.system_events import event
from backhaul_codec.protocol.credentials import (
    Credentials,
    CredentialsError,
    parse_credentials,
    parse_seed,
)
from backhaul_codec.protocol.rotation import EVENT, Wish, prove_key, read_wish
from backhaul_codec.strict.json import JsonError, read_typed

log = structlog.get_logger("rotation")


class PendingKey(msgspec.Struct, frozen=True):
    """The key of a rotation that is under way."""

    id: str
    seed: str

    def __repr__(self) -> str:
        return f"Kept({self.id!r})"


@dataclass(frozen=True, slots=True)
class RotationStep:
    """The steps of a rotation, in this order."""

    keep: PendingKey | None = None
    """To be on disk before the rest."""
    creds: str = ""
    """The new login, where there is one."""
    forget: bool = False
    """The kept key, which is not needed any more."""
    say: dict[str, Any] | None = None
    """To the hub."""


def step(
    wish: Wish,
    kept: PendingKey | None,
    creds: str,
    device: str,
    make_key: Callable[[], Credentials],
) -> RotationStep:
    """Return the next step for the hub's newest wish.

    ``kept``: the key that an earlier one had us make. ``creds``: our login as it is written; empty:
    there is none.
    """
    own = kept if kept is not None and kept.id == wish.id else None
    if wish.done:
        return RotationStep(forget=own is not None)
    if not wish.jwt:
        key = parse_seed(own.seed) if own else make_key()
        said = {
            "id": wish.id,
            "state": "made",
            "public_key": key.public_key,
            "proof": prove_key(key, device, wish.id),
        }
        return RotationStep(keep=None if own else PendingKey(wish.id, key.seed), say=said)
    try:
        # Where the key is kept no more, the login is written already, or the key is lost.
        key = parse_seed(own.seed) if own else parse_credentials(creds)
        text = parse_credentials(replace(key, jwt=wish.jwt).text()).text()
    except CredentialsError as error:
        return RotationStep(say=_failed(wish, f"the key that was made for it is lost: {error}"))
    return RotationStep(creds=text, say={"id": wish.id, "state": "written"})


class KeyRotation:
    """Takes in the hub's wishes, and answers once a step is committed.

    Args:
        kept: where the key is kept meanwhile.
        creds: where the leaf server's login is written.
        now_ns: for the events' stamps.
    """

    def __init__(self, device: str, kept: Path, creds: Path, now_ns: Callable[[], int]) -> None:
        self._device = device
        self._kept = kept
        self._creds = creds
        self._now_ns = now_ns

    def on_message(self, message: Inbound, changes: Inward) -> None:
        """Take in a wish. Raises: ValueError: it is none."""
        wish = read_wish(message.data)
        # Done when it was read before; the login may be another one since: this vehicle enrolled anew.
        if not message.fresh:
            return
        try:
            said = self._done(wish)
        except OSError as error:
            said = _failed(wish, f"{error.filename or self._creds}: {error.strerror}")
        if said is not None:
            log.info("key_rotation", rotation=wish.id, state=said["state"], why=said.get("why", ""))
            changes.messages.append(event(EVENT, said, self._now_ns()))

    def _done(self, wish: Wish) -> dict[str, Any] | None:
        before = self._creds.read_text() if self._creds.exists() else ""
        to_do = step(wish, self._read_kept(), before, self._device, new_key)
        if to_do.keep is not None:
            write_whole(self._kept, msgspec.json.encode(to_do.keep), mode=0o600)
        if to_do.creds and to_do.creds != before:
            if before:
                write_whole(
                    self._creds.with_name(self._creds.name + ".before"), before.encode(), mode=0o600
                )
            write_whole(self._creds, to_do.creds.encode(), mode=0o600)
        if to_do.forget:
            self._kept.unlink()
        return to_do.say

    def _read_kept(self) -> PendingKey | None:
        with contextlib.suppress(FileNotFoundError, JsonError):
            return read_typed(self._kept.read_bytes(), PendingKey)
        return None


def _failed(wish: Wish, why: str) -> dict[str, Any]:
    return {"id": wish.id, "state": "failed", "why": why}
