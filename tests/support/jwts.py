"""JWTs for tests."""

from __future__ import annotations

import base64
import json


def jwt_of(claims: object) -> str:
    parts = [json.dumps(part).encode() for part in ({"typ": "JWT"}, claims)]
    return ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in [*parts, b"signature"]
    )
