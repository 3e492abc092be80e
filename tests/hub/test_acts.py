"""Acts on hub.db: by the control plane where one leads, else by the command line itself, and never by two at once."""

from __future__ import annotations

import asyncio
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.cli import _act
from backhaul_hub.control import acts
from backhaul_hub.db.lock import LOCK, alone_with
from backhaul_hub.errors import BackupError, HubError, RegistryHeldError
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_hub.start_guard import Move, note_move
from tests.support.hub_layout import local_layout
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import asyncio, sys
from pathlib import Path
from backhaul_hub.db.lock import alone_with

async def hold():
    async with alone_with(Path(sys.argv[1]), "somebody"):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(hold())
"""


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    directory = tmp_path / "hub"
    create_hub(directory, local_layout(free_port(), free_port()))
    return directory


async def test_a_lock_is_given_back_when_its_holder_is_killed_and_names_the_holder(
    tmp_path: Path,
) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        assert await other.stdout.readline() == b"held\n"
        with pytest.raises(RegistryHeldError) as refused:
            async with alone_with(tmp_path, "another"):
                pass
        assert refused.value.holder == f"somebody, process {other.pid}"
        waiting = asyncio.create_task(_taken(tmp_path))
        await asyncio.sleep(0)
        assert not waiting.done()
    finally:
        other.kill()
        await other.wait()
    assert await waiting == "another"
    async with alone_with(tmp_path, "a third"):
        assert (tmp_path / LOCK).read_text().startswith("a third, process ")


async def _taken(directory: Path) -> str:
    async with alone_with(directory, "another", wait_s=600.0):
        return (directory / LOCK).read_text().partition(",")[0]


async def test_while_another_has_hub_db_and_nobody_answers_a_command_is_refused(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_act, "_PATIENCE_S", 0.0)
    async with alone_with(hub, "the control plane"):
        with pytest.raises(HubError) as refused:
            await _act.done(hub, "revoke", {"device": "VID-001"})
    assert f"{hub / 'hub.db'} is in use: the control plane, process" in refused.value.message
    assert "nobody listens there" in refused.value.message
    assert f"backhaul-hub up --dir {hub}" in refused.value.hint
    assert not (hub / "hub.db").exists()


async def test_without_a_control_plane_a_command_does_it_and_says_who_was_not_told(
    hub: Path,
) -> None:
    added = await _act.done(hub, "add-device", {"device": "VID-001"})
    assert added["problem"].startswith("no connection to the hub's nats-server at nats://")
    assert (hub / "devices/VID-001/identity.json").read_text() == added["document"]
    with pytest.raises(HubError, match="VID-001 exists already"):
        await _act.done(hub, "add-device", {"device": "VID-001"})
    given = await _act.done(hub, "add-device", {"device": "VID-001", "nodes": ["gps"]})
    assert (given["added"], given["nodes"]) == (False, ["gps"])
    kept = {"device": "VID-001", "nodes": [], "link_kbit_s": 64.0}
    with pytest.raises(HubError, match="exists already and keeps its link_kbit_s"):
        await _act.done(hub, "add-device", kept)
    # No server runs: each learns at its start whom to refuse.
    assert (await _act.done(hub, "revoke", {"device": "VID-001"}))["problem"] == ""


async def test_a_directory_without_keys_is_a_way_to_the_control_plane_alone(
    hub: Path,
) -> None:
    shutil.rmtree(hub / "keys")
    with pytest.raises(HubError, match="is no hub's directory, only a way to it"):
        await _act.done(hub, "enrol", {"device": "VID-001", "expires_s": 60.0})
    assert not (hub / LOCK).exists()


async def test_a_hub_that_has_moved_away_is_not_written_to(hub: Path) -> None:
    note_move(hub, Move("nats://hub2:4222", switched=True))
    with pytest.raises(BackupError, match="moves, or has moved, to nats://hub2:4222"):
        await _act.done(hub, "enrol", {"device": "VID-001", "expires_s": 60.0})
    assert not (hub / "hub.db").exists()


async def test_lists_come_whole_however_many_pages_they_have(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"VID-{number}" for number in range(5)]
    for name in names:
        for _ in range(2):
            await _act.done(hub, "enrol", {"device": name, "expires_s": 60.0})
        await _act.done(hub, "user-add", {"name": name, "group": "fleet", "may": "read"})
    monkeypatch.setattr(acts, "_PAGE", 2)
    monkeypatch.setattr(acts, "_HOURS", 1)
    tokens = await _act.pages(hub, "tokens", {"device": None, "every": True})
    assert [each["device"] for each in tokens] == sorted(2 * names)
    assert {each["state"] for each in tokens} == {"open", "voided"}
    users = await _act.pages(hub, "users", {})
    assert [(each["name"], each["in_tree"]) for each in users] == [(each, True) for each in names]
    for name in names:
        await _act.done(hub, "revoke", {"device": name})
        await _act.done(hub, "add-device", {"device": name})
    hours = {"from_ns": 0, "to_ns": 3600 * 10**9, "device": None}
    told = [page["hours"] async for page in _act.answer_pages(hub, "event-hours", hours)]
    assert [[*each] for each in told if each] == [[name] for name in names]
