"""A hub directory for three servers, made of that of one: the same keys, revocations and settings."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.access.keys import read_keys
from backhaul_hub.config import load
from backhaul_hub.errors import BackupError, ConfigError
from backhaul_hub.migrate.grown_hub import grown_toml, make_grown, without
from backhaul_hub.migrate.migrate import require_alone
from backhaul_hub.servers import read_places
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from backhaul_hub.tls.setup import TlsChoice
from backhaul_runtime.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

PLACES = read_places(["a=127.0.0.1:4222:7422:6222", "b=10.0.0.2", "c=10.0.0.3"], 4222, 7422, 6222)


def one_server(directory: Path, *, tls: bool = False, page: bool = False) -> Path:
    layout = HubLayout(
        client_host="127.0.0.1",
        host="127.0.0.1",
        client_port=4222,
        leaf_port=7422,
        leaf_url="nats-leaf://127.0.0.1:7422",
        shards=2,
        watermark_interval_s=3.0,
        env="field",
        tls=TlsChoice() if tls else None,
        page_port=8470 if page else 0,
        websocket_port=8471 if page else 0,
    )
    create_hub(directory, layout, clock=SystemClock())
    return directory


def grown(old: Path, places: tuple[object, ...] = PLACES, **words: object) -> Path:
    new = old.with_name("grown")
    options = {"host": "", "leaf_url": "", "websocket_port": 8471, "clock": SystemClock()}
    late = make_grown(old, new, places, **options | words)  # type: ignore[arg-type]
    assert [place.name for place in late] == ["a"]
    return new


def test_settings_keys_and_revocations_are_the_old_ones(tmp_path: Path) -> None:
    old = one_server(tmp_path / "old", page=True)
    text = (old / "hub.toml").read_text()
    (old / "hub.toml").write_text(f"{text}\n[health]\npatience = 7  # of ours\n")
    fleet = next((old / "accounts").glob("*.jwt"))
    fleet.write_text("with a revocation")
    (old / "people").mkdir()
    (old / "people" / "anna.creds").write_text("hers")
    (old / "smtp.password").write_text("secret")
    new = grown(old)
    config = load(new)
    assert (config.fleet.shards, config.twin.env, config.health.patience) == (2, "field", 7)
    assert config.watermark.interval_s == 3.0
    assert config.streams.replicas == 3
    assert config.nats.url == "nats://127.0.0.1:4222,nats://10.0.0.2:4222,nats://10.0.0.3:4222"
    assert config.page.websocket == "ws://127.0.0.1:8471,ws://10.0.0.2:8471,ws://10.0.0.3:8471"
    assert "# of ours" in (new / "hub.toml").read_text()
    assert read_keys(new) == read_keys(old)
    for name in "abc":
        copied = new / "servers" / name / "accounts" / fleet.name
        assert copied.read_text() == "with a revocation"
    assert (new / "people" / "anna.creds").read_text() == "hers"
    assert (new / "smtp.password").read_text() == "secret"
    assert not (new / "hub.conf").exists()


def test_certificates_come_from_the_same_authority(tmp_path: Path) -> None:
    old = one_server(tmp_path / "old", tls=True)
    new = grown(old)
    assert (new / "tls" / "ca.pem").read_bytes() == (old / "tls" / "ca.pem").read_bytes()
    assert (new / "servers" / "b" / "tls" / "server.pem").exists()
    assert load(new).fleet.leaf_url.startswith("tls://127.0.0.1:7422,tls://10.0.0.2:7422")


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    old = one_server(tmp_path / "old", tls=True)
    (old / "tls" / "ca.key").unlink()
    with pytest.raises(ConfigError, match="no certificates can be made"):
        grown(old)
    assert not (tmp_path / "grown").exists()


def test_servers_that_wait_for_the_old_one_leave_a_majority(tmp_path: Path) -> None:
    old = one_server(tmp_path / "old")
    places = read_places(
        ["a=127.0.0.1:4222:7423:6222", "b=127.0.0.1:4223:7422:6223", "c=10.0.0.3"], 4222, 7422, 6222
    )
    with pytest.raises(ConfigError, match="a, b have addresses of the old server"):
        grown(old, places)


def test_a_cluster_does_not_grow(tmp_path: Path) -> None:
    new = grown(one_server(tmp_path / "old"))
    with pytest.raises(ConfigError, match="several servers already"):
        make_grown(
            *(new, tmp_path / "again", PLACES),
            host="",
            leaf_url="",
            websocket_port=8471,
            clock=SystemClock(),
        )


def test_addresses_of_the_old_server_are_left_out(tmp_path: Path) -> None:
    old = load(one_server(tmp_path / "old"))
    new = "nats://127.0.0.1:4222,nats://10.0.0.2:4222"
    assert without(new, old) == "nats://10.0.0.2:4222"
    assert without("tls://127.0.0.1:7422,tls://10.0.0.2:7422", old) == "tls://10.0.0.2:7422"


@pytest.mark.parametrize(
    "text",
    [
        '[nats]\nurl = "old"  # here\nother = 1\n[streams]\nreplicas = 1\n',
        '[nats]\nother = 1\n[up]\nurl = "of up"\n',
        '# url = "no"\n[nats]\nother = 1\n',
        "",
    ],
)
def test_a_text_says_what_is_new_and_all_else_as_before(text: str) -> None:
    made = tomllib.loads(grown_toml(text, {("nats", "url"): "new", ("streams", "replicas"): 3}))
    was = tomllib.loads(text)
    assert made == was | {
        "nats": was.get("nats", {}) | {"url": "new"},
        "streams": was.get("streams", {}) | {"replicas": 3},
    }


def test_a_hub_of_several_servers_is_not_mirrored() -> None:
    require_alone({})
    require_alone({"cluster": {"leader": "a"}})
    with pytest.raises(BackupError, match="several servers") as caught:
        require_alone({"cluster": {"leader": "a", "replicas": [{"name": "b"}]}})
    assert "backhaul-hub backup" in caught.value.hint
