"""Whether clients that trust certain authorities would accept a server: a TLS handshake in memory.

The very library that the control plane and the jobs use says so, and why not, before a server shows
the certificate to anybody.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path

from backhaul_hub.errors import CertificateError


def require_accepted(
    certificate: Path, key: Path, ca: Path, names: Iterable[str], *, dials: bool = False
) -> None:
    """See that a server with this certificate is accepted under each of its names.

    Args:
        certificate: of the server, and of those between it and the authority.
        key: of the server. May be the same file.
        ca: the authorities that clients trust.
        names: host names and addresses under which the server is dialled.
        dials: whether it dials other servers, which want to see its certificate too.

    Raises:
        CertificateError: a file is missing or none, they do not fit, or a client would refuse.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        server.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(
            f"{certificate} with key {key}: {_why(error)}", hint="both as PEM, without a password"
        ) from error
    try:
        client.load_verify_locations(ca)
        if dials:
            server.load_verify_locations(ca)
            server.verify_mode = ssl.CERT_REQUIRED
            client.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(f"{ca}: {_why(error)}") from error
    for name in names:
        try:
            shake(server, client, name)
        except ssl.SSLError as error:
            raise CertificateError(
                f"{certificate} would be refused at {name} by who trusts {ca}: {_why(error)}"
            ) from error


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Have a client greet a server by a name, in memory. Raises: ssl.SSLError: one refuses."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    ]
    # One end goes as far as it gets, then the other: TLS 1.3 is through in two rounds, 1.2 in three.
    for _ in range(4):
        ends = [end for end in ends if not _done(end)]
    if ends:
        raise ssl.SSLError("the handshake does not end")


def _done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).partition(" (")[0].lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)
