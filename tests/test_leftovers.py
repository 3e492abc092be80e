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
INI = "[pytest]\nfilterwarnings = error\nmarkers = nats: x\n"


@pytest.mark.parametrize(
    ("mark", "failed"), [("@pytest.mark.nats", False), ("", True)], ids=["servers", "none"]
)
def test_only_what_had_servers_may_leave_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, failed: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "conftest.py").write_text("from tests.leftovers import _without_leftovers\n")
    (tmp_path / "test_a.py").write_text(LEAVES.format(mark=mark))
    (tmp_path / "test_b.py").write_text(COLLECTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    said = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert bool(said.returncode) == failed, said.stdout
    assert ("left by test_a.py: unclosed <socket" in said.stdout) != failed
