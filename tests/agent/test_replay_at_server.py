"""Replays through a real agent: each row of a recording is kept once, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.client import connect
from backhaul_agent.errors import RefusedError
from backhaul_agent.replay.feed import kept_of
from backhaul_codec.recordings.chain import source_of
from backhaul_codec.recordings.mapping import load
from backhaul_codec.recordings.readers import Chunk
from tests.agent.recordings import BEGAN_S, bundle, mapping
from tests.support.agent_process import AgentProcess
from tests.support.agent_streams import points_of
from tests.support.hub_word import hub_that_knows
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer


def recording(path: Path, rows: range, *, untimed: tuple[int, ...] = ()) -> Path:
    """Write rows by number; append where the file is there already."""
    lines = "".join(
        f"{'' if row in untimed else BEGAN_S + row},{row}.5,{row * 2}\n" for row in rows
    )
    path.write_text((path.read_text() if path.exists() else "t,soc,speed\n") + lines)
    return path


class Vehicle:
    """An agent that runs, and what it has kept."""

    def __init__(self, directory: Path, server: NatsServer) -> None:
        self.directory = directory
        self.url = server.url
        self.agent = AgentProcess(directory / "agent", server.url)
        self.map = mapping(directory / "m.toml")

    def command(self, file: Path, *options: str) -> list[str]:
        given = {"--map", "--speed"} & set(options)
        more = [] if "--map" in given else ["--map", str(self.map)]
        more += [] if "--speed" in given else ["--speed", "max"]
        return ["replay", str(file), *more, *options, "--url", self.url]

    async def replay(self, file: Path, *options: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, cli, self.command(file, *options))

    async def start(self, file: Path, *options: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "backhaul_agent", *self.command(file, *options)]
        return await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )

    async def rows_kept(self, file: Path) -> int:
        loaded = load(self.map)
        cells = file.read_text().splitlines()[1].split(",")
        first = Chunk(0, 1, dict(zip(("t", "soc", "speed"), ([c] for c in cells), strict=True)), 0)
        async with connect(self.url) as agent:
            kept = await kept_of(agent, source_of(loaded, first, ""))
        return kept.rows if kept else 0

    async def keeps_more(self, file: Path, rows: int, process: asyncio.subprocess.Process) -> None:
        """Wait until more rows are kept than these, or the replay has ended."""
        async with asyncio.timeout(120):
            while process.returncode is None:
                if await self.rows_kept(file) > rows:
                    return
                await asyncio.sleep(0.01)

    async def soc(self) -> list[float]:
        """Return the values of battery.soc that left the ledger, in order of value.

        What was staged when the agent was killed leaves when a hub has said that it knows nothing newer.
        """
        async with hub_that_knows(self.url):
            await self.agent.drained()
        client = await patient.connect(self.url)
        found = await points_of(client, "OUT_bulk")
        await client.close()
        return sorted(float(point.value) for point in found if point.type == "soc")  # type: ignore[arg-type]


@pytest.fixture
async def vehicle(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[Vehicle]:
    it = Vehicle(tmp_path, nats_server)
    it.agent.start()
    try:
        await it.agent.ready()
        yield it
    finally:
        it.agent.stop()


def expected(rows: int) -> list[float]:
    return [row + 0.5 for row in range(rows)]


@pytest.mark.nats
async def test_a_wrong_unit_sends_nothing_and_says_which_it_is(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    file = recording(tmp_path / "r.csv", range(100))
    wrong = tmp_path / "wrong.toml"
    for unit, words in (("ms", "it looks like unit = 's'"), ("rfc3339", "no valid time")):
        result = await vehicle.replay(file, "--map", str(mapping(wrong, unit)))
        assert result.exit_code == 1
        assert words in str(result.exception)
        assert "--stamp-now" in str(result.exception)
    assert await vehicle.soc() == []
    result = await vehicle.replay(file, "--map", str(wrong), "--stamp-now")
    assert result.exit_code == 0, result.output
    assert "100 rows without a valid time" in result.output
    assert await vehicle.soc() == expected(100)


@pytest.mark.nats
async def test_a_second_run_adds_nothing_and_one_that_grew_only_what_is_new(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    file = recording(tmp_path / "r.csv", range(5000), untimed=(7, 4000))
    result = await vehicle.replay(file)
    assert result.exit_code == 0, result.output
    assert "5000 rows, 10000 points: 10000 kept, 0 refused, 0 not known" in result.output
    file = file.rename(tmp_path / "of-another-name.csv")
    vehicle.agent.stop()
    vehicle.agent.start()
    await vehicle.agent.ready()
    result = await vehicle.replay(file)
    assert result.exit_code == 0, result.output
    assert "5000 rows were kept before this run, with 10000 points" in result.output
    assert "0 rows, 0 points: 0 kept" in result.output
    recording(file, range(5000, 5100))
    result = await vehicle.replay(file)
    assert result.exit_code == 0, result.output
    assert "100 rows, 200 points: 200 kept" in result.output
    assert await vehicle.soc() == expected(5100)
    file.write_text(file.read_text().replace("4.5,8", "4.5,9"))
    result = await vehicle.replay(file)
    assert result.exit_code == 1
    assert "5100 rows of a recording that begins with this row" in str(result.exception)
    result = await vehicle.replay(file, "--as-new")
    assert result.exit_code == 0, result.output
    assert len(await vehicle.soc()) == 10_200


@pytest.mark.nats
async def test_a_paced_replay_says_how_far_it_is_though_no_bundle_is_ever_full(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_codec.recordings.progress.LOG_S", 0.0)
    monkeypatch.setattr("backhaul_agent.replay.run.FLUSH_S", 0.0)
    result = await vehicle.replay(
        recording(vehicle.directory / "r.csv", range(40)), "--speed", "1000"
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"[1-9]\d* of 40 rows \(\d+ %\), 2021-03-29 [0-9:]+, .* left", result.stderr)


@pytest.mark.nats
async def test_ctrl_c_says_what_is_kept_and_the_next_run_goes_on(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    file = recording(tmp_path / "r.csv", range(3000))
    process = await vehicle.start(file, "--speed", "1000")
    await vehicle.keeps_more(file, 0, process)
    process.send_signal(signal.SIGINT)
    out, errors = (stream.decode() for stream in await process.communicate())
    assert process.returncode == 130, errors
    rows = await vehicle.rows_kept(file)
    assert 0 < rows < 3000
    assert f"{rows} rows, {2 * rows} points: {2 * rows} kept" in out
    assert f"{rows} of 3000 rows are kept: the same command goes on with row {rows}" in errors
    assert "Aborted" not in errors
    assert "Traceback" not in errors
    result = await vehicle.replay(file)
    assert result.exit_code == 0, result.output
    assert f"{rows} rows were kept before this run" in result.output
    assert await vehicle.soc() == expected(3000)


@pytest.mark.nats
async def test_kills_of_replay_and_agent_lose_and_double_no_row(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    file = recording(tmp_path / "r.csv", range(60_000), untimed=tuple(range(100, 60_000, 997)))
    kept = 0
    for round_ in range(4):
        process = await vehicle.start(file)
        await vehicle.keeps_more(file, kept, process)
        if round_ % 2:
            vehicle.agent.kill()
            vehicle.agent.start()
            await vehicle.agent.ready()
        if process.returncode is None:
            process.kill()
        await process.communicate()
        kept = await vehicle.rows_kept(file)
    process = await vehicle.start(file)
    await vehicle.keeps_more(file, kept, process)
    vehicle.agent.kill()
    vehicle.agent.start()
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert await vehicle.soc() == expected(60_000)


@pytest.mark.nats
async def test_two_replays_of_one_recording_at_a_time_keep_each_row_once(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    file = recording(tmp_path / "r.csv", range(20_000))
    processes = [await vehicle.start(file) for _ in range(2)]
    said = [await process.communicate() for process in processes]
    assert sorted(process.returncode or 0 for process in processes) in ([0, 0], [0, 1]), said
    assert await vehicle.soc() == expected(20_000)


@pytest.mark.nats
async def test_points_that_are_refused_are_found_and_the_others_kept(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    vehicle.map = mapping(tmp_path / "m.toml", dtype="text")
    long = random.Random(1).randbytes(60_000).hex()  # no frame of an agent can hold it
    lines = [f"{BEGAN_S + row},{long if row in (3, 250) else row},1\n" for row in range(300)]
    file = tmp_path / "r.csv"
    file.write_text("t,soc,speed\n" + "".join(lines))
    result = await vehicle.replay(file)
    assert result.exit_code == 1
    assert "300 rows, 600 points: 598 kept, 2 refused, 0 not known" in result.output
    assert "too_large" in result.output
    result = await vehicle.replay(file)
    assert result.exit_code == 1, "not all of it is kept"
    assert "2 points of them were refused then" in result.output
    assert len(await vehicle.soc()) == 298


@pytest.mark.nats
async def test_bundles_that_are_none_are_refused_and_the_agent_goes_on(vehicle: Vehicle) -> None:
    async with connect(vehicle.url) as agent:
        for payload in (b"", b"\xc1", msgspec.msgpack.encode({"source": "x"}), b"\x91" * 5000):
            for subject in ("agent.replay.put", "agent.replay.kept"):
                with pytest.raises(RefusedError):
                    await agent.ask(subject, payload)
        whole = bundle(0, 5)
        for parts in ([("agent.set", b"{}", "")], [("app.a.b", b'{"value":1,"lane":"live"}', "")]):
            whole.parts = parts
            answer = await agent.ask("agent.replay.put", msgspec.msgpack.encode(whole))
            assert answer["refused"]
        assert await kept_of(agent, whole.source) is None
