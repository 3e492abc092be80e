"""What a file with servers left open is named, and fails no test of another file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEAVES = """
import gc
import socket
import pytest

gc.disable()  # until it is asked for

class Held:
    def __init__(self):
        self.itself, self.socket = self, socket.socket()

{mark}
def test_leaves():
    Held()
"""
COLLECTS = """
import gc

def test_collects():
    gc.collect()
"""
CONFTEST = "from tests.leftovers import _without_leftovers, pytest_sessionfinish\n"
INI = "[pytest]\nfilterwarnings = error\nmarkers = nats: x\n"


@pytest.mark.parametrize(
    ("mark", "failed"), [("@pytest.mark.nats", False), ("", True)], ids=["servers", "none"]
)
def test_only_what_had_servers_may_leave_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, failed: bool
) -> None:
    (tmp_path / "test_b.py").write_text(COLLECTS)
    said = ran(tmp_path, monkeypatch, mark)
    assert bool(said.returncode) == failed, said.stdout
    assert ("left by test_a.py: unclosed <socket" in said.stdout) != failed


def test_what_the_last_file_left_is_named_and_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ran(tmp_path, monkeypatch, "@pytest.mark.nats")
    assert said.returncode == 0, said.stderr
    assert "left by test_a.py: unclosed <socket" in said.stdout


def ran(
    directory: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> subprocess.CompletedProcess[str]:
    """Run the tests of a directory, of which the first leaves something."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (directory / "pytest.ini").write_text(INI)
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_a.py").write_text(LEAVES.format(mark=mark))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True)
