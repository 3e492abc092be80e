"""Certificates that a hub makes for itself, and those that an operator brings."""

from __future__ import annotations

import contextlib
import fcntl
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from backhaul_hub.errors import CertificateError
from backhaul_hub.private_files import write_private
from backhaul_hub.tls import authority, handshake
from backhaul_hub.tls import files as tls_files
from backhaul_hub.tls.authority import (
    AUTHORITY_LIFE,
    SERVER_LIFE,
    names_of,
    new_authority,
    pem,
    read_authority,
    read_certificates,
)
from backhaul_hub.tls.facts import facts
from backhaul_hub.tls.files import (
    OwnCertificate,
    Renewal,
    former_authorities,
    has_tls,
    make_certificates,
    renew,
    server_certificates,
    use_certificate,
)
from backhaul_hub.tls.handshake import require_accepted
from tests.hub.certificates import NOW, own

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["hub.example.org", "10.1.2.3", "localhost", "::1"]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A hub directory with TLS."""
    directory = tmp_path / "hub"
    directory.mkdir()
    make_certificates(directory, {directory: NAMES}, NOW)
    return directory


def accepted(server: Path, ca: Path, *names: str, dials: bool = False) -> None:
    require_accepted(server, server, ca, names, dials=dials)


def trusting(tmp_path: Path, hub: Path) -> Path:
    """What a vehicle was given at this moment."""
    kept = tmp_path / f"vehicle-{len(list(tmp_path.iterdir()))}.pem"
    kept.write_bytes((hub / "tls" / "ca.pem").read_bytes())
    return kept


def test_a_hubs_own_certificate_is_accepted_under_its_names_and_no_other(hub: Path) -> None:
    server, ca = hub / "tls" / "server.pem", hub / "tls" / "ca.pem"
    accepted(server, ca, *NAMES, dials=True)
    for other in ("example.org", "other.example.org", "10.1.2.4"):
        with pytest.raises(CertificateError, match=r"(?i)mismatch"):
            accepted(server, ca, other)
    for name in ("ca.key", "server.pem"):
        assert (hub / "tls" / name).stat().st_mode & 0o777 == 0o600
    assert (hub / "tls").stat().st_mode & 0o777 == 0o700


def test_a_vehicle_that_thinks_it_is_1970_accepts_it_and_it_lasts_as_long_as_was_said(
    hub: Path,
) -> None:
    (server,) = server_certificates(hub).values()
    (ca,) = read_certificates((hub / "tls" / "ca.pem").read_text())
    assert (
        server.not_valid_before_utc == ca.not_valid_before_utc == datetime(1970, 1, 1, tzinfo=UTC)
    )
    assert server.not_valid_after_utc == NOW + SERVER_LIFE
    assert ca.not_valid_after_utc == NOW + AUTHORITY_LIFE


def test_a_certificate_never_outlives_its_authority(tmp_path: Path) -> None:
    old = new_authority(NOW - AUTHORITY_LIFE + timedelta(days=3))
    _, server = authority.issue(old, ["hub"], NOW)
    assert server.not_valid_after_utc == NOW + timedelta(days=3)
    cross = authority.endorse(new_authority(NOW), old, NOW)
    assert cross.not_valid_after_utc == NOW + timedelta(days=3)


@pytest.mark.parametrize("name", ["", "hub example", "nats://hub", "-hub", "hub:7422"])
def test_what_is_no_name_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(CertificateError, match="no name of a server"):
        make_certificates(tmp_path, {tmp_path: ["hub", name]}, NOW)
    with pytest.raises(CertificateError, match="needs a name"):
        make_certificates(tmp_path, {tmp_path: []}, NOW)
    assert not has_tls(tmp_path)


def test_a_renewed_certificate_is_for_the_same_names_and_the_new_ones(
    tmp_path: Path, hub: Path
) -> None:
    vehicle = trusting(tmp_path, hub)
    before = (hub / "tls" / "server.pem").read_text()
    later = NOW + timedelta(days=800)
    assert renew(hub, Renewal(("hub2.example.org",)), later) == [hub / "tls" / "server.pem"]
    assert (hub / "tls" / "server.pem").read_text() != before
    accepted(hub / "tls" / "server.pem", vehicle, *NAMES, "hub2.example.org")
    (server,) = server_certificates(hub).values()
    assert server.not_valid_after_utc == later + SERVER_LIFE
    assert vehicle.read_bytes() == (hub / "tls" / "ca.pem").read_bytes()


def test_a_new_authority_is_reached_through_the_former_one_until_that_is_forgotten(
    tmp_path: Path, hub: Path
) -> None:
    server = hub / "tls" / "server.pem"
    first = trusting(tmp_path, hub)
    renew(hub, Renewal(new_ca=True), NOW)
    overlap = trusting(tmp_path, hub)
    assert former_authorities(hub) == 1
    # One that knows the new authority only, as after the former one was forgotten.
    (tmp_path / "new.pem").write_text(pem(read_certificates(overlap.read_text())[0]))
    for ca in (first, overlap, tmp_path / "new.pem"):
        accepted(server, ca, *NAMES, dials=True)
    renew(hub, Renewal(), NOW + timedelta(days=1))
    accepted(server, first, *NAMES)

    renew(hub, Renewal(forget_former=True), NOW + timedelta(days=2))
    assert former_authorities(hub) == 0
    accepted(server, overlap, *NAMES)
    with pytest.raises(CertificateError, match="unable to get local issuer"):
        accepted(server, first, *NAMES)


def test_three_authorities_follow_one_another(tmp_path: Path, hub: Path) -> None:
    renew(hub, Renewal(new_ca=True), NOW)
    second = trusting(tmp_path, hub)
    renew(hub, Renewal(new_ca=True), NOW)
    assert former_authorities(hub) == 2
    accepted(hub / "tls" / "server.pem", second, *NAMES)


def test_the_authoritys_key_can_be_kept_elsewhere(tmp_path: Path, hub: Path) -> None:
    offline = tmp_path / "offline.key"
    (hub / "tls" / "ca.key").rename(offline)
    assert not facts(hub, NOW)["ca_key"]
    with pytest.raises(CertificateError, match="--ca-key"):
        renew(hub, Renewal(), NOW)
    renew(hub, Renewal(ca_key=offline), NOW)
    assert not (hub / "tls" / "ca.key").exists(), "it was not brought back"
    offline.write_text(new_authority(NOW).key_pem)
    with pytest.raises(CertificateError, match="none of the hub's"):
        renew(hub, Renewal(ca_key=offline), NOW)
    offline.write_text("no key")
    with pytest.raises(CertificateError, match="no private key"):
        renew(hub, Renewal(ca_key=offline), NOW)


def test_keys_of_another_kind_are_refused_in_words(hub: Path) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (ca,) = read_certificates((hub / "tls" / "ca.pem").read_text())
    with pytest.raises(CertificateError, match="none of the hub's"):
        read_authority([ca], key.decode())


def test_an_operators_certificate_takes_the_place_of_the_hubs_own(
    tmp_path: Path, hub: Path
) -> None:
    brought = own(tmp_path / "own", "hub.example.org")
    use_certificate(hub, brought, {hub: ["hub.example.org"]})
    accepted(hub / "tls" / "server.pem", brought.ca, "hub.example.org")
    assert (hub / "tls" / "server.pem").stat().st_mode & 0o777 == 0o600
    assert not (hub / "tls" / "ca.key").exists()
    with pytest.raises(CertificateError, match="tls use"):
        renew(hub, Renewal(), NOW)


def test_an_operators_certificate_and_a_renewed_one_are_not_written_between_each_other(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = own(tmp_path / "own", "hub.example.org")
    free: list[Path] = []

    def write(path: Path, text: str) -> None:
        with (hub / "lock").open("w") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free.append(path)
        write_private(path, text)

    monkeypatch.setattr(tls_files, "write_private", write)
    renew(hub, Renewal(), NOW)
    use_certificate(hub, brought, {hub: ["hub.example.org"]})
    assert free == []


def test_an_operators_certificate_that_would_be_refused_changes_nothing(
    tmp_path: Path, hub: Path
) -> None:
    before = {path.name: path.read_bytes() for path in (hub / "tls").iterdir()}
    brought = own(tmp_path / "own", "hub.example.org")
    other = own(tmp_path / "other", "hub.example.org")
    cases = [
        (brought, "hub.example.net", "(?i)mismatch"),
        (
            OwnCertificate(brought.certificate, other.key, brought.ca),
            "hub.example.org",
            "values mismatch",
        ),
        (
            OwnCertificate(brought.certificate, brought.key, other.ca),
            "hub.example.org",
            "local issuer",
        ),
        (
            OwnCertificate(brought.key, brought.key, brought.ca),
            "hub.example.org",
            "pem lib.*both as PEM",
        ),
        (
            OwnCertificate(brought.certificate, brought.key, brought.key),
            "hub.example.org",
            "no certificate",
        ),
        (
            OwnCertificate(tmp_path / "gone", brought.key, brought.ca),
            "hub.example.org",
            "No such file",
        ),
    ]
    for files, name, reason in cases:
        with pytest.raises(CertificateError, match=reason):
            use_certificate(hub, files, {hub: [name]})
    assert {path.name: path.read_bytes() for path in (hub / "tls").iterdir()} == before


def test_one_that_may_not_dial_is_refused_for_a_cluster(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExtendedKeyUsageOID, "CLIENT_AUTH", ExtendedKeyUsageOID.SERVER_AUTH)
    brought = own(tmp_path / "own", "hub.example.org")
    require_accepted(brought.certificate, brought.key, brought.ca, ["hub.example.org"])
    servers = {hub / "servers" / name: ["hub.example.org"] for name in "abc"}
    with pytest.raises(CertificateError, match=r"purpose|verify"):
        use_certificate(hub, brought, servers)


def test_each_server_of_a_cluster_has_a_certificate_of_its_own(tmp_path: Path) -> None:
    servers = {tmp_path / "servers" / name: [f"{name}.example.org"] for name in "abc"}
    for target in servers:
        target.mkdir(parents=True)
        (target / "hub.conf").touch()
    make_certificates(tmp_path, servers, NOW)
    renew(tmp_path, Renewal(new_ca=True), NOW)
    found = server_certificates(tmp_path)
    assert {name: names_of(each) for name, each in found.items()} == {
        name: [f"{name}.example.org"] for name in "abc"
    }
    assert len({pem(each) for each in found.values()}) == 3
    for target, (name,) in servers.items():
        accepted(target / "tls" / "server.pem", target / "tls" / "ca.pem", name, dials=True)
    assert not (tmp_path / "servers" / "a" / "tls" / "ca.key").exists()


def test_facts_are_those_of_the_files(hub: Path) -> None:
    renew(hub, Renewal(new_ca=True), NOW)
    found = facts(hub, NOW + timedelta(days=800))
    (server,) = found["servers"]
    assert server["names"] == ["hub.example.org", "localhost", "10.1.2.3", "::1"]
    assert server["days_left"] == 25
    assert server["issuer"] == found["trusted"][0]["name"] != found["trusted"][1]["name"]
    assert found["trusted"][0]["days_left"] == 20 * 365 - 800
    assert found["trusted"][0]["sha256"].count(":") == 31
    with pytest.raises(CertificateError, match="without TLS"):
        facts(hub / "tls", NOW)


def test_clients_that_go_by_the_letter_accept_it(hub: Path) -> None:
    """Python 3.13 and later check certificates as strictly as this by default."""
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=str(hub / "tls" / "ca.pem")),
    )
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for _ in range(2):
        server.load_cert_chain(hub / "tls" / "server.pem")
        handshake.shake(server, client, NAMES[0])
        renew(hub, Renewal(new_ca=True), NOW)
