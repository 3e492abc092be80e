"""The facts of a hub's certificates, as `backhaul-hub tls show --json` prints them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backhaul_hub.tls.authority import names_of
from backhaul_hub.tls.files import CA_KEY, TLS, server_certificates, trusted_authorities

if TYPE_CHECKING:
    from cryptography import x509


def facts(directory: Path, now: datetime) -> dict[str, Any]:
    """Return servers' certificates and trusted authorities. Raises: CertificateError: there is no TLS."""
    # Not above: `-h` of a command must work without it.
    from cryptography.hazmat.primitives import hashes

    servers = server_certificates(directory)
    return {
        "servers": [
            {"server": server, "names": names_of(each), "issuer": each.issuer.rfc4514_string()}
            | _lasts(each, now)
            for server, each in servers.items()
        ],
        "trusted": [
            {
                "name": each.subject.rfc4514_string(),
                "sha256": each.fingerprint(hashes.SHA256()).hex(":"),
            }
            | _lasts(each, now)
            for each in trusted_authorities(directory)
        ],
        "ca_key": (directory / TLS / CA_KEY).exists(),
    }


def _lasts(certificate: x509.Certificate, now: datetime) -> dict[str, Any]:
    until = certificate.not_valid_after_utc
    return {"not_after": until.isoformat(), "days_left": (until - now).days}
