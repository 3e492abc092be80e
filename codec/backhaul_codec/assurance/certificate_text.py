"""Show certificates, alike at the hub and in the history: as JSON, and as lines for people."""

import json
from typing import Any

from backhaul_codec.assurance.certificates import Certificate
from backhaul_codec.state.point_text import shown, utc

RANGES_SHOWN = 5


def to_json(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as JSON has it; times in UTC, a range without an end has `high` null."""
    return {
        "hour": hour(certificate.hour_ns),
        "state": certificate.state,
        "epochs": list(certificate.epochs),
        "missing": [each._asdict() for each in certificate.missing],
        "explained": [
            each._asdict() | {"high": each.high or None} for each in certificate.explained
        ],
        "why": certificate.why,
        "chain": [each._asdict() for each in certificate.chain],
    }


def hour(hour_ns: int) -> str:
    """Return the beginning of an hour in UTC."""
    return utc(hour_ns)[:16] + "Z"


def line(certificate: Certificate) -> str:
    """Return a certificate as one line. Nothing that a terminal would obey comes out of it."""
    said = [
        *_some(
            [
                f"{each.lane} {_range(each.low, each.high)} (epoch {each.epoch}) missing"
                for each in certificate.missing
            ]
        ),
        *_some(
            [
                f"{each.lane} {_range(each.low, each.high)} (epoch {each.epoch}) will not come:"
                f" {_plain(each.reason)}"
                for each in certificate.explained
            ]
        ),
        *([certificate.why] if certificate.why else []),
    ]
    text = f"{hour(certificate.hour_ns)}  {certificate.state:<9}  {'; '.join(said)}"
    return text.rstrip()


def _some(texts: list[str]) -> list[str]:
    if len(texts) <= RANGES_SHOWN:
        return texts
    return [*texts[:RANGES_SHOWN], f"and {len(texts) - RANGES_SHOWN} ranges more"]


def _range(low: int, high: int) -> str:
    if not high:
        return f"from {low} on"
    return str(low) if low == high else f"{low}..{high}"


def _plain(text: str) -> str:
    return shown(text) if text else json.dumps(text)
