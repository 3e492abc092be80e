"""Half an artifact on disk: what a kill leaves, what a power cut leaves, and a disk that is full."""

from __future__ import annotations

import errno
import hashlib
import os
from typing import TYPE_CHECKING, BinaryIO

import pytest

from backhaul_agent.artifacts.partial_file import SYNC_BYTES, SYNC_S, Part, has_digest, open_part
from backhaul_agent.artifacts.store import ArtifactStore, Waiting
from backhaul_agent.config import ArtifactsConfig
from backhaul_agent.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

WHOLE = bytes(range(256)) * 2048  # 512 KiB
DIGEST = hashlib.sha256(WHOLE).digest()
KIB = 1024


def begin(path: Path, boot: str = "one") -> Part:
    return Part.open(path, len(WHOLE), boot)


def grow(part: Part, to: int, now_s: float = 0.0) -> None:
    while part.held < to:
        part.append(WHOLE[part.held : min(to, part.held + 10_000)], now_s)


def names(paths: Iterable[Path]) -> list[str]:
    return sorted(path.name for path in paths)


def test_a_file_has_its_name_once_it_is_whole_and_checked(tmp_path: Path) -> None:
    target = tmp_path / "firmware"
    target.write_bytes(b"the one before")
    part = begin(tmp_path / "x.part")
    grow(part, len(WHOLE))
    assert target.read_bytes() == b"the one before"
    part.finish(DIGEST, target)
    assert target.read_bytes() == WHOLE
    assert names(tmp_path.iterdir()) == ["firmware"]
    assert has_digest(target, DIGEST)
    assert not has_digest(target, bytes(32))
    assert not has_digest(tmp_path / "nothing", DIGEST)


def test_another_file_than_it_should_be_is_removed_and_never_named(tmp_path: Path) -> None:
    part = begin(tmp_path / "x.part")
    grow(part, len(WHOLE))
    with pytest.raises(ArtifactError, match="SHA-256"):
        part.finish(bytes(32), tmp_path / "firmware")
    assert names(tmp_path.iterdir()) == []


def test_after_a_kill_all_that_was_written_counts_and_the_digest_is_right(tmp_path: Path) -> None:
    part = begin(tmp_path / "x.part")
    grow(part, 300_001)
    part.close()  # which writes nothing: the kernel does as much for a process that is killed
    again = begin(tmp_path / "x.part")
    assert again.held == 300_001
    grow(again, len(WHOLE))
    again.finish(DIGEST, tmp_path / "firmware")
    assert (tmp_path / "firmware").read_bytes() == WHOLE


def test_after_a_power_cut_only_what_was_synced_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    part = begin(path)
    grow(part, 2 * SYNC_BYTES, now_s=SYNC_S)
    part.close()
    synced = int(path.with_suffix(".json").read_text().partition('"synced":')[2].rstrip("}"))
    assert SYNC_BYTES <= synced < part.held
    with path.open("r+b") as file:  # the tail never reached the disk
        file.seek(synced)
        file.write(bytes(part.held - synced))
    again = begin(path, boot="two")
    assert again.held == synced
    grow(again, len(WHOLE))
    again.finish(DIGEST, tmp_path / "firmware")


def test_syncs_are_some_way_and_some_time_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = begin(tmp_path / "x.part")
    syncs: list[int] = []
    monkeypatch.setattr(part, "sync", lambda: syncs.append(part.held))
    grow(part, len(WHOLE) // 2, now_s=SYNC_S)
    assert len(syncs) == 1
    grow(part, len(WHOLE), now_s=2 * SYNC_S)
    assert len(syncs) == 2
    part.close()


def test_a_part_of_which_nothing_is_known_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    for known in (None, "{garbage", "{}"):
        if known is not None:
            path.with_suffix(".json").write_text(known)
        path.write_bytes(b"who knows")
        part = begin(path)
        assert part.held == 0
        part.close()
    assert path.stat().st_size == 0


class FullDisk:
    """Opens parts on a disk that takes so many bytes more, and then half of a write."""

    def __init__(self, room: int) -> None:
        self.room = room

    def open(self, path: Path) -> BinaryIO:
        disk, file = self, open_part(path)
        write = file.write

        class Full:
            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

            def write(self, data: bytes) -> int:
                if not disk.room:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                taken = write(bytes(data)[: disk.room])
                disk.room -= taken
                return taken

        return Full()  # type: ignore[return-value]


def test_on_a_full_disk_nothing_is_lost_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = FullDisk(25_000)
    part = Part.open(tmp_path / "x.part", len(WHOLE), "one", disk.open)
    with pytest.raises(OSError, match="No space left"):
        grow(part, len(WHOLE))
    part.close()
    disk.room = 1 << 30
    again = Part.open(tmp_path / "x.part", len(WHOLE), "one", disk.open)
    assert again.held == 25_000, "what was taken of the last write counts too"
    grow(again, len(WHOLE))
    again.finish(DIGEST, tmp_path / "firmware")


def test_room_is_made_of_what_nobody_wants_and_else_refused(tmp_path: Path) -> None:
    config = ArtifactsConfig(dir=str(tmp_path), bytes_max=1 << 20, free_bytes_min=100)
    free = 1 << 30
    store = ArtifactStore(config, lambda _: free)
    store.prepare()
    wanted, stale, here = store.part(b"w" * 32), store.part(b"s" * 32), store.slot("firmware")
    for path in (wanted, stale, here):
        path.write_bytes(bytes(300 * KIB))
    stale.with_suffix(".json").write_bytes(b"{}")
    store.require_room(wanted, 400 * KIB, {wanted})
    assert stale.exists()
    store.require_room(store.part(b"n" * 32), 400 * KIB, {wanted})
    assert not stale.exists()
    assert not stale.with_suffix(".json").exists()
    with pytest.raises(ArtifactError, match=f"no room for {500 * KIB} bytes") as refused:
        store.require_room(store.part(b"n" * 32), 500 * KIB, {wanted})
    assert refused.value.code == "full"
    free = 1 * KIB
    with pytest.raises(ArtifactError, match="the disk has 1024 left, 100 of it for others"):
        store.require_room(store.part(b"n" * 32), 1 * KIB, {wanted})
    assert wanted.exists()
    assert here.exists()


def test_what_waits_to_be_sent_is_known_after_a_restart_and_the_rest_is_cleared_away(
    tmp_path: Path,
) -> None:
    store = ArtifactStore(ArtifactsConfig(dir=str(tmp_path / "artifacts")))
    assert store.prepare() == {}
    waiting = Waiting("a.log", 5, b"d" * 32)
    store.upload("1").write_bytes(b"12345")
    store.keep_upload("1", waiting)
    store.upload("2").write_bytes(b"half handed ov")
    store.upload("3").write_bytes(b"123")  # shorter than it was: the disk has lost it
    store.keep_upload("3", waiting)
    store.part(b"p" * 32).write_bytes(b"stays")
    assert store.prepare() == {"1": waiting}
    left = names((tmp_path / "artifacts" / ".work").iterdir())
    assert left == sorted(["up-1", "up-1.json", f"{(b'p' * 32).hex()}.part"])
    store.drop_upload("1")
    assert store.prepare() == {}
