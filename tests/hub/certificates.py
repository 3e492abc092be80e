"""Certificates for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backhaul_hub.tls.files import (
    OwnCertificate,
    make_certificates,
)

if TYPE_CHECKING:
    from pathlib import Path


NOW = datetime(2026, 5, 1, tzinfo=UTC)


def own(directory: Path, *names: str, now: datetime = NOW) -> OwnCertificate:
    """What an operator might bring: made by another authority."""
    directory.mkdir()
    make_certificates(directory, {directory: names}, now)
    text = (directory / "tls" / "server.pem").read_text()
    at = text.index("-----BEGIN CERT")
    files = OwnCertificate(*(directory / name for name in ("cert.pem", "key.pem", "ca.pem")))
    files.key.write_text(text[:at])
    files.certificate.write_text(text[at:])
    files.ca.write_bytes((directory / "tls" / "ca.pem").read_bytes())
    return files
