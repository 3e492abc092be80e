"""The rights that a browser gives the page, as headers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def headers(connects: Sequence[str]) -> Mapping[str, str]:
    """Return the headers of every answer.

    Args:
        connects: where the page may connect to beside its own server: WebSocket addresses.
    """
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "font-src": "'self'",
        "connect-src": " ".join(["'self'", *connects]),
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        # In browsers that know this rule, a script that puts text where HTML is expected fails.
        "require-trusted-types-for": "'script'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    }
