"""What a file with servers left open is named, and fails no test of another file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.leaving import ran

if TYPE_CHECKING:
    import pytest


def test_what_the_last_file_left_is_named_and_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ran(tmp_path, monkeypatch, "@pytest.mark.nats")
    assert said.returncode == 0, said.stderr
    assert "left by test_a.py: unclosed <socket" in said.stdout
