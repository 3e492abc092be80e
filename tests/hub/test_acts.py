"""Acts on hub.db: by the control plane where one leads, else by the command line itself, and never by two at once."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from backhaul_hub.cli import _act, _ask
from backhaul_hub.cli.main import cli
from backhaul_hub.control import acts
from backhaul_hub.db.lock import LOCK, alone_with
from backhaul_hub.errors import BackupError, HubError, RegistryHeldError
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_hub.start_guard import Move, note_move
from tests.support.hub_layout import local_layout
from tests.support.rig.parts import HubRig
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
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


async def run(directory: Path, *words: str) -> str:
    """Return what a command prints, run in a thread as in a process of its own."""
    command = [*words, "--dir", str(directory)]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert done.exception is None, (words, done.exception, done.output)
    return done.stdout


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
    assert [[*each] for each in told] == [[name] for name in names]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HubRig]:
    rig = HubRig(tmp_path_factory.mktemp("acts") / "hub")
    await rig.init()
    try:
        await rig.start()
        yield rig
    finally:
        await rig.stop()


@pytest.mark.nats
@pytest.mark.asyncio(loop_scope="module")
async def test_commands_are_carried_out_by_the_control_plane_also_from_elsewhere(
    running: HubRig, tmp_path: Path
) -> None:
    """Elsewhere there is hub.toml and the login, and neither keys nor hub.db: nothing is made there."""
    there = tmp_path / "elsewhere"
    (there / "creds").mkdir(parents=True)
    shutil.copy(running.directory / "hub.toml", there)
    shutil.copy(running.directory / "creds/control.creds", there / "creds")
    made = json.loads(await run(there, "enrol", "VID-001", "--json"))
    (token,) = json.loads(await run(there, "tokens", "--json"))
    assert (token["id"], token["state"]) == (made["id"], "open")
    added = json.loads(await run(there, "add-device", "VID-002", "--json"))
    assert added["told"]
    assert added["identity"] == str(there / "devices/VID-002/identity.json")
    document = (running.directory / "devices/VID-002/identity.json").read_text()
    assert (there / "devices/VID-002/identity.json").read_text() == document
    begun = json.loads(await run(there, "rotate", "VID-002", "--json"))
    assert (begun["state"], begun["begun"]) == ("asked", True)
    person = json.loads(
        await run(there, "user", "add", "anna", "--group", "fleet", "--may", "write", "--json")
    )
    creds = (there / "people/anna.creds").read_text()
    assert person["credentials"] == str(there / "people/anna.creds")
    assert "anna  may write below fleet" in await run(there, "user", "ls")
    who = ("--creds", str(there / "people/anna.creds"))
    tree = await asyncio.to_thread(
        CliRunner().invoke,
        cli,
        ["tree", *who, "--server", f"nats://127.0.0.1:{running.client_port}"],
    )
    assert "VID-002" in tree.output, tree.exception
    assert json.loads(await run(there, "user", "rm", "anna", "--json"))["told"]
    assert "VID-002 had not spoken yet" in (await failing(there, "completeness", "VID-002"))
    assert "all is well" not in await run(there, "events")
    assert "control plane" not in await run(there, "notify", "dry-run")
    assert "read its configuration" in await run(there, "reload")
    assert json.loads(await run(there, "revoke", "VID-002", "--json"))["cut"]
    assert not (running.directory / "devices/VID-002/identity.json").exists()
    made_there = {each.name for each in there.iterdir()}
    assert made_there == {"hub.toml", "creds", "devices", "people"}
    # Secrets stand in answers, and in no log.
    said = running.control.logged().decode()
    assert "token_made" in said
    for secret in (made["token"], json.loads(document)["seed"], creds.splitlines()[1]):
        assert secret not in said


async def failing(directory: Path, *words: str) -> str:
    command = [*words, "--dir", str(directory)]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command)
    return done.output


@pytest_asyncio.fixture
async def alone(tmp_path: Path) -> AsyncIterator[HubRig]:
    """A hub whose server runs, and whose control plane does not."""
    rig = HubRig(tmp_path / "hub")
    create_hub(rig.directory, local_layout(rig.client_port, rig.leaf_port))
    await rig.server.start()
    try:
        await rig.server.wait_listening(rig.client_port)
        yield rig
    finally:
        await rig.server.stop()


@pytest.mark.nats
async def test_a_control_plane_that_stands_still_is_asked_for_nothing_and_nobody_writes_instead(
    alone: HubRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine may be another one: this directory's lock is free."""
    monkeypatch.setattr(_ask, "_TIMEOUT_S", 0.3)
    asked = list[Any]()

    async def nothing(message: Any) -> None:
        asked.append(message.subject)

    async with alone.connection("control") as client:
        for service in ("here", "enrol"):
            await client.subscribe(f"hub.{service}", cb=nothing)
        await client.flush()
        with pytest.raises(HubError, match="does not answer: TimeoutError") as refused:
            await _act.done(alone.directory, "enrol", {"device": "VID-001", "expires_s": 60.0})
    assert "systemctl restart backhaul-hub.service" in refused.value.hint
    assert "hub.enrol" not in asked
    assert not (alone.directory / "hub.db").exists()


@pytest.mark.nats
async def test_beside_an_older_control_plane_which_takes_no_lock_nobody_writes(
    alone: HubRig,
) -> None:
    async def devices(message: Any) -> None:
        await message.respond(b"{}")

    async with alone.connection("control") as client:
        await client.subscribe("hub.devices", cb=devices)
        await client.flush()
        with pytest.raises(HubError, match="is older than this command line"):
            await _act.done(alone.directory, "enrol", {"device": "VID-001", "expires_s": 60.0})
        assert not (alone.directory / "hub.db").exists()
