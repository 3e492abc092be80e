"""What docs/sync.md and the README say of the agent is so."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import click

import backhaul_agent
from backhaul_agent.cli.main import cli
from backhaul_agent.errors import Code
from backhaul_agent.sync import requests as config_requests
from backhaul_agent.sync.requests import PointRequest, read

ROOT = Path(__file__).parents[2]
PACKAGE = Path(backhaul_agent.__file__).parent
SYNC = (ROOT / "docs/sync.md").read_text()
README = (ROOT / "agent/README.md").read_text()


def codes_raised_in(*modules: str) -> set[str]:
    names = {
        node.attr
        for module in modules
        for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Code"
    }
    return {Code[name].value for name in names}


def test_every_refusal_of_a_config_request_is_explained() -> None:
    codes = codes_raised_in("sync/requests", "sync/writes", "sync/service", "commit/commit_loop")
    assert {"cycle", "no_such_node", "storage"} <= codes
    assert codes <= set(re.findall(r"`(\w+)`", SYNC.partition("### One frame")[0]))


def test_every_code_is_explained_somewhere() -> None:
    documented = set(re.findall(r"`(\w+)`", README + SYNC))
    assert {code.value for code in Code} <= documented


def test_every_command_is_in_the_readme() -> None:
    words = set(re.findall(r"[a-z-]+", README))
    assert set(cli.list_commands(click.Context(cli))) <= words


def test_subjects_are_those_of_the_code() -> None:
    for name in ("GET", "SET", "NODE", "TREE", "CHANGED", "READY"):
        assert f"`{getattr(config_requests, name)}" in SYNC


def test_the_points_to_write_can_be_written() -> None:
    examples = re.findall(r"`(\{\"type\".*?\})`", SYNC)
    assert len(examples) == 2
    for example in examples:
        point = read(json.dumps(json.loads(example)).encode(), PointRequest)
        assert point.type == "rate"
