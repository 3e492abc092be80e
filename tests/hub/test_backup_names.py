"""A backup is what somebody hands in: none of its names leads out of it, or out of the hub's directory."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.artifacts.object_store import file_digest
from backhaul_hub.backup.files import configuration_files, put_missing_files
from backhaul_hub.backup.manifest import (
    MANIFEST,
    ArtifactEntry,
    EmptyEntry,
    FileEntry,
    Manifest,
    StreamEntry,
    new_file,
    store_manifest,
)
from backhaul_hub.backup.restore import whole_backup
from backhaul_hub.cli.values.artifact import artifact
from backhaul_hub.errors import ArtifactError, BackupError
from backhaul_hub.private_files import alone_in, private_directory
from backhaul_hub.setup.hub_directory import create_hub
from tests.support.hub_layout import local_layout

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "a" * 64


def backup_of(directory: Path, *names: str) -> Manifest:
    """Write a backup that holds these files, each with its own name in it."""
    manifest = Manifest("2.15.1", "prod", "then")
    for name in names:
        with new_file(directory / name) as file:
            file.write(name.encode())
        manifest.files[name] = file.entry()
    store_manifest(directory, manifest, MANIFEST)
    return manifest


def entry_of(path: Path) -> FileEntry:
    return FileEntry(path.stat().st_size, file_digest(path).hex())


GOOD = (
    "hub.db",
    "config/hub.toml",
    "config/hub.conf",
    "config/tls/ca.pem",
    "config/creds/control.creds",
    "config/keys/vehicles.nk",
    "config/devices/VID-001/identity.json",
    "config/servers/a/hub.conf",
    "config/servers/a/tls/server.pem",
    "streams/UP_00.tar.s2",
    "kv/TWIN_SHADOW.json",
    f"artifacts/{DIGEST}",
)
BAD = (
    "../outside",
    "config/../../outside",
    "config/keys/../../../outside",
    "config/keys/..",
    "config/servers/../hub.conf",
    "config//etc/outside",
    "config/./hub.toml",
    "config/",
    "",
    ".",
    "config/keys/a\0b",
    "config/keys/a\nb",
    # What `init` and `restore` never put there: a hub that has it works by another's word.
    "config/accounts/AB.jwt",
    "config/hub.db",
    "config/restore.unfinished",
    "config/jetstream/x",
    "config/devices/../x/identity.json",
    "config/keys/a/b",
    "streams/../../outside.tar.s2",
    "elsewhere",
)


def test_what_a_backup_holds_is_taken(tmp_path: Path) -> None:
    assert set(whole_backup_of(tmp_path, *GOOD).files) == set(GOOD)


def whole_backup_of(directory: Path, *names: str) -> Manifest:
    backup_of(directory, *names)
    return whole_backup(directory)


def test_all_that_a_hub_directory_gives_is_taken(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, local_layout(4222, 7422))
    odd = ("my hub.toml", "keys/#a#", "tls/server.pem~", "devices/VID-001/id (1).json")
    for name in (*odd, "devices/.a b/identity.json"):
        private_directory((hub / name).parent)
        (hub / name).write_text("of somebody's editor")
    names = [f"config/{path.relative_to(hub)}" for path in configuration_files(hub)]
    assert {"config/keys/operator-signing.nk", *(f"config/{name}" for name in odd)} <= set(names)
    whole_backup_of(tmp_path / "backup", *names)


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_leads_elsewhere_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str
) -> None:
    source, hub = tmp_path / "deep" / "backup", tmp_path / "deep" / "hub"
    manifest = backup_of(source, *GOOD)
    outside = tmp_path / "deep" / "outside"
    outside.write_text("mine")
    manifest.files[name] = entry_of(outside)
    store_manifest(source, manifest, MANIFEST)
    with pytest.raises(BackupError, match="names"):
        whole_backup(source)
    with pytest.raises(BackupError, match="names"):
        put_missing_files(source, manifest, hub)
    assert outside.read_text() == "mine"
    assert not list(hub.glob("**/outside"))


def test_an_absolute_name_is_refused(tmp_path: Path) -> None:
    source, outside = tmp_path / "backup", tmp_path / "outside"
    manifest = backup_of(source, *GOOD)
    outside.write_text("mine")
    for name in (str(outside), f"config/{outside}"):
        manifest.files[name] = entry_of(outside)
        store_manifest(source, manifest, MANIFEST)
        with pytest.raises(BackupError, match="names"):
            whole_backup(source)
        del manifest.files[name]


@pytest.mark.parametrize("bad", ["../x", "UP_00.>", "*", "", "a b", "UP_00\r\nPUB x"])
def test_streams_and_artifacts_name_their_own_files(tmp_path: Path, bad: str) -> None:
    """A stream's name becomes part of a subject: `STREAM.DELETE.<name>`."""
    manifest = backup_of(tmp_path, *GOOD)
    known = "streams/UP_00.tar.s2"
    for wrong in (
        Manifest("", "", "", streams=[StreamEntry(bad, known, "", {}, {})]),
        Manifest("", "", "", streams=[StreamEntry("UP_00", bad, "", {}, {})]),
        Manifest("", "", "", streams=[StreamEntry("UP_01", known, "", {}, {})]),
        Manifest("", "", "", emptied=[EmptyEntry(bad, 1)]),
        Manifest("", "", "", artifacts=[ArtifactEntry("map", bad, 1, DIGEST)]),
        Manifest("", "", "", artifacts=[ArtifactEntry("map", "hub.db", 1, DIGEST)]),
    ):
        wrong.files = manifest.files
        store_manifest(tmp_path, wrong, MANIFEST)
        with pytest.raises(BackupError, match="names"):
            whole_backup(tmp_path)


@pytest.mark.parametrize("what", ["file", "directory", "beside", "manifest"])
def test_a_symbolic_link_inside_a_backup_is_not_followed(tmp_path: Path, what: str) -> None:
    source, outside = tmp_path / "backup", tmp_path / "outside"
    backup_of(source, *GOOD)
    outside.mkdir()
    if what == "file":
        linked = source / "config/keys/vehicles.nk"
    elif what == "directory":
        linked = source / "config/keys"
    elif what == "manifest":
        linked = source / MANIFEST
    else:  # of no name in the manifest, and read all the same: keys are
        linked = source / "config/keys/up-api.txt"
        linked.write_text("")
    linked.rename(outside / "there")
    linked.symlink_to(outside / "there")
    with pytest.raises(BackupError, match=rf"{linked.name} is no (file|directory)"):
        whole_backup(source)


def test_the_directory_of_a_backup_may_be_reached_by_a_link(tmp_path: Path) -> None:
    backup_of(tmp_path / "2026-11-21", *GOOD)
    (tmp_path / "latest").symlink_to("2026-11-21")
    assert whole_backup(tmp_path / "latest").files


def test_a_pipe_in_a_file_s_place_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    manifest = backup_of(tmp_path, *GOOD)
    pipe = tmp_path / "config/hub.toml"
    pipe.unlink()
    os.mkfifo(pipe)
    manifest.files["config/hub.toml"] = FileEntry(0, "0" * 64)
    store_manifest(tmp_path, manifest, MANIFEST)
    with pytest.raises(BackupError, match=r"hub\.toml is no file"):
        whole_backup(tmp_path)


def test_what_became_another_file_since_it_was_checked_is_not_put_in_place(tmp_path: Path) -> None:
    source, hub = tmp_path / "backup", tmp_path / "hub"
    manifest = whole_backup_of(source, "config/hub.toml")
    (source / "config/hub.toml").write_text("other")
    with pytest.raises(BackupError, match=r"hub\.toml"):
        put_missing_files(source, manifest, hub)
    assert not (hub / "hub.toml").exists()


# Who may read what is written.


def modes(directory: Path) -> dict[str, int]:
    found = {str(path.relative_to(directory)): path for path in directory.rglob("*")}
    return {name: stat.S_IMODE(path.lstat().st_mode) for name, path in found.items()}


def test_all_that_a_backup_and_a_restore_make_is_for_the_owner_alone(tmp_path: Path) -> None:
    """`mkdir(parents=True, mode=...)` gives parents the mode of the process: 0755."""
    before = os.umask(0)
    try:
        source, hub = tmp_path / "new" / "daily" / "backup", tmp_path / "srv" / "hub"
        manifest = backup_of(source, *GOOD)
        put_missing_files(source, manifest, hub)
        with alone_in(hub):
            pass
    finally:
        os.umask(before)
    wrong = {name: oct(mode) for name, mode in modes(tmp_path).items() if mode & 0o077}
    assert not wrong


def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    private_directory(tmp_path / "shared" / "a" / "b")
    assert modes(tmp_path) == {"shared": 0o755, "shared/a": 0o700, "shared/a/b": 0o700}


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "..", "a/b", ""])
def test_an_artifact_of_a_name_that_is_a_path_is_fetched_to_a_place_that_is_said(
    tmp_path: Path, name: str
) -> None:
    for place in ([], [str(tmp_path)]):
        done = CliRunner().invoke(artifact, ["get", name, *place, "--dir", str(tmp_path)])
        assert isinstance(done.exception, ArtifactError), done.output
        assert "is a path" in str(done.exception)
