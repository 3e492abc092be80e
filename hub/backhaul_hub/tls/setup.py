"""Which TLS a new hub has, and its certificates: part of `init`.

A hub that others than this machine reach always has it. One that listens on loopback only has it where
that is asked for: what goes over loopback is read by nobody else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from backhaul_hub.errors import CertificateError
from backhaul_hub.timestamps import utc
from backhaul_hub.tls.files import OwnCertificate, make_certificates, use_certificate
from backhaul_hub.tls.handshake import require_accepted
from backhaul_runtime.clock import Clock

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class TlsChoice:
    """The options of `backhaul-hub init` about TLS."""

    names: tuple[str, ...] = ()
    """Of the servers, beside the hosts by which they are dialled."""
    own: OwnCertificate | None = None
    """The operator's own certificate; None: the hub makes an authority and certificates."""


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine, as nobody else reaches it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    """Tell whether a host stands for every address of a machine, so that nobody dials it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def hosts_of(urls: Iterable[str]) -> list[str]:
    """Return the hosts of addresses, each once."""
    return list(dict.fromkeys(urlsplit(url).hostname or "" for url in urls))


def write_certificates(
    directory: Path,
    choice: TlsChoice,
    dialled: Mapping[Path, Sequence[str]],
    vehicles: Sequence[str],
    clock: Clock,
    of: Path | None,
) -> None:
    """Write the servers' certificates.

    Args:
        directory: the hub directory.
        choice: what the operator said.
        dialled: of each server, by the directory of its files: the hosts by which it is dialled.
        vehicles: the hosts that vehicles dial.
        clock: says from when on certificates last.
        of: another hub's directory, whose authority this hub goes on with, where it has one.

    Raises:
        CertificateError: the operator's own would be refused, or a name is none.
        OSError: a file cannot be written.
    """
    if choice.own is None:
        names = {target: _named(choice, hosts) for target, hosts in dialled.items()}
        make_certificates(directory, names, utc(clock), of=of)
    else:
        # Its clients on this machine do without TLS, where it is not for loopback. Leaf ports have it
        # always, so whatever vehicles dial is tried, loopback too: that is never nothing.
        remote = {
            target: list(dict.fromkeys([*_remote(hosts), *_dialled(vehicles)]))
            for target, hosts in dialled.items()
        }
        use_certificate(directory, choice.own, remote)


def client_port_has_tls(choice: TlsChoice, host: str) -> bool:
    """Tell whether a client port that listens at this host speaks TLS.

    It does not on loopback with a certificate of the operator's that is not for loopback.
    """
    if choice.own is None or not is_loopback(host):
        return True
    try:
        require_accepted(choice.own.certificate, choice.own.key, choice.own.ca, [host])
    except CertificateError:
        return False
    return True


def _named(choice: TlsChoice, hosts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*choice.names, *_dialled(hosts), *_LOOPBACK]))


def _remote(hosts: Sequence[str]) -> list[str]:
    return [host for host in _dialled(hosts) if not is_loopback(host)]


def _dialled(hosts: Sequence[str]) -> list[str]:
    return [host for host in hosts if host and not is_wildcard(host)]
