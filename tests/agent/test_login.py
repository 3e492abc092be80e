"""Logging in to a leaf server by key: the agent, its link switch, a program, the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nkeys
import pytest

from backhaul_agent.cli.options import login_of
from backhaul_agent.errors import LoginError
from backhaul_agent.leaf.login import login_options

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("agent", "system", "stranger")
SEEDS = {
    name: nkeys.encode_seed(name.encode().ljust(32), nkeys.PREFIX_BYTE_USER).decode()
    for name in NAMES
}


def test_a_key_of_the_command_line_wins_over_the_files(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('[device]\nid="V"\ntoken="t"\n[nats]\nuser="u"\npassword="p"\n')
    login = login_of("", config, "app.nk")
    assert login == {"url": "nats://127.0.0.1:4222", "nkey": "app.nk"}
    assert login_of("nats://a", config, "")["user"] == "u"


def test_a_file_with_no_key_is_refused_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a.nk"
    for content, problem in (
        (SEEDS["agent"][:-1].encode(), "damaged"),
        (b"\xff\xfe", "no text"),
        (b"S" * 100_000, "damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(LoginError, match=rf"a\.nk: .*{problem}.*readable by this user"):
            login_options(nkey=str(path))
    path.write_text(SEEDS["agent"])
    with pytest.raises(LoginError, match="no NATS USER JWT"):
        login_options(credentials=str(path))
    assert login_options() == {}
