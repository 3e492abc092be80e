"""What a backup is made of, without a server: choice, digests, manifest, files, databases, rotation."""

from __future__ import annotations

import sqlite3
import stat
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.backup.files import configuration_files, copy_database
from backhaul_hub.backup.manifest import (
    MANIFEST,
    PARTIAL,
    FileEntry,
    Manifest,
    check_files,
    load_manifest,
    new_file,
    store_manifest,
)
from backhaul_hub.backup.restore import whole_backup
from backhaul_hub.backup.retention import begin_next, drop_oldest
from backhaul_hub.backup.selection import NOT_KEPT, Choice, chosen
from backhaul_hub.errors import BackupError
from backhaul_hub.uplink.stream_digest import (
    Block,
    compare,
    ranges,
    state_differs,
    still_there,
)

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.nats.jetstream import Json

SECOND_NS = 10**9


# What is chosen, and what counts as the same.


def test_up_comes_last_and_what_is_made_anew_does_not_come() -> None:
    """TWIN_EVENTS sources UP: an UP that ends before what it has taken would be passed over."""
    names = {"UP_00", "UP_01", "QUARANTINE", "TWIN_EVENTS", "ZZ", *NOT_KEPT}
    assert chosen(names, Choice()) == ["QUARANTINE", "TWIN_EVENTS", "ZZ", "UP_00", "UP_01"]
    assert chosen(names, Choice(without_up=True)) == ["QUARANTINE", "TWIN_EVENTS", "ZZ"]
    assert chosen(names, Choice(("UP_01", "ZZ"))) == ["ZZ", "UP_01"]


@pytest.mark.parametrize("name", ["DOWN_00", "UP_07"])
def test_a_stream_that_cannot_be_taken_is_refused(name: str) -> None:
    with pytest.raises(BackupError, match=name):
        chosen({"UP_00", "DOWN_00"}, Choice((name,)))


def test_blocks_end_where_all_streams_blocks_end() -> None:
    assert ranges(8000, 20_000) == [(8000, 8191), (8192, 16_383), (16_384, 20_000)]
    assert ranges(5, 4) == []


def test_a_difference_is_said_with_its_place() -> None:
    block = Block(1, 9, 9, "aa")
    assert compare([block], [block]) == ""
    assert compare([block], [Block(1, 9, 7, "bb")]) == "2 messages fewer between sequence 1 and 9"
    assert compare([block], [Block(1, 9, 9, "bb")]) == "other messages between sequence 1 and 9"


def info(first: int, last: int, messages: int, *, deleted: int = 0, **config: object) -> Json:
    state = {"first_seq": first, "last_seq": last, "messages": messages, "bytes": 1}
    return {
        "config": {"retention": "limits"} | config,
        "state": state | {"num_deleted": deleted},
        "created": "2026-11-21T00:00:00Z",
        "ts": "2026-11-21T00:00:00Z",
    }


def test_numbers_that_differ_after_a_restore_are_said() -> None:
    was = {"first_seq": 3, "last_seq": 9, "messages": 7}
    assert state_differs(was, info(3, 9, 7), grows=False) == ""
    assert "ends at sequence 8" in state_differs(was, info(3, 8, 6), grows=True)
    assert "ends at sequence 11" in state_differs(was, info(3, 11, 9), grows=False)
    assert state_differs(was, info(3, 11, 9), grows=True) == ""
    assert "begins at sequence 4" in state_differs(was, info(4, 9, 6), grows=False)
    assert "holds 6 messages" in state_differs(was, info(3, 9, 6), grows=False)
    # Age has taken some since.
    assert state_differs(was, info(5, 9, 5, max_age=SECOND_NS), grows=False) == ""


def test_digests_count_only_for_what_stood_still() -> None:
    blocks = [Block(1, 8191, 8191, "a"), Block(8192, 9000, 809, "b")]
    before = info(1, 9000, 9000)
    assert still_there(blocks, before, info(1, 9100, 9100)) == blocks
    assert still_there(blocks, before, info(5, 9100, 9096)) == blocks[1:]
    assert still_there(blocks, before, info(1, 9000, 8999, deleted=1)) == []
    newest_only = info(1, 9001, 9000, max_msgs_per_subject=5)
    assert still_there(blocks, before, newest_only) == []
    assert still_there(blocks, before, info(1, 9000, 9000, max_msgs_per_subject=5)) == blocks


# Manifest and files.


def manifest_of(directory: Path, **files: bytes) -> Manifest:
    manifest = Manifest("2.15.1", "prod", "then")
    for name, data in files.items():
        with new_file(directory / name) as file:
            file.write(data)
        manifest.files[name] = file.entry()
    return manifest


def test_a_damaged_file_and_a_missing_one_are_named(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, a=b"aaaa", b=b"bbbb", c=b"cccc", d=b"dddd")
    check_files(tmp_path, manifest)
    (tmp_path / "a").write_bytes(b"aaXa")
    (tmp_path / "b").write_bytes(b"bb")
    (tmp_path / "c").unlink()
    with pytest.raises(BackupError) as caught:
        check_files(tmp_path, manifest)
    said = caught.value.message
    assert f"{tmp_path / 'a'} is damaged" in said
    assert f"{tmp_path / 'b'} has 2 bytes, not 4" in said
    assert f"{tmp_path / 'c'}" in said
    assert f"{tmp_path / 'd'}" not in said


def test_files_of_a_backup_are_for_their_owner_alone(tmp_path: Path) -> None:
    store_manifest(tmp_path, manifest_of(tmp_path, **{"hub.db": b"secret"}), MANIFEST)
    for name in ("hub.db", MANIFEST):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert load_manifest(tmp_path) is not None


def test_a_manifest_that_is_none_or_of_another_time_is_refused(tmp_path: Path) -> None:
    assert load_manifest(tmp_path) is None
    with pytest.raises(BackupError, match="no finished backup"):
        whole_backup(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(BackupError, match=MANIFEST):
        load_manifest(tmp_path)
    store_manifest(tmp_path, Manifest("2.15.1", "prod", "then", format=9), MANIFEST)
    with pytest.raises(BackupError, match="format 9"):
        load_manifest(tmp_path)


def test_a_file_that_the_disk_does_not_take_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill() -> None:
        with new_file(tmp_path / "a") as file:
            file.write(b"begun")
            raise OSError(28, "No space left on device")

    with pytest.raises(BackupError, match="No space"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_every_server_of_a_cluster_is_kept(tmp_path: Path) -> None:
    kept = ["hub.toml", "tls/ca.pem", "creds/control.creds", "devices/VID-001/identity.json"]
    for server in ("a", "b", "c"):
        kept += [f"servers/{server}/hub.conf", f"servers/{server}/tls/server.pem"]
    for name in [*kept, "servers/a/accounts/A.jwt", "servers/a/jetstream/x", "hub.db"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found = [str(path.relative_to(tmp_path)) for path in configuration_files(tmp_path)]
    assert sorted(found) == sorted(kept)


def test_a_database_is_copied_while_somebody_writes(tmp_path: Path) -> None:
    source = sqlite3.connect(tmp_path / "hub.db")
    source.execute("PRAGMA journal_mode = WAL")
    source.execute("CREATE TABLE t (x)")
    source.execute("INSERT INTO t VALUES (1)")
    source.commit()
    source.execute("INSERT INTO t VALUES (2)")  # not committed: not in the copy
    copy_database(tmp_path / "hub.db", tmp_path / "copy")
    source.close()
    assert sqlite3.connect(tmp_path / "copy").execute("SELECT x FROM t").fetchall() == [(1,)]
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="does not exist"):
        copy_database(tmp_path / "hub.db", tmp_path / "copy")
    (tmp_path / "hub.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(BackupError, match=r"hub\.db"):
        copy_database(tmp_path / "hub.db", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_backups_rotate_and_an_unfinished_one_is_gone_on_with(tmp_path: Path) -> None:
    at = 1_800_000_000 * SECOND_NS
    made = []
    for day in range(4):
        made.append(begin_next(tmp_path, at + day * 86_400 * SECOND_NS))
        made[-1].mkdir()
        store_manifest(made[-1], Manifest("", "", ""), MANIFEST)
    (tmp_path / "mine").mkdir()
    unfinished = begin_next(tmp_path, at + 9 * 86_400 * SECOND_NS)
    unfinished.mkdir()
    store_manifest(unfinished, Manifest("", "", ""), PARTIAL)
    assert begin_next(tmp_path, at + 10 * 86_400 * SECOND_NS) == unfinished
    assert drop_oldest(tmp_path, 2) == made[:2]
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        [made[2].name, made[3].name, unfinished.name, "mine"]
    )


def test_an_entry_says_what_was_written(tmp_path: Path) -> None:
    with new_file(tmp_path / "a") as file:
        file.write(b"ab")
        file.write(b"c")
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file.entry() == FileEntry(3, sha)
