"""Logging browsers in: a link that works once, and a JWT for the key that a browser has made.

The link's token stands in the part of the URL that no browser sends to a server; hub.db has its hash alone. The
browser brings the token and a public key. Its private key was made there, and nobody else ever has it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from backhaul_hub import questions
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.logins import PAGE
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RightsError
from backhaul_hub.nats.jwt import user_jwt
from backhaul_hub.nats.nkey import public_text
from backhaul_hub.people.page_rows import (
    PageLink,
    PageSession,
    add_link,
    is_taken,
    link_of,
    use_link,
)
from backhaul_hub.people.rows import Known, known_people
from backhaul_hub.people.scope import Scope
from backhaul_runtime.clock import Clock

_SECOND_NS = 1_000_000_000
_TOKEN_BYTES = 32
_KEY_BYTES = 32
_CONNECTIONS = ("WEBSOCKET",)
_NO_LINK = "this link is none, or was used already"
_ANOTHER = "ask for another one: backhaul-hub user link NAME"


async def make_link(registry: Registry, clock: Clock, name: str, for_s: float) -> str:
    """Return the token of a new link for somebody, to be used once within `for_s` seconds.

    Raises:
        RightsError: there is nobody of that name.
        RegistryError: hub.db is not usable.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    now_ns = clock.now_ns()
    link = PageLink(_hash(token), name, now_ns, now_ns + round(for_s * _SECOND_NS))

    async def decide() -> tuple[Sequence[RowChange], None]:
        if name not in await known_people(registry):
            raise RightsError(f"there is no user {name}", hint="see: backhaul-hub user ls")
        return add_link(link), None

    await registry.write_decided(decide)
    return token


@dataclass(eq=False)
class PageLogins:
    """Gives browsers their JWTs.

    Args:
        session_s: after how many seconds a login ends by itself.
    """

    _keys: HubKeys
    _registry: Registry
    _clock: Clock
    _session_s: float

    async def login(self, scope: Scope, question: questions.PageLogin) -> dict[str, Any]:
        """Return the JWT for a browser's key, with the rights of the link's person, and that person.

        Raises:
            RightsError: the link is none, was used, or has expired; or the key is none, or somebody's.
            RegistryError: hub.db refused; nobody was logged in.
        """
        if scope.person.name != PAGE:
            raise RightsError("who serves the page alone passes on logins")
        public_key = _public_key(question.public_key)
        hash_ = _hash(question.token)
        # A look without a lock first: who guesses keeps nobody from writing.
        _require_good(await link_of(self._registry, hash_), self._clock.now_ns())

        async def decide() -> tuple[Sequence[RowChange], tuple[Known, PageSession]]:
            now_ns = self._clock.now_ns()
            link = _require_good(await link_of(self._registry, hash_), now_ns)
            known = (await known_people(self._registry)).get(link.name)
            if known is None:
                raise RightsError(_NO_LINK, hint=_ANOTHER)
            if await is_taken(self._registry, public_key):
                raise RightsError("this key is somebody's already", hint="load the page again")
            expires_s = now_ns // _SECOND_NS + round(self._session_s)
            session = PageSession(public_key, link.name, now_ns, expires_s)
            return use_link(link, session), (known, session)

        known, session = await self._registry.write_decided(decide)
        return self._answer(known, session)

    def _answer(self, known: Known, session: PageSession) -> dict[str, Any]:
        person, signer = known.person, self._keys.account("PEOPLE")
        jwt = user_jwt(
            person.name,
            session.public_key,
            signer,
            signer.public,
            now_s=session.made_ns // _SECOND_NS,
            rights=replace(person.rights, connection_types=_CONNECTIONS),
            expires_s=session.expires_s,
        )
        return {"jwt": jwt, **person._asdict(), "ends_s": session.expires_s}


def _require_good(link: PageLink | None, now_ns: int) -> PageLink:
    if link is None or link.used_ns:
        raise RightsError(_NO_LINK, hint=_ANOTHER)
    if link.expires_ns <= now_ns:
        raise RightsError("this link has expired", hint=_ANOTHER)
    return link


def _public_key(text: str) -> str:
    """Return a user's key as NATS writes it, of 32 bytes in base64url. Raises: RightsError."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise RightsError("the key is no base64url") from error
    if len(raw) != _KEY_BYTES:
        raise RightsError(f"the key has {len(raw)} bytes, not {_KEY_BYTES}")
    return public_text("user", raw)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
