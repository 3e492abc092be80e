"""The subcommand `simulate`, called in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from backhaul_hub.cli.main import cli
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *arguments])


def made(directory: Path) -> Path:
    ports = ("--port", str(free_port()), "--leaf-port", str(free_port()))
    assert (
        invoke("--make-hub", str(directory), "--shards", "2", "--up-gib", "1", *ports).exit_code
        == 0
    )
    return directory
