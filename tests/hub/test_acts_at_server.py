"""With real servers: command lines ask the control plane, from elsewhere too; where one is silent nobody writes instead."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from backhaul_hub.cli import _act, _ask
from backhaul_hub.cli.main import cli
from backhaul_hub.errors import HubError
from tests.support.rig.parts import HubRig
from tests.support.server_alone import server_alone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.nats


async def run(directory: Path, *words: str) -> str:
    """Return what a command prints, run in a thread as in a process of its own."""
    command = [*words, "--dir", str(directory)]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert done.exception is None, (words, done.exception, done.output)
    return done.stdout


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HubRig]:
    rig = HubRig(tmp_path_factory.mktemp("acts") / "hub")
    await rig.init()
    try:
        await rig.start()
        yield rig
    finally:
        await rig.stop()


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
    async with server_alone(tmp_path / "hub") as rig:
        yield rig


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
