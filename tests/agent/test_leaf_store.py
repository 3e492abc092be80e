"""A leaf server whose disk is full: what it says, who waits, and what heals it."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nats.errors import TimeoutError as NatsTimeoutError

from backhaul_agent.cli.vehicle import leaf_check
from backhaul_agent.leaf.config_text import LeafServer, render_leaf
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.leaf.store_health import SILENT, LeafStore, free_bytes, needs_restart
from backhaul_codec.protocol.identity import Identity

FULL = "write /data/js/jetstream/VEH/streams/OUT_bulk/msgs/3.blk: no space left on device"


def delete_answer(description: str, err_code: int = 10057) -> bytes:
    error = {"code": 500, "err_code": err_code, "description": description}
    return json.dumps({"error": error}).encode()


async def test_a_stream_that_cannot_be_written_is_told_until_it_can() -> None:
    said = {"OUT_live": "stream store EOF", "OUT_bulk": FULL, "IN": ""}
    asked = asyncio.Event()

    async def request(subject: str, payload: bytes) -> bytes:
        stream = subject.rpartition(".")[2]
        assert subject == f"$JS.API.STREAM.MSG.DELETE.{stream}"
        assert json.loads(payload)["seq"] > 1 << 60
        if stream == "IN":
            asked.set()
            return delete_answer("stream not found", 10059)
        return delete_answer(said[stream])

    store = LeafStore(["OUT_live", "OUT_bulk", "IN"])
    for expected in ({"OUT_bulk": FULL}, {}):
        asked.clear()
        task = asyncio.create_task(store.run(JetStream(request)))
        await asyncio.wait_for(asked.wait(), 60)
        await asyncio.sleep(0)
        assert store.failed == expected
        assert ("restart it" in store.error) is bool(expected)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        said["OUT_bulk"] = "no message found"
    assert store.failed == {}


async def test_a_server_that_answers_nothing_three_times_in_a_row_has_ended_jetstream() -> None:
    asked, sixth = 0, asyncio.Event()
    silent: list[bool] = []

    async def request(subject: str, payload: bytes) -> bytes:
        nonlocal asked
        asked += 1
        silent.append(SILENT in store.failed)
        if asked == 6:
            sixth.set()
            await asyncio.Event().wait()
        if asked == 2:
            return delete_answer("no message found")
        raise NatsTimeoutError

    store = LeafStore([f"OUT_{number}" for number in range(6)])
    task = asyncio.create_task(store.run(JetStream(request)))
    await asyncio.wait_for(sixth.wait(), 60)
    assert silent == [False] * 5 + [True]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("failed", "free", "yes", "words"),
    [
        ({}, 1 << 40, False, "writes all"),
        ({"OUT_bulk": FULL}, 1 << 40, True, "there is space again"),
        ({"OUT_bulk": FULL}, 0, False, "/data/js/jetstream/VEH/streams/OUT_bulk/msgs/3.blk is still"),
        ({"OUT_bulk": "write /x: input/output error"}, 1 << 40, False, "not for want of space"),
        ({SILENT: "no answer"}, 1 << 40, True, "has ended"),
        ({SILENT: "no answer"}, 0, False, "its disk is full"),
        ({SILENT: "no answer", "OUT_bulk": FULL}, 0, False, "is still"),
        ({SILENT: "no answer", "OUT_bulk": FULL}, 1 << 40, True, "there is space again"),
    ],
)  # fmt: skip
def test_a_restart_is_asked_for_only_where_it_heals(
    failed: dict[str, str], free: int, yes: bool, words: str
) -> None:
    answer, reason = needs_restart(failed, lambda path: free, Path("/data/js"))
    assert answer is yes
    assert words in reason


def test_where_the_store_is_not_known_nobody_can_tell_whether_it_has_space() -> None:
    yes, reason = needs_restart({SILENT: "no answer"}, lambda path: 1 << 40)
    assert not yes
    assert "where its store is, is not known" in reason


def test_where_the_store_is_stands_in_leaf_conf_beside_the_agent_s_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(_: object) -> dict[str, Any]:
        return {"leaf": {"failed_streams": {SILENT: "no answer"}}}

    monkeypatch.setattr(leaf_check, "_ask", ask)
    config = tmp_path / "agent.toml"
    config.write_text('[device]\nid = "VID-001"\ntoken = "t"\n')
    check = CliRunner().invoke(leaf_check.command, ["--config", str(config)])
    assert "where its store is, is not known" in check.output
    assert check.exit_code == 1
    looked_at: list[Path] = []

    def free(path: Path) -> int:
        looked_at.append(path)
        return 1 << 40

    monkeypatch.setattr(leaf_check, "needs_restart", partial(needs_restart, free=free))
    vehicle = Identity(device="VID-001", token="t", leaf_urls=("nats-leaf://127.0.0.1:1",))
    (tmp_path / "leaf.conf").write_text(render_leaf(vehicle, LeafServer(4222, "/data/js")))
    check = CliRunner().invoke(leaf_check.command, ["--config", str(config)])
    assert check.exit_code == 0, check.output
    assert looked_at == [Path("/data/js")]


def test_the_disk_of_a_place_that_is_not_there_is_that_of_what_is_above(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") > 0
