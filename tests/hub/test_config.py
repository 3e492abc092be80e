"""hub.toml: every mistake is named with its file and place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.access.keys import read_keys
from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.nats.nkey import read_key
from backhaul_hub.setup.hub_directory import HubLayout, create_hub

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = HubLayout(
    client_host="127.0.0.1",
    host="127.0.0.1",
    client_port=4222,
    leaf_port=7422,
    leaf_url="nats-leaf://127.0.0.1:7422",
    shards=2,
    watermark_interval_s=1.5,
)


def test_what_init_writes_can_be_read(tmp_path: Path) -> None:
    create_hub(tmp_path / "hub", LAYOUT)
    config = load(tmp_path / "hub")
    assert config.nats.url == "nats://127.0.0.1:4222"
    assert config.fleet.shards == 2
    assert config.watermark.interval_s == 1.5


def test_what_init_writes_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    create_hub(tmp_path / "hub", LAYOUT)
    files = [path for path in (tmp_path / "hub").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    names = {str(path.relative_to(tmp_path / "hub")) for path in files}
    assert {"hub.conf", "hub.toml", "creds/control.creds", "keys/operator.nk"} < names
    assert len([name for name in names if name.startswith("accounts/")]) == 9
    config = load(tmp_path / "hub")
    assert config.nats.control.creds == str(tmp_path / "hub" / "creds" / "control.creds")


def test_the_operators_own_seed_may_go_elsewhere_from_the_start(tmp_path: Path) -> None:
    stick = tmp_path / "operator.nk"
    create_hub(tmp_path / "hub", replace(LAYOUT, operator_key=stick))
    operator = read_key(stick.read_text())
    assert stick.stat().st_mode & 0o777 == 0o600
    keys = read_keys(tmp_path / "hub")
    assert body_of(keys.operator_jwt)["iss"] == operator.public
    texts = [path.read_text() for path in (tmp_path / "hub").rglob("*") if path.is_file()]
    assert not any(operator.seed in text for text in texts)


def test_a_hub_may_take_the_place_of_another(tmp_path: Path) -> None:
    create_hub(tmp_path / "old", LAYOUT)
    create_hub(tmp_path / "new", replace(LAYOUT, keys_of=tmp_path / "old"))
    assert read_keys(tmp_path / "new") == read_keys(tmp_path / "old")
    assert not (tmp_path / "new" / "keys" / "operator.nk").exists()
    with pytest.raises(ConfigError, match="has no keys"):
        create_hub(tmp_path / "x", replace(LAYOUT, keys_of=tmp_path))


@pytest.mark.parametrize(
    "damage", ["", ">", "*", "7edd.430587fb41c4f047a563", "7EDD430587FB41C4F047A563"]
)
def test_a_name_of_the_api_that_is_none_is_refused(tmp_path: Path, damage: str) -> None:
    """A wildcard would have every name of account UP lead to the API."""
    create_hub(tmp_path, LAYOUT)
    (tmp_path / "keys" / "up-api.txt").write_text(damage)
    with pytest.raises(ConfigError, match=r"up-api\.txt holds no name"):
        read_keys(tmp_path)


def test_a_hub_without_an_account_for_up_is_refused_with_what_to_do(tmp_path: Path) -> None:
    create_hub(tmp_path, LAYOUT)
    (tmp_path / "keys" / "up-api.txt").unlink()
    with pytest.raises(ConfigError, match="made by an older backhaul"):
        read_keys(tmp_path)


def test_a_hub_of_an_older_backhaul_is_refused_with_what_to_do(tmp_path: Path) -> None:
    create_hub(tmp_path, LAYOUT)
    path = tmp_path / "hub.toml"
    text = path.read_text()
    path.write_text(text.replace('creds = "creds/', 'user = "a", password = "creds/'))
    with pytest.raises(ConfigError, match="made by an older backhaul"):
        load(tmp_path)


def test_init_leaves_an_existing_hub_alone(tmp_path: Path) -> None:
    create_hub(tmp_path / "hub", LAYOUT)
    before = (tmp_path / "hub" / "hub.toml").read_text()
    with pytest.raises(ConfigError, match="holds a hub already"):
        create_hub(tmp_path / "hub", LAYOUT)
    assert (tmp_path / "hub" / "hub.toml").read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[up]", "[upp]", "unknown field `upp`"),
        ("shards = 2", "shards = 0", r"`int` >= 1 - at `\$.fleet.shards`"),
        ("shards = 2", 'shards = "two"', r"Expected `int`, got `str` - at `\$.fleet.shards`"),
        ("age_days_max", "age_days", "unknown field `age_days` - at"),
        ("[nats]", "[nats", "hub.toml"),
        ("interval_s = 1.5", "interval_s = -1.0", r"> 0.0 - at `\$.watermark.interval_s`"),
        ("interval_s = 1.5", "interval_s = nan", "watermark.interval_s: nan is no number"),
        ("interval_s = 1.5", "interval_s = 1e999", "watermark.interval_s: inf is no number"),
        ("127.0.0.1:4222", "127.0.0.1:99999", "nats.url: .*65535"),
        ("127.0.0.1:7422", "127.0.0.1:99999", "fleet.leaf_url: .*65535"),
        ("127.0.0.1:7422", "127.0.0.1:4222", "fleet.leaf_url: .* is the port for clients"),
        ('"nats-leaf://127.0.0.1:7422"', '""', "fleet.leaf_url: an address is needed"),
        ("127.0.0.1:7422", ":7422", "fleet.leaf_url: .* names no host"),
        (
            "nats://127.0.0.1:4222",
            "nats://a:1,nats://a:1",
            "nats.url: nats://a:1 stands there twice",
        ),
        ("[up]", '[metrics]\nlisten = "127.0.0.1:99999"\n[up]', "metrics.listen: 99999 is no port"),
        (
            "[up]",
            '[metrics]\nlisten = "0.0.0.0:7422"\n[up]',
            "metrics.listen: port 7422 is the server's",
        ),
        ("creds/control", "creds/\\u0000control", r"nats.control.creds: the character U\+0000"),
        ('"creds/twin.creds"', '""', "nats.twin.creds: a file is needed"),
        ("[up]", "[commands]\ndeadline_s_max = 10.0\n[up]", "commands.deadline_s: at most"),
        ("[up]", "[flood]\nsuspend_s_max = 10.0\n[up]", "flood.suspend_s: at most"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    create_hub(tmp_path / "hub", LAYOUT)
    path = tmp_path / "hub" / "hub.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=complaint) as caught:
        load(tmp_path / "hub")
    assert str(path) in str(caught.value)


def test_a_missing_hub_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="backhaul-hub init"):
        load(tmp_path)
