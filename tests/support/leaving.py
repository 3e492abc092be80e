"""A test of its own that leaves something behind, and how it ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
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
CONFTEST = "from tests.leftovers import _without_leftovers, pytest_sessionfinish\n"
INI = "[pytest]\nfilterwarnings = error\nmarkers = nats: x\n"


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
