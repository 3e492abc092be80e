"""With real servers: logging in to a leaf server by key: the agent, its link switch, a program, the command line."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import nkeys
import pytest
from click.testing import CliRunner, Result

from backhaul_agent.cli.main import cli
from backhaul_agent.client import connect
from backhaul_agent.config import Config, DeviceConfig, NatsConfig
from backhaul_agent.errors import AgentError, LinkSwitchError, NoAgentError
from backhaul_agent.leaf.connection import LeafConnection
from backhaul_agent.link_config import LinkConfig
from backhaul_agent.metered.link_switch import LinkSwitch
from tests.support.nats_server import NatsServer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = pytest.mark.nats

DEVICE = DeviceConfig(id="VID-001", token="tok")
NAMES = ("agent", "system", "stranger")
SEEDS = {
    name: nkeys.encode_seed(name.encode().ljust(32), nkeys.PREFIX_BYTE_USER).decode()
    for name in NAMES
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files with the seeds of the two users of `leaf`, and of one that it does not know."""
    directory = tmp_path_factory.mktemp("keys")
    for name, seed in SEEDS.items():
        (directory / f"{name}.nk").write_text(f"{seed}\n")
    return {name: str(directory / f"{name}.nk") for name in NAMES}


@pytest.fixture(scope="module")
def leaf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A leaf server that knows its users by their public keys, its link taken away."""
    directory = tmp_path_factory.mktemp("keyed") / "leaf"
    public = {
        name: nkeys.from_seed(bytearray(seed.encode())).public_key.decode()
        for name, seed in SEEDS.items()
    }
    directory.mkdir()
    (directory / "link.conf").write_text("disabled: true\n")
    server = NatsServer(
        directory,
        extra=f"""accounts {{
            VEH: {{ jetstream: enabled, users: [ {{ nkey: {public["agent"]} }} ] }}
            SYS: {{ users: [ {{ nkey: {public["system"]} }} ] }}
        }}
        system_account: SYS
        leafnodes {{ remotes: [ {{
            url: "nats-leaf://127.0.0.1:9", account: VEH
            include "link.conf"
        }} ] }}""",
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


def config_of(leaf: NatsServer, nkey: str, system_nkey: str = "") -> Config:
    return Config(
        device=DEVICE,
        nats=NatsConfig(url=leaf.url, nkey=nkey),
        link=LinkConfig(file=str(leaf.directory / "link.conf"), system_nkey=system_nkey),
    )


@asynccontextmanager
async def linked(
    leaf: NatsServer, nkey: str
) -> AsyncIterator[tuple[LeafConnection, asyncio.Event]]:
    """Run an agent's link with a key, and what tells that the server has answered on it."""
    link, connected = LeafConnection(config_of(leaf, nkey), lambda error: None), asyncio.Event()

    async def session(client: Client) -> None:
        await client.publish("x", b"")
        await client.flush()
        connected.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(link.run(session))
    try:
        yield link, connected
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_agents_link_logs_in_with_its_key(leaf: NatsServer, keys: dict[str, str]) -> None:
    async with linked(leaf, keys["agent"]) as (_, connected), asyncio.timeout(60):
        await connected.wait()


async def test_a_link_without_the_right_key_says_so_and_tries_again(
    leaf: NatsServer, keys: dict[str, str], tmp_path: Path
) -> None:
    key = tmp_path / "agent.nk"
    async with linked(leaf, str(key)) as (link, connected), asyncio.timeout(120):
        await until(lambda: "agent.nk: cannot be read: No such file" in link.last_error)
        key.write_text(SEEDS["stranger"])
        await until(lambda: "authorization violation" in link.last_error.lower())
        key.write_text(SEEDS["agent"])
        await connected.wait()


async def test_the_link_is_switched_by_the_system_accounts_key(
    leaf: NatsServer, keys: dict[str, str], tmp_path: Path
) -> None:
    await LinkSwitch(config_of(leaf, keys["agent"], keys["system"])).set(on=False)
    with pytest.raises(LinkSwitchError, match=r"link\.system_nkey of agent\.toml"):
        await LinkSwitch(config_of(leaf, keys["agent"], keys["agent"])).set(on=False)
    with pytest.raises(LinkSwitchError, match=r"link\.system_nkey .*none\.nk: cannot be read"):
        await LinkSwitch(config_of(leaf, keys["agent"], str(tmp_path / "none.nk"))).set(on=False)


async def test_a_program_logs_in_with_its_key(leaf: NatsServer, keys: dict[str, str]) -> None:
    async with connect(leaf.url, nkey=keys["agent"]) as agent:
        with pytest.raises(AgentError, match="nobody is listening"):
            await agent.status()
    with pytest.raises(NoAgentError, match=r"(?i)authorization violation"):
        async with connect(leaf.url, nkey=keys["stranger"]):
            pass


def test_the_command_line_takes_a_key_or_its_environments(
    leaf: NatsServer, keys: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(
        f'[device]\nid = "VID-001"\ntoken = "tok"\n[nats]\nurl = "{leaf.url}"\nnkey = "agent.nk"\n'
    )
    (tmp_path / "agent.nk").write_text(SEEDS["agent"])

    def said(*arguments: str, key: str = "") -> str:
        environment = {"BACKHAUL_NKEY": key} if key else {}
        result: Result = CliRunner().invoke(cli, ["status", *arguments], env=environment)
        return str(result.exception)

    assert "nobody is listening" in said("--config", str(config))
    assert "nobody is listening" in said("--url", leaf.url, "--nkey", keys["agent"])
    assert "nobody is listening" in said("--url", leaf.url, key=keys["agent"])
    assert "damaged" in said("--config", str(config), key=str(config))
