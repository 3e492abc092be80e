"""Files of a hub directory are whole, whoever else writes them, and whatever fails."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.private_files import write_private

if TYPE_CHECKING:
    from pathlib import Path


def test_two_programs_that_write_one_file_at_once_leave_one_of_the_two_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own = tmp_path / "identity.json", os.getpid()
    sync = os.fsync

    def other_begins(descriptor: int) -> None:
        """Let another program write, up to where it would sync."""
        monkeypatch.setattr(os, "getpid", lambda: own + 1)
        monkeypatch.setattr(os, "fsync", _cut)
        with pytest.raises(KeyboardInterrupt):
            write_private(path, "the other's, which is longer")
        monkeypatch.setattr(os, "fsync", sync)

    monkeypatch.setattr(os, "fsync", other_begins)
    write_private(path, "mine")
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_former_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "device.creds"
    write_private(path, "before")
    monkeypatch.setattr(os, "fsync", _cut)
    with pytest.raises(KeyboardInterrupt):
        write_private(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_for_its_owner_and_its_name_is_on_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def noted(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))

    monkeypatch.setattr(os, "fsync", noted)
    path = tmp_path / "control.creds"
    write_private(path, "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert synced == [False, True], "the file before it has its name, the directory after"


def _cut(descriptor: int) -> None:
    raise KeyboardInterrupt
