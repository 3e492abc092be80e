"""With a real hub: what is asked stands in the audit log, in whose name, and nobody takes it out."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_hub.audit.entry import NONE
from backhaul_hub.audit.trail import follow
from backhaul_hub.cli.main import cli
from backhaul_hub.errors import JetStreamError
from backhaul_hub.nats.jetstream import JetStreamApi
from tests.support.rig.parts import HubRig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


async def run(rig: HubRig, *words: str, login: tuple[str, ...] = ()) -> str:
    """Return what a command prints, run in a thread as in a process of its own."""
    command = [*words, *(login or ("--dir", str(rig.directory)))]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert done.exception is None, (words, done.exception, done.output)
    return done.stdout


async def entries(rig: HubRig, *options: str) -> list[dict[str, Any]]:
    lines = (await run(rig, "audit", *options, "--json")).splitlines()
    return [json.loads(line) for line in lines]


def tables_with(path: Path, text: str) -> set[str]:
    """Return the tables of hub.db that have a text in a row."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name
            for (name,) in names
            if any(text in str(row) for row in connection.execute(f"SELECT * FROM {name}"))
        }


async def test_acts_stand_in_the_log_by_whom_and_nobody_takes_them_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "carla")
    rig = HubRig(tmp_path / "hub")
    await rig.init()
    try:
        await rig.start()
        await run(rig, "add-device", "VID-001")
        await run(rig, "add-device", "VID-002")
        await run(rig, "node", "create", "plant-7")
        creds = tmp_path / "anna.creds"
        await run(
            *(rig, "user", "add", "anna", "--group", "fleet", "--may", "command"),
            *("--out", str(creds)),
        )
        login = ("--creds", str(creds), "--server", f"nats://127.0.0.1:{rig.client_port}")
        await run(rig, "set", "VID-001", "gps.rate=5", login=login)
        await run(rig, "command", "VID-001", "greet", "--params", '"secret"', login=login)
        await run(rig, "revoke", "VID-002")
        refused = await asyncio.to_thread(
            CliRunner().invoke, cli, ["revoke", "VID-999", "--dir", str(rig.directory)]
        )
        assert refused.exit_code
        # The last act that is answered once it is stored stands behind all others.
        await run(rig, "user", "rm", "anna")
        found = await entries(rig)
        said = [
            (each["who"], each["what"], each["about"], each.get("detail", "")) for each in found
        ]
        assert ("operator carla", "add-device", "VID-001", "") in said
        assert ("operator carla", "node", "plant-7", "create") in said
        assert ("anna", "set", "VID-001", "gps.rate") in said
        assert [each[:3] for each in said if each[1] == "command"] == [
            ("anna", "command", "VID-001")
        ]
        assert ("operator carla", "user-rm", "anna", "") in said
        [no] = [each for each in found if each.get("refused")]
        assert (no["what"], no["about"]) == ("revoke", "VID-999")
        assert "secret" not in json.dumps(found)
        assert await entries(rig, "--who", "anna") == [
            each for each in found if each["who"] == "anna"
        ]
        assert (await run(rig, "audit", "verify")).startswith(f"{len(found)} entries in ")

        async with rig.connection("control") as client:
            api = JetStreamApi(client)
            for request in (
                api.request("STREAM.MSG.DELETE.AUDIT", {"seq": 1}),
                api.request("STREAM.PURGE.AUDIT", {}),
            ):
                with pytest.raises(JetStreamError, match="not permitted"):
                    await request
            verdict = await follow(client)
            assert verdict.breaches == []
            ends = (verdict.messages, "0" * 63 + "1")
            assert (await follow(client, ends)).breaches == [(verdict.messages, "changed")]
            gone = (verdict.messages + 3, NONE)
            assert (await follow(client, gone)).breaches == [(verdict.messages + 1, "missing")]
            # Another writer is none: this one goes on behind what it finds there.
            await client.jetstream().publish("audit.entry", b"forged")

        await run(rig, "erase", "--person", "anna", "--yes")
        await run(rig, "add-device", "VID-003")
        async with rig.connection("control") as client:
            after = await follow(client)
        assert after.breaches[0] == (verdict.messages + 1, "unreadable")
        assert after.entries == verdict.entries + 2
        # A value that she has set carries her name, here and on the vehicle: that is part of the value.
        assert tables_with(rig.directory / "hub.db", "anna") == {"head"}
        assert b"anna" not in (rig.directory / "keys/revocations.jsonl").read_bytes()
    finally:
        await rig.stop()
