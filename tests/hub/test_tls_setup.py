"""Which hubs have TLS, and for which names: what `init` writes, read by the real server."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from backhaul_hub.cli.main import cli
from backhaul_hub.config import load
from backhaul_hub.errors import CertificateError
from backhaul_hub.servers import server_directories
from backhaul_hub.tls.authority import names_of
from backhaul_hub.tls.files import has_tls, server_certificates, trusted_authorities
from backhaul_hub.tls.setup import is_loopback
from tests.hub.certificates import NOW, own
from tests.support.nats_server import server_binary

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats]
REACHED = ("--host", "0.0.0.0", "--leaf-url", "tls://hub.example.org:7422")
LOOPBACK = ["localhost", "127.0.0.1", "::1"]
CLUSTER = [word for n in "abc" for word in ("--server", f"{n}={n}.example.org")]


def init(directory: Path, *words: str) -> Result:
    result = CliRunner().invoke(cli, ["init", str(directory), *words])
    if result.exit_code == 0:
        for target in server_directories(directory):
            command = [server_binary(), "-t", "-c", str(target / "hub.conf")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return result


def blocks(directory: Path) -> list[str]:
    """What speaks TLS in the first server's hub.conf."""
    text = (server_directories(directory)[0] / "hub.conf").read_text()
    found, block = [], "client"
    for line in text.splitlines():
        if line.startswith(("leafnodes {", "cluster {")):
            block = line.split()[0]
        elif line == "tls {":
            found.append(block)
    return found


def names(directory: Path) -> dict[str, list[str]]:
    return {name: names_of(each) for name, each in server_certificates(directory).items()}


def test_on_loopback_only_where_it_is_asked_for(tmp_path: Path) -> None:
    init(tmp_path / "plain")
    assert blocks(tmp_path / "plain") == []
    assert not has_tls(tmp_path / "plain")
    assert load(tmp_path / "plain").nats.control.ca == ""
    init(tmp_path / "tls", "--tls-name", "box.local")
    assert blocks(tmp_path / "tls") == ["client", "leafnodes"]
    assert names(tmp_path / "tls") == {"": ["box.local", *LOOPBACK]}
    config = load(tmp_path / "tls")
    assert config.nats.url == "tls://127.0.0.1:4222"
    assert config.fleet.leaf_url == "tls://127.0.0.1:7422"
    assert config.nats.control.ca == str(tmp_path / "tls" / "tls" / "ca.pem")


@pytest.mark.parametrize(
    "words",
    [
        REACHED,
        ("--host", "10.0.0.1"),
        ("--client-host", "10.0.0.1"),
        ("--leaf-url", "nats-leaf://hub.example.org:7422"),
    ],
)
def test_always_where_others_reach_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    init(tmp_path / "hub", *words)
    assert blocks(tmp_path / "hub") == ["client", "leafnodes"]
    (found,) = names(tmp_path / "hub").values()
    assert {"hub.example.org", "10.0.0.1"} & set(found)
    assert "0.0.0.0" not in found


def test_a_wildcard_is_dialled_by_a_name_that_the_certificate_has(tmp_path: Path) -> None:
    init(tmp_path / "hub", *REACHED, "--client-host", "0.0.0.0")
    assert load(tmp_path / "hub").nats.url == "tls://localhost:4222"
    files = own(tmp_path / "own", "hub.example.org")
    words = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    init(
        tmp_path / "own" / "hub",
        *REACHED,
        "--client-host",
        "0.0.0.0",
        *words,
        "--tls-ca",
        str(files.ca),
    )
    assert load(tmp_path / "own" / "hub").nats.url == "tls://hub.example.org:4222"


def test_servers_of_a_cluster_show_one_another_certificates_of_their_own(tmp_path: Path) -> None:
    init(tmp_path / "hub", *CLUSTER)
    assert blocks(tmp_path / "hub") == ["client", "cluster", "leafnodes"]
    every = [f"{name}.example.org" for name in "abc"]
    for name, found in names(tmp_path / "hub").items():
        assert found[0] == f"{name}.example.org"
        assert set(found) == {*every, *LOOPBACK}


def test_an_operators_own_is_not_asked_to_be_for_loopback(tmp_path: Path) -> None:
    files = own(tmp_path / "own", "hub.example.org")
    words = ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    half = init(tmp_path / "hub", *REACHED, *words)
    assert half.exit_code == 2
    assert "belong together" in half.output
    words += ["--tls-ca", str(files.ca)]
    init(tmp_path / "hub", *REACHED, *words)
    assert blocks(tmp_path / "hub") == ["leafnodes"]
    assert load(tmp_path / "hub").nats.url == "nats://127.0.0.1:4222"
    wrong = init(tmp_path / "wrong", "--leaf-url", "tls://hub.example.net:7422", *words)
    assert isinstance(wrong.exception, CertificateError)
    assert not (tmp_path / "wrong" / "hub.toml").exists()
    assert init(tmp_path / "both", *REACHED, *words, "--tls-name", "x").exit_code == 2


@pytest.mark.parametrize(
    ("names", "age_years", "words"),
    [
        (["hub.example.org"], 0, "mismatch"),
        (["127.0.0.1"], 30, "expired"),
    ],
)
def test_an_operators_own_that_no_vehicle_would_accept_is_refused_on_loopback_too(
    tmp_path: Path, names: list[str], age_years: int, words: str
) -> None:
    files = own(tmp_path / "own", *names, now=NOW - timedelta(days=365 * age_years))
    brought = [
        *("--tls-cert", str(files.certificate), "--tls-key", str(files.key)),
        *("--tls-ca", str(files.ca)),
    ]
    refused = init(tmp_path / "hub", *brought)
    assert isinstance(refused.exception, CertificateError)
    assert words in str(refused.exception)
    assert not (tmp_path / "hub" / "hub.toml").exists()


def test_an_operators_key_and_authority_have_to_fit(tmp_path: Path) -> None:
    files, others = own(tmp_path / "own", "127.0.0.1"), own(tmp_path / "others", "127.0.0.1")
    for key, ca in ((others.key, files.ca), (files.key, others.ca)):
        refused = init(
            tmp_path / "hub",
            *("--tls-cert", str(files.certificate), "--tls-key", str(key), "--tls-ca", str(ca)),
        )
        assert isinstance(refused.exception, CertificateError)
    assert not (tmp_path / "hub" / "hub.toml").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--port", "99999"),
        ("--leaf-port", "0"),
        ("--port", "7422"),
        ("--leaf-url", "tls://hub.example.org:99999"),
        ("--leaf-url", "hub.example.org:7422"),
        ("--leaf-url", "nats://hub.example.org:7422"),
        ("--leaf-url", "tls://a.example.org:7422,nats://b.example.org:7422"),
    ],
)
def test_ports_and_addresses_that_are_none_are_refused(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert init(tmp_path / "hub", *words).exit_code == 2
    assert not (tmp_path / "hub").exists()


def test_a_hub_in_the_place_of_another_is_believed_by_its_vehicles(tmp_path: Path) -> None:
    init(tmp_path / "old", *REACHED)
    init(tmp_path / "new", "--keys-of", str(tmp_path / "old"))
    assert blocks(tmp_path / "new") == ["client", "leafnodes"]
    assert trusted_authorities(tmp_path / "new") == trusted_authorities(tmp_path / "old")
    (tmp_path / "old" / "tls" / "ca.key").unlink()
    refused = init(tmp_path / "third", "--keys-of", str(tmp_path / "old"))
    assert isinstance(refused.exception, CertificateError)


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]")))
    assert not any(map(is_loopback, ("hub", "10.0.0.1", "0.0.0.0", "::", "localhost.example.org")))
