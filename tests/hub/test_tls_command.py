"""`backhaul-hub tls`, on a hub whose server does not run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from backhaul_hub.cli.main import cli
from backhaul_hub.errors import CertificateError
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from backhaul_hub.tls.files import make_certificates
from tests.hub.certificates import own
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    directory = tmp_path / "hub"
    url = "nats-leaf://hub.example.org:7422"
    create_hub(directory, HubLayout("127.0.0.1", "127.0.0.1", free_port(), 7422, url, 1, 5.0))
    return directory


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the wait for a server that does not run; it is another test's."""

    async def tell(*_: Any, files: bool) -> str:
        assert files
        return ""

    monkeypatch.setattr("backhaul_hub.cli._act.told", tell)


def run(hub: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["tls", *words, "--dir", str(hub)])


def test_a_hub_without_tls_is_told_how_to_have_it(hub: Path) -> None:
    for words in (["show"], ["renew"]):
        result = run(hub, *words)
        assert isinstance(result.exception, CertificateError)
        assert "init --tls-name" in str(result.exception)


def test_a_certificate_is_shown_and_renewed_and_a_server_that_was_not_told_is_said(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_hub.nats.connection._CONNECT_TIMEOUT_S", 0.1)
    make_certificates(hub, {hub: ["hub.example.org"]}, NOW)
    before = run(hub, "show").stdout
    assert "server hub: hub.example.org\n  signed by CN=backhaul hub CA " in before
    assert "ca.key, is in the hub directory" in before
    result = run(hub, "renew", "--tls-name", "hub2.example.org")
    assert result.exit_code == 0
    assert f"{hub}/tls/server.pem is new" in result.stdout
    assert "The server was not told (no connection to" in result.stderr
    (shown,) = json.loads(run(hub, "show", "--json").stdout)["servers"]
    assert shown["names"] == ["hub.example.org", "hub2.example.org"]
    assert shown["days_left"] in (824, 825)


@pytest.mark.usefixtures("told")
def test_changing_the_authority_says_what_is_left_to_do(hub: Path) -> None:
    make_certificates(hub, {hub: ["hub.example.org"]}, NOW)
    assert "tls renew --forget-former" in run(hub, "renew", "--new-ca").stdout
    assert "1 former" in run(hub, "renew").stdout
    assert run(hub, "renew", "--new-ca", "--forget-former").exit_code == 2
    assert "former" not in run(hub, "renew", "--forget-former").stdout


@pytest.mark.usefixtures("told")
def test_an_operators_own_is_tried_under_every_name_that_is_dialled(hub: Path) -> None:
    make_certificates(hub, {hub: ["hub.example.org"]}, NOW)
    right = own(hub.with_name("right"), "hub.example.org", "127.0.0.1")
    half = own(hub.with_name("half"), "hub.example.org")
    for files, accepted in ((half, False), (right, True)):
        result = run(
            hub,
            *("use", "--tls-cert", str(files.certificate)),
            *("--tls-key", str(files.key), "--tls-ca", str(files.ca)),
        )
        assert (result.exit_code == 0) is accepted, result.output
    shown = json.loads(run(hub, "show", "--json").stdout)
    assert shown["servers"][0]["names"] == ["hub.example.org", "127.0.0.1"]
    assert not shown["ca_key"]
