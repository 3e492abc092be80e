"""The logs of leaf server and hub's server: of bounded size, whatever happens, and nobody else's to read."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli as agent_cli
from backhaul_codec.protocol.identity import Identity, encode_identity
from backhaul_hub.cli.main import cli as hub_cli
from tests.support.rig.parts import Part, program
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats]


async def run_until_rotated(conf: Path, log: Path) -> bytes:
    """Run a server whose log may hold little until it has begun its third; return what it printed."""
    text = conf.read_text()
    assert f'log_file: "{log}"' in text
    conf.write_text(re.sub(r"logfile_size_limit: \d+MB", "logfile_size_limit: 2KB", text))
    printed = log.parent / "printed"
    with printed.open("wb") as output:
        server = await asyncio.create_subprocess_exec(
            program("nats-server"), "-c", str(conf), stdout=output, stderr=output
        )
    try:
        await until(lambda: len(list(log.parent.glob(f"{log.name}*"))) >= 3, deadline_s=60)
        first = log.stat().st_ino
        await until(lambda: log.exists() and log.stat().st_ino != first, deadline_s=60)
        assert len(list(log.parent.glob(f"{log.name}*"))) <= 4
    finally:
        server.terminate()
        await server.wait()
    return printed.read_bytes()


async def test_the_log_of_a_leaf_that_nobody_lets_in_is_bounded(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "hub.conf").write_text(
        f'listen: "127.0.0.1:{free_port()}"\n'
        f'leafnodes {{ listen: "127.0.0.1:{port}", authorization {{ user: a, password: b }} }}\n'
    )
    words = [program("nats-server"), "-c", str(tmp_path / "hub.conf")]
    hub = Part("a hub that refuses", words, tmp_path / "hub.log")
    document = tmp_path / "identity.json"
    url = f"nats-leaf://any:any@127.0.0.1:{port}"
    identity = Identity(device="VID-001", token="0123456789abcdef01234567", leaf_urls=(url,))
    document.write_text(encode_identity(identity))
    words = [
        "--dir",
        str(tmp_path / "etc"),
        "--state-dir",
        str(tmp_path),
        "--port",
        str(free_port()),
    ]
    done = CliRunner().invoke(agent_cli, ["enrol", "--file", str(document), *words])
    assert done.exit_code == 0, done.output
    log = tmp_path / "backhaul-leaf" / "leaf.log"
    await hub.start()
    try:
        assert await run_until_rotated(tmp_path / "etc" / "leaf.conf", log) == b""
    finally:
        await hub.stop()
    assert log.parent.stat().st_mode & 0o077 == 0
    assert log.stat().st_mode & 0o007 == 0


async def test_the_log_of_the_hubs_server_is_bounded(tmp_path: Path) -> None:
    words = ["--port", str(free_port()), "--leaf-port", str(free_port())]
    done = CliRunner().invoke(hub_cli, ["init", str(tmp_path / "hub"), *words])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "hub" / "hub.conf").read_text()
    assert (
        f'log_file: "{tmp_path}/hub/hub.log"\nlogfile_size_limit: 64MB\nlogfile_max_num: 4\n'
        in text
    )
    assert (tmp_path / "hub").stat().st_mode & 0o077 == 0
