"""Values that no key of a configuration file may have: pure, for agent.toml and hub.toml alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any
from unicodedata import category
from urllib.parse import urlsplit

TEXT_MAX = 4096


def odd_values(raw: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key of each value that is of no use anywhere, with the reason.

    Args:
        raw: what tomllib has read.
        place: the key of ``raw`` itself.
    """
    if isinstance(raw, dict):
        for key, value in raw.items():
            yield from odd_values(value, f"{place}.{key}" if place else str(key))
    elif isinstance(raw, list):
        for number, value in enumerate(raw):
            yield from odd_values(value, f"{place}[{number}]")
    elif isinstance(raw, float) and not math.isfinite(raw):
        yield place, f"{raw} is no number to count with"
    elif isinstance(raw, str):
        if odd := next((each for each in raw if category(each) == "Cc"), ""):
            yield place, f"the character U+{ord(odd):04X} stands in it"
        if len(raw) > TEXT_MAX:
            yield place, f"{len(raw)} characters, {TEXT_MAX} are allowed"


def url_problem(url: str) -> str:
    """Return the error in a server's address, as in tls://hub.example.org:7422; "" if there is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return f"{url!r}: {error}"
    if not host:
        return f"{url!r} names no host"
    if port == 0 or not parts.scheme:
        return f"{url!r}: SCHEME://HOST:PORT, with a port from 1 to 65535"
    return ""


def listen_problem(listen: str, others: Iterable[str] = ()) -> str:
    """Return the error in a HOST:PORT to listen at ("" for nowhere); "" if there is none.

    Args:
        listen: the value.
        others: addresses of servers, which have their ports already.
    """
    host, _, text = listen.rpartition(":")
    port = int(text or "1")
    if not 1 <= port <= 65535:
        return f"{port} is no port: 1 to 65535"
    taken = next((url for url in others if listen and _same(urlsplit(url).netloc, host, port)), "")
    return f"port {port} is the server's: {taken}" if taken else ""


def _same(netloc: str, host: str, port: int) -> bool:
    there, _, at = netloc.rpartition("@")[2].rpartition(":")
    return at == str(port) and (there == host or host in ("0.0.0.0", "localhost", "127.0.0.1"))  # noqa: S104
