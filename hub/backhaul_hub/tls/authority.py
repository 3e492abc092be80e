"""A hub's own small certificate authority: makes it, signs with it, reads its certificates. No I/O.

Everything is valid from 1970 on: a vehicle that starts without knowing the time must get in to learn it,
and would take a certificate of today for one that is not valid yet. Where an authority takes the place
of another, the former one signs its name and key too (`endorse`): sent along by the servers, that leads
vehicles that trust the former one alone to the new one.
"""

from __future__ import annotations

import importlib
import ipaddress
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from backhaul_hub.errors import CertificateError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import oid
else:

    class _Late:
        """A module that is imported with its first use: `-h` of a command must work without it."""

        def __init__(self, name: str) -> None:
            self._name = f"cryptography.{name}"

        def __getattr__(self, attribute: str) -> object:
            return getattr(importlib.import_module(self._name), attribute)

    exceptions, x509, oid = _Late("exceptions"), _Late("x509"), _Late("x509.oid")
    hashes, serialization = (
        _Late(f"hazmat.primitives.{name}") for name in ("hashes", "serialization")
    )
    ec = _Late("hazmat.primitives.asymmetric.ec")

AUTHORITY_LIFE = timedelta(days=20 * 365)
"""As long as a vehicle may be in use: what it trusts is only brought to it again by hand."""
SERVER_LIFE = timedelta(days=825)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_VALID_FROM = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that can sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def key_pem(self) -> str:
        """Its key, in the clear."""
        return _key_text(self.key)


def new_authority(now: datetime) -> Authority:
    """Make an authority with a key and a name of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    digest = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest
    name = _named(f"backhaul hub CA {digest[:4].hex()}")
    return Authority(
        _authority_certificate(name, key.public_key(), name, key, now + AUTHORITY_LIFE), key
    )


def endorse(new: Authority, by: Authority, now: datetime) -> x509.Certificate:
    """Return a certificate of the new authority that is signed by another."""
    return _authority_certificate(
        new.certificate.subject,
        new.key.public_key(),
        by.certificate.subject,
        by.key,
        min(now + AUTHORITY_LIFE, by.certificate.not_valid_after_utc),
    )


def issue(
    authority: Authority, names: Collection[str], now: datetime
) -> tuple[str, x509.Certificate]:
    """Make a key and a certificate for a server: reached by these names, and dialling the others.

    Args:
        authority: who signs.
        names: host names and addresses.
        now: the certificate is valid for `SERVER_LIFE` from then on.

    Raises:
        CertificateError: there is no name, or one that is none.
    """
    if not names:
        raise CertificateError("a certificate needs a name", hint="--tls-name hub.example.org")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(key.public_key(), _named("backhaul hub"), authority.certificate.subject)
        .not_valid_after(min(now + SERVER_LIFE, authority.certificate.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(map(_name, names)), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage(
                [oid.ExtendedKeyUsageOID.SERVER_AUTH, oid.ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(_issued_by(authority.key), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return _key_text(key), certificate


def read_authority(certificates: Iterable[x509.Certificate], key_pem: str) -> Authority:
    """Return the authority to which a key belongs.

    Raises:
        CertificateError: the text is no key, or of none of these.
    """
    try:
        key: PrivateKeyTypes = serialization.load_pem_private_key(key_pem.encode(), None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as error:
        raise CertificateError(f"no private key: {error}") from error
    for certificate in certificates:
        if isinstance(key, ec.EllipticCurvePrivateKey) and (
            key.public_key() == certificate.public_key()
        ):
            return Authority(certificate, key)
    raise CertificateError("this key is of none of the hub's certificate authorities")


def read_certificates(text: str) -> list[x509.Certificate]:
    """Read all certificates of a PEM text, leaving out keys. Raises: CertificateError: none is in it."""
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError as error:
        raise CertificateError(f"no certificate: {error}") from error


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the host names and addresses that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return [*found.get_values_for_type(x509.DNSName), *addresses]


def pem(*certificates: x509.Certificate) -> str:
    """Return certificates as text, one after another."""
    return "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in certificates)


def _authority_certificate(
    name: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    until: datetime,
) -> x509.Certificate:
    return (
        _builder(public, name, issuer)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(key_cert_sign=True), critical=True)
        .add_extension(_issued_by(signer), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _builder(
    public: ec.EllipticCurvePublicKey, subject: x509.Name, issuer: x509.Name
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _issued_by(signer: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())


def _key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name)])


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        pass
    if not _HOST.fullmatch(text):
        raise CertificateError(f"{text!r} is no name of a server", hint="as in hub.example.org")
    return x509.DNSName(text)


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
