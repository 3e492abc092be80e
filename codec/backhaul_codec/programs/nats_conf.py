"""Pieces of text in nats-server's configuration language."""

from __future__ import annotations

import json
from collections.abc import Iterable


def lines(items: Iterable[str], *, indent: int = 6) -> str:
    """Return the items, each on an indented line of its own."""
    return "\n".join(" " * indent + item for item in items)


def quoted(value: str) -> str:
    """Quote for nats-server's configuration language, and for TOML: supersets of JSON in this."""
    return json.dumps(value, ensure_ascii=False)
