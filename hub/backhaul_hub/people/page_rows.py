"""The rows of page logins in hub.db: links that somebody may use once, and browsers' keys that are logged in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from backhaul_hub.access.revocations import Revocation, revoke
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry

_SECOND_NS = 1_000_000_000
KEPT_NS = 86_400 * _SECOND_NS
"""For so long after its end a link is remembered, so that whoever tries it hears what became of it."""


@dataclass(frozen=True, slots=True)
class PageLink:
    """One link; its token is kept nowhere."""

    hash: str
    """SHA-256 of the token, in hex."""
    name: str
    """Of the person."""
    made_ns: int
    """Since the Unix epoch, as all that follow."""
    expires_ns: int
    used_ns: int = 0


@dataclass(frozen=True, slots=True)
class PageSession:
    """A browser's key that a JWT was signed for."""

    public_key: str
    name: str
    made_ns: int
    expires_s: int
    """When the JWT ends by itself, since the Unix epoch."""


def add_link(link: PageLink) -> list[RowChange]:
    """Return the statements that store a link, and forget those whose end is long past."""
    return [
        RowChange("DELETE FROM page_link WHERE expires_ns < ?", [(link.made_ns - KEPT_NS,)]),
        RowChange("INSERT INTO page_link VALUES (?, ?, ?, ?, ?)", [astuple(link)]),
    ]


def use_link(link: PageLink, session: PageSession) -> list[RowChange]:
    """Return the statements that use a link up and store who logs in by it; those that have ended go."""
    return [
        RowChange(
            "UPDATE page_link SET used_ns = ? WHERE hash = ?", [(session.made_ns, link.hash)]
        ),
        RowChange(
            "DELETE FROM page_session WHERE expires_s < ?", [(session.made_ns // _SECOND_NS,)]
        ),
        RowChange("INSERT INTO page_session VALUES (?, ?, ?, ?)", [astuple(session)]),
    ]


def end_links(name: str | None = None) -> RowChange:
    """Return the statement that takes back links: one person's, or all."""
    if name is None:
        return RowChange("DELETE FROM page_link", [()])
    return RowChange("DELETE FROM page_link WHERE name = ?", [(name,)])


async def end_sessions(registry: Registry, name: str, now_ns: int) -> list[RowChange]:
    """Return the statements that log a person's browsers out, for ever. Raises: RegistryError."""
    found = await registry.fetch(
        "SELECT public_key, expires_s FROM page_session WHERE name = ?", (name,)
    )
    revoked = [
        revoke(Revocation(key, "PEOPLE", name, now_ns, expires_s))
        for key, expires_s in found
        if expires_s > now_ns // _SECOND_NS
    ]
    return [*revoked, RowChange("DELETE FROM page_session WHERE name = ?", [(name,)])]


async def sessions(registry: Registry) -> list[PageSession]:
    """Return who is logged in by links, by key. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT public_key, name, made_ns, expires_s FROM page_session ORDER BY public_key"
    )
    return [PageSession(*row) for row in rows]


def keep_sessions(some: Iterable[PageSession]) -> RowChange:
    """Return the statement that stores sessions which another hub.db has; those that are here stay."""
    rows = [astuple(each) for each in some]
    return RowChange("INSERT OR IGNORE INTO page_session VALUES (?, ?, ?, ?)", rows)


async def link_of(registry: Registry, hash_: str) -> PageLink | None:
    """Return a link by the hash of its token. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT hash, name, made_ns, expires_ns, used_ns FROM page_link WHERE hash = ?", (hash_,)
    )
    return next((PageLink(*row) for row in rows), None)


async def is_taken(registry: Registry, public_key: str) -> bool:
    """Tell whether a user's key is somebody's, or was. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT 1 FROM page_session WHERE public_key = ?1"
        " UNION ALL SELECT 1 FROM person WHERE public_key = ?1"
        " UNION ALL SELECT 1 FROM revocation WHERE public_key = ?1"
        " UNION ALL SELECT 1 FROM device WHERE public_key = ?1",
        (public_key,),
    )
    return bool(rows)
