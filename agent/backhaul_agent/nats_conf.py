"""Pieces of text in nats-server's configuration language."""

from __future__ import annotations

import json


def quoted(value: str) -> str:
    """Quote for nats-server's configuration language, a superset of JSON in this."""
    return json.dumps(value, ensure_ascii=False)
