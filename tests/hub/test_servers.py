"""A hub of several servers: their files, and one control plane for all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli
from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.errors import ConfigError
from backhaul_hub.servers import ServerPlace, read_places, server_directories, urls
from tests.hub.layouts import FixedClock
from tests.support.hub_acts import create_device

if TYPE_CHECKING:
    from pathlib import Path


THREE = ("a=10.0.0.1", "b=10.0.0.2:4333", "c=hub.example.org:4333:7433:6333")


def init(directory: Path, *words: str) -> str:
    """Run `backhaul-hub init` for three servers; return what it said, or what went wrong."""
    servers = [word for text in THREE for word in ("--server", text)]
    done = CliRunner().invoke(cli, ["init", str(directory), *servers, *words])
    return done.output if done.exit_code == 0 else f"{done.exception!r} {done.output}"


def test_ports_are_the_usual_ones_where_none_are_said() -> None:
    a, b, c = read_places(THREE, 4222, 7422, 6222)
    assert a == ServerPlace("a", "10.0.0.1", 4222, 7422, 6222)
    assert (b.client_port, b.leaf_port, b.cluster_port) == (4333, 7422, 6222)
    assert (c.client_port, c.leaf_port, c.cluster_port) == (4333, 7433, 6333)


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (("a=h1", "b=h2"), "2 servers"),
        (("a=h1", "a=h2", "c=h3"), "same name"),
        (("a=h", "b=h", "c=h"), "same host and port"),
        (("a=h1", "b", "c=h3"), "'b' is no server"),
        (("a=h1:4222:4222", "b=h2", "c=h3"), "three different ports"),
        (("a=h1:99999", "b=h2", "c=h3"), "from 1 to 65535"),
    ],
)
def test_a_cluster_that_could_not_work_is_refused(texts: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_places(texts, 4222, 7422, 6222)


async def test_every_server_and_every_vehicle_knows_all_of_them(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    assert "a/hub.conf" in await asyncio.to_thread(init, hub)
    config = load(hub)
    assert config.streams.replicas == 3
    assert urls(config.nats.url)[2] == "tls://hub.example.org:4333"
    made = await create_device(hub, config, FixedClock(), "VID-001", DeviceSettings())

    targets = server_directories(hub)
    assert [target.name for target in targets] == ["a", "b", "c"]
    known = [sorted(path.name for path in (each / "accounts").iterdir()) for each in targets]
    assert known == [known[0]] * 3
    assert len(known[0]) == 9
    b = (targets[1] / "hub.conf").read_text()
    assert "server_name: b\n" in b
    assert "sync_interval: always" in b
    assert "@10.0.0.1:6222" in b
    assert "@hub.example.org:6333" in b
    assert "@10.0.0.2" not in b
    files = [path for path in targets[1].rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert str(targets[1] / "accounts") in b

    document = made.identity.read_text()
    for host in ("10.0.0.1:7422", "10.0.0.2:7422", "hub.example.org:7433"):
        assert document.count(f"//{host}") == 1


def test_vehicles_may_have_other_addresses_of_the_servers(tmp_path: Path) -> None:
    init(tmp_path / "hub", "--leaf-url", "nats-leaf://x:1,nats-leaf://y:2", "--host", "0.0.0.0")
    assert load(tmp_path / "hub").fleet.leaf_url == "nats-leaf://x:1,nats-leaf://y:2"
    text = (tmp_path / "hub" / "servers" / "a" / "hub.conf").read_text()
    assert 'listen: "0.0.0.0:7422"' in text
    assert 'listen: "10.0.0.1:4222"' in text
