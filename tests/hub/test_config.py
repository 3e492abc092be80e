"""hub.toml: every mistake is named with its file and place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError
from backhaul_hub.setup import HubLayout, create_hub

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
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "hub").iterdir()}
    written = ("hub.conf", "devices.conf", "fleet-exports.conf", "hub-imports.conf", "hub.toml")
    assert modes == dict.fromkeys(written, 0o600)


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
