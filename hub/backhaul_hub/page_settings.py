"""[page] of hub.toml: where browsers find the fleet's page, and the server's WebSocket. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from backhaul_codec.strict.toml_values import listen_problem, url_problem
from backhaul_hub.servers import urls

WILDCARDS = ("0.0.0.0", "[::]", "")  # noqa: S104 - to be told from an address
_LOOPBACK = ("127.0.0.1", "localhost")


class PageSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the page is (docs/page.md)."""

    listen: Annotated[str, Meta(pattern=r"^$|^[^\s:]+:\d{1,5}$|^\[[0-9A-Fa-f:]+\]:\d{1,5}$")] = ""
    """Where its files are served, as in 127.0.0.1:8470; empty: nowhere."""
    url: str = ""
    """Where browsers find it, if that is not `listen`: as where a proxy stands in front."""
    websocket: str = ""
    """Where browsers reach the hub's server, as in wss://hub.example.org:8471; of a cluster all of
    them, separated by commas."""
    creds: str = "creds/page.creds"
    """The login of who serves the page: it may pass on logins, and nothing else."""
    map: str = ""
    """A PMTiles file for the map, in the hub's directory or anywhere; empty: outlines of countries."""
    units: dict[str, Annotated[str, Meta(max_length=20)]] = {}
    """Of series, by `node.type.key`, `node.type` or the type alone."""
    session_h: Annotated[float, Meta(gt=0, le=31 * 24)] = 12.0
    """A login by a link ends by itself after so many hours."""


def page_url(page: PageSection, *, tls: bool) -> str:
    """Return where browsers find the page, with no / at its end.

    Args:
        page: the settings; they listen somewhere.
        tls: whether who serves the page speaks TLS.
    """
    return (page.url or f"{'https' if tls else 'http'}://{page.listen}").rstrip("/")


def origins(page: PageSection, *, tls: bool) -> list[str]:
    """Return the origins that the page's browsers say, so that the server lets them in."""
    own = urlsplit(page_url(page, tls=tls))
    # A browser leaves out the port that its scheme has anyway.
    found = [f"{own.scheme}://{own.netloc}"]
    if not page.url and own.hostname in _LOOPBACK:
        found = [f"{own.scheme}://{host}:{own.port}" for host in _LOOPBACK]
    return found


def connects(page: PageSection) -> list[str]:
    """Return the addresses that a browser may connect to, as the page's policy says them."""
    return urls(page.websocket)


def page_problems(page: PageSection, servers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the key of each value that nothing can be done with, and why.

    Args:
        page: the settings.
        servers: addresses of the hub's servers, which have their ports already.
    """
    if not page.listen:
        return
    if problem := listen_problem(page.listen, [*servers, *urls(page.websocket)]):
        yield "page.listen", problem
    if page.url:
        parts = urlsplit(page.url)
        if parts.scheme not in ("http", "https") or url_problem(page.url):
            yield "page.url", "an address is needed, as in https://fleet.example.org"
    elif page.listen.rpartition(":")[0] in WILDCARDS:
        yield "page.url", "nobody dials a wildcard address: say where browsers find the page"
    found = urls(page.websocket)
    if not found:
        yield "page.websocket", "an address is needed, as in wss://hub.example.org:8471"
    for url in found:
        if urlsplit(url).scheme not in ("ws", "wss") or any(each in url for each in "\"'; \t"):
            yield "page.websocket", f"{url}: ws://HOST:PORT or wss://HOST:PORT"
        elif problem := url_problem(url):
            yield "page.websocket", problem
    if not page.creds:
        yield "page.creds", "a file is needed"
