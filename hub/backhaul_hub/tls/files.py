"""The files behind TLS in a hub directory: made, renewed, replaced.

    tls/ca.pem        what vehicles and clients trust: the authority now, then former ones
    tls/ca.key        its key. Needed to renew only, so it may be kept elsewhere; none with the
                      operator's own certificates
    tls/ca-cross.pem  while a former authority is trusted: the authority now, signed by it
    tls/server.pem    the server's key, its certificate, ca-cross.pem; of a cluster in each server's
                      directory, with ca.pem beside it

Key and certificate are one file, so that a server never reads one without the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backhaul_hub.errors import CertificateError
from backhaul_hub.private_files import alone_in, write_private
from backhaul_hub.servers import server_directories
from backhaul_hub.tls.authority import (
    Authority,
    endorse,
    issue,
    names_of,
    new_authority,
    pem,
    read_authority,
    read_certificates,
)
from backhaul_hub.tls.handshake import require_accepted

if TYPE_CHECKING:
    from cryptography import x509

TLS = "tls"
CA = "ca.pem"
CA_KEY = "ca.key"
CROSS = "ca-cross.pem"
SERVER = "server.pem"


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """An operator's own certificate: three files in PEM."""

    certificate: Path
    """Of the server, then of those between it and the authority."""
    key: Path
    ca: Path
    """The authorities that vehicles and clients trust."""


def make_certificates(
    directory: Path,
    names: Mapping[Path, Sequence[str]],
    now: datetime,
    *,
    of: Path | None = None,
) -> None:
    """Make an authority, and a certificate for each server.

    Args:
        directory: the hub directory.
        names: of each server, by the directory of its files: under which it is dialled.
        now: when.
        of: another hub's directory, whose authority this hub goes on with, where it has one.

    Raises:
        CertificateError: a name is none, or the other hub's authority has its key elsewhere.
        OSError: a file cannot be written.
    """
    if of is not None and has_tls(of):
        trusted = trusted_authorities(of)
        authority = _signer(trusted, of / TLS / CA_KEY)
        cross = _cross(of, authority)
    else:
        authority, cross = new_authority(now), ""
        trusted = [authority.certificate]
    issued = {target: _bundle(authority, own, now) + cross for target, own in names.items()}
    (directory / TLS).mkdir(mode=0o700, exist_ok=True)
    write_private(directory / TLS / CA_KEY, authority.key_pem)
    if cross:
        write_private(directory / TLS / CROSS, cross)
    _place(directory, issued, pem(*trusted))


def use_certificate(
    directory: Path, own: OwnCertificate, names: Mapping[Path, Sequence[str]]
) -> None:
    """Have each server show the operator's own certificate.

    Nothing is changed unless it is accepted under each name of each server, and, of a cluster, by
    the other servers.

    Raises:
        CertificateError: it would be refused.
        OSError: a file cannot be written.
    """
    for each in names.values():
        require_accepted(own.certificate, own.key, own.ca, each, dials=len(names) > 1)
    bundle = own.key.read_text() + own.certificate.read_text()
    # Read through our own eyes too: health and `tls show` look at it.
    ca = pem(*read_certificates(own.ca.read_text()))
    with alone_in(directory):
        (directory / TLS).mkdir(mode=0o700, exist_ok=True)
        for stale in (CA_KEY, CROSS):
            (directory / TLS / stale).unlink(missing_ok=True)
        _place(directory, dict.fromkeys(names, bundle), ca)


@dataclass(frozen=True, slots=True)
class Renewal:
    """The certificates of a hub to make anew."""

    names: tuple[str, ...] = ()
    """More names for every server."""
    ca_key: Path | None = None
    """Where the authority's key is, if not in the hub directory."""
    new_ca: bool = False
    """Make a new authority; the former one is trusted on."""
    forget_former: bool = False
    """Trust the authority of now only."""


def renew(directory: Path, renewal: Renewal, now: datetime) -> list[Path]:
    """Make a new certificate for every server, for the names it had; return the files.

    Raises:
        CertificateError: the hub has no TLS, or the authority's key is not there or another's.
        OSError: a file cannot be read or written.
    """
    require_tls(directory)
    with alone_in(directory):
        trusted = read_certificates((directory / TLS / CA).read_text())
        key_file = renewal.ca_key or directory / TLS / CA_KEY
        authority = _signer(trusted, key_file)
        if renewal.new_ca:
            authority = _succeed(directory, authority, trusted, now)
        former = (
            []
            if renewal.forget_former
            else [each for each in trusted if each != authority.certificate]
        )
        if not former:
            (directory / TLS / CROSS).unlink(missing_ok=True)
        cross = _cross(directory, authority)
        issued = {
            target: _bundle(authority, [*_names(target), *renewal.names], now) + cross
            for target in server_directories(directory)
        }
        _place(directory, issued, pem(authority.certificate, *former))
        return [target / TLS / SERVER for target in issued]


def has_tls(directory: Path) -> bool:
    """Tell whether a hub's servers speak TLS."""
    return (directory / TLS / CA).exists()


def ca_text(directory: Path) -> str:
    """Return the certificates that vehicles should trust, in PEM; nothing where the hub has no TLS."""
    return (directory / TLS / CA).read_text() if has_tls(directory) else ""


def require_tls(directory: Path) -> None:
    """Raise a CertificateError where a hub has no TLS."""
    if not has_tls(directory):
        raise CertificateError(
            f"{directory} is a hub without TLS: it listens on loopback only",
            hint="one that others reach is made with: backhaul-hub init --tls-name hub.example.org",
        )


def server_certificates(directory: Path) -> dict[str, x509.Certificate]:
    """Return each server's certificate, by the name of its directory ("" where there is one)."""
    require_tls(directory)
    found = {}
    for target in server_directories(directory):
        name = "" if target == directory else target.name
        found[name] = read_certificates((target / TLS / SERVER).read_text())[0]
    return found


def trusted_authorities(directory: Path) -> list[x509.Certificate]:
    """Return the authorities that clients trust, the one of now first."""
    require_tls(directory)
    return read_certificates((directory / TLS / CA).read_text())


def former_authorities(directory: Path) -> int:
    """Return how many authorities are trusted beside the one of now."""
    return len(trusted_authorities(directory)) - 1


def _signer(trusted: Sequence[x509.Certificate], key_file: Path) -> Authority:
    try:
        key = key_file.read_text()
    except FileNotFoundError:
        raise CertificateError(
            f"the authority's key is not at {key_file}",
            hint="say where with --ca-key; certificates of your own are replaced with:"
            " backhaul-hub tls use",
        ) from None
    return read_authority(trusted, key)


def _succeed(
    directory: Path, former: Authority, trusted: Sequence[x509.Certificate], now: datetime
) -> Authority:
    """Make a new authority and write it; at each step the present files fit together."""
    new = new_authority(now)
    write_private(directory / TLS / CA, pem(new.certificate, *trusted))
    write_private(directory / TLS / CROSS, pem(endorse(new, former, now)))
    write_private(directory / TLS / CA_KEY, new.key_pem)
    return new


def _cross(directory: Path, authority: Authority) -> str:
    """Return ca-cross.pem where there is one, and it is about this authority."""
    path = directory / TLS / CROSS
    text = path.read_text() if path.exists() else ""
    about = read_certificates(text)[0].subject if text else None
    return text if about == authority.certificate.subject else ""


def _names(target: Path) -> list[str]:
    return names_of(read_certificates((target / TLS / SERVER).read_text())[0])


def _bundle(authority: Authority, names: Sequence[str], now: datetime) -> str:
    key, certificate = issue(authority, list(dict.fromkeys(names)), now)
    return key + pem(certificate)


def _place(directory: Path, bundles: Mapping[Path, str], ca: str) -> None:
    """Write the clients' trust, then the servers' certificates."""
    for target in dict.fromkeys([directory, *bundles]):
        (target / TLS).mkdir(mode=0o700, exist_ok=True)
        write_private(target / TLS / CA, ca)
    for target, bundle in bundles.items():
        write_private(target / TLS / SERVER, bundle)
