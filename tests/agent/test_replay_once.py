"""Replay: a recording that is read wrongly is refused whole, and each row is kept once, whatever ends."""

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
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ingest.replay_book import PLACES, Bundle, KeptRecording, ReplayBook
from backhaul_agent.replay.feed import kept_of
from backhaul_codec.errors import MappingError
from backhaul_codec.recordings.chain import Chain, source_of
from backhaul_codec.recordings.mapping import load
from backhaul_codec.recordings.progress import Progress
from backhaul_codec.recordings.readers import Chunk
from backhaul_codec.recordings.times import TimeCheck, row_time
from tests.support.agent_process import AgentProcess
from tests.support.agent_streams import points_of
from tests.support.hub_word import hub_that_knows
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer

BEGAN_S = 1_617_016_425
MAP = """
[time]
column = "t"
unit = "{unit}"
[[series]]
column = "soc"
node = "battery"
type = "soc"
dtype = "{dtype}"
[[series]]
column = "speed"
node = "drive"
type = "speed"
"""


def recording(path: Path, rows: range, *, untimed: tuple[int, ...] = ()) -> Path:
    """Write rows by number; append where the file is there already."""
    lines = "".join(
        f"{'' if row in untimed else BEGAN_S + row},{row}.5,{row * 2}\n" for row in rows
    )
    path.write_text((path.read_text() if path.exists() else "t,soc,speed\n") + lines)
    return path


def mapping(path: Path, unit: str = "s", dtype: str = "auto") -> Path:
    path.write_text(MAP.format(unit=unit, dtype=dtype))
    return path


@pytest.mark.parametrize(
    ("cells", "unit", "words"),
    [
        ([BEGAN_S], "ms", "year 1970; it looks like unit = 's'"),
        ([BEGAN_S * 10**3], "us", "year 1970; it looks like unit = 'ms'"),
        ([BEGAN_S * 10**9], "s", "year 51241212623; it looks like unit = 'ns'"),
        ([BEGAN_S * 10**3], "s", "year 53211; it looks like unit = 'ms'"),
        ([str(BEGAN_S)], "rfc3339", "no such time; it looks like unit = 's'"),
        (["2021-03-29T11:13:45Z"], "ns", "no such time; it looks like unit = 'rfc3339'"),
        (["2021-03-29 11:13:45"], "rfc3339", "without a zone"),
        ([11_919_707_000], "ns", "dates = false"),
        ([None], "s", "none at all"),
    ],
)
def test_times_by_a_wrong_unit_are_refused_with_the_one_it_looks_like(
    cells: list[Any], unit: str, words: str
) -> None:
    check = TimeCheck(unit)
    for number in range(40):
        raw = cells[number % len(cells)]
        check.note(number, raw, row_time(raw, unit, dates=True))
    with pytest.raises(MappingError, match=words) as refused:
        check.require("t", "do so")
    assert "40 of 40 rows" in str(refused.value)


@pytest.mark.parametrize(
    ("rows", "untimed", "refused"),
    [
        (55_645, 170, False),
        (55_645, 557, True),
        (100, 10, False),
        (100, 11, True),
        (5, 2, False),
        (4, 2, True),
        (1, 1, True),
        (0, 0, False),
    ],
)
def test_a_few_rows_without_a_time_are_no_reason(rows: int, untimed: int, refused: bool) -> None:
    check = TimeCheck("s")
    for number in range(rows):
        raw = None if number < untimed else BEGAN_S
        check.note(number, raw, row_time(raw, "s", dates=True))
    assert bool(check.problem) is refused


def test_a_chain_is_of_what_stands_in_the_rows(tmp_path: Path) -> None:
    loaded = load(mapping(tmp_path / "m.toml"))

    def chunk(first: int, soc: list[Any]) -> Chunk:
        columns = {"t": list(range(len(soc))), "soc": soc, "speed": [1] * len(soc)}
        return Chunk(first, len(soc), columns, 0)

    whole, parts = Chain(loaded), Chain(loaded)
    whole.advance(chunk(0, [1, 2, 3]), 3)
    parts.advance(chunk(0, [1, 2, 3]), 1)
    first = parts.digest
    parts.advance(chunk(0, [1, 2, 3]), 3)
    assert (whole.digest, whole.rows) == (parts.digest, parts.rows)
    assert first != whole.digest
    other = Chain(loaded)
    other.advance(chunk(0, [1, 2.0, 3]), 3)
    assert other.digest != whole.digest
    source = source_of(loaded, chunk(0, [1, 2]))
    assert source == source_of(loaded, chunk(0, [1, 9]))
    assert source != source_of(loaded, chunk(0, [2, 2]))
    assert source != source_of(loaded, chunk(0, [1, 2]), "mark")
    again = load(mapping(tmp_path / "n.toml", dtype="text"))
    assert source != source_of(again, chunk(0, [1, 2]))


def test_a_time_beyond_64_bits_stops_no_chain(tmp_path: Path) -> None:
    """A Parquet timestamp in seconds may be one: it is no time, and only its own row knows."""
    loaded = load(mapping(tmp_path / "m.toml"))

    def digest(time_ns: int) -> str:
        chunk = Chunk(0, 1, {"t": [time_ns], "soc": [1], "speed": [1]}, 0)
        assert source_of(loaded, chunk)
        chain = Chain(loaded)
        chain.advance(chunk, 1)
        return chain.digest

    assert digest(1 << 70) != digest((1 << 70) + 1)


def bundle(first: int, last: int, *, source: int = 1) -> Bundle:
    def digest(row: int) -> str:
        return f"{row:032x}"

    return Bundle(f"{source:032x}", first, last, digest(first), digest(last), [])


def test_rows_follow_one_another_in_the_book() -> None:
    meta: dict[str, str | int] = {}
    book = ReplayBook(lambda: meta)

    def write(each: Bundle) -> None:
        note = book.begin(each, 10, 5)
        assert note is not None
        assert all(meta.get(name) == value for name, value in note.expected.items())
        meta.update(note.noted)
        book.end(each.source)

    with pytest.raises(RefusedError, match="do not follow the 0 rows"):
        book.begin(bundle(5, 9), 10, 5)
    write(bundle(0, 5))
    assert book.begin(bundle(0, 5), 10, 5) is None, "its answer was lost"
    for wrong in (bundle(0, 9), bundle(6, 9), bundle(0, 4), bundle(5, 4)):
        with pytest.raises(RefusedError) as refused:
            book.begin(wrong, 10, 5)
        assert refused.value.code == Code.OUT_OF_STEP
    other = msgspec.structs.replace(bundle(5, 9), before="f" * 32)
    with pytest.raises(RefusedError, match="do not follow"):
        book.begin(other, 10, 5)
    write(bundle(5, 9))
    assert book.begin(bundle(9, 12), 1, 5) is not None
    with pytest.raises(RefusedError) as refused:
        book.begin(bundle(9, 12), 1, 5)
    assert refused.value.code == Code.BUSY, "while one is written no other is begun"
    with pytest.raises(RefusedError):
        book.kept(bundle(9, 12).source)
    book.end(bundle(9, 12).source)
    kept = book.kept(bundle(9, 12).source)
    assert kept is not None
    assert (kept.rows, kept.points) == (9, 20)


def test_the_book_is_bounded_and_the_oldest_recording_makes_room() -> None:
    meta: dict[str, str | int] = {
        f"replay.{number}": msgspec.json.encode(
            KeptRecording(f"{number + 1:032x}", 5, f"{5:032x}", time_ns=1000 - number % 1000)
        ).decode()
        for number in range(PLACES)
    }
    book = ReplayBook(lambda: meta)
    note = book.begin(bundle(0, 5, source=1 << 40), 1, 2000)
    assert note is not None
    assert list(note.noted) == ["replay.999"]
    meta["replay.7"] = "spoilt"
    note = book.begin(bundle(0, 5, source=1 << 41), 1, 2000)
    assert note is not None
    assert list(note.noted) == ["replay.7"]
    assert note.expected == {"replay.7": "spoilt"}


def test_two_recordings_that_begin_at_once_have_places_of_their_own() -> None:
    meta: dict[str, str | int] = {}
    book = ReplayBook(lambda: meta)
    notes = [book.begin(bundle(0, 5, source=source), 10, 5) for source in (1, 2)]
    for note in notes:
        assert note is not None
        assert all(meta.get(name) == value for name, value in note.expected.items())
        meta.update(note.noted)
    for source in (1, 2):
        book.end(f"{source:032x}")
        kept = book.kept(f"{source:032x}")
        assert kept is not None
        assert kept.rows == 5
    del meta["replay.0"]  # as if the first had not been written
    kept = book.kept(f"{2:032x}")
    assert kept is not None
    assert kept.rows == 5
    assert book.kept(f"{1:032x}") is None


def test_progress_says_rows_time_rate_and_what_is_left() -> None:
    progress = Progress(10_000, 2_000, now_s=5.0, every_s=10.0)
    assert not progress.due(3_000, None, 14.9)
    line = progress.due(4_000, BEGAN_S * 10**9, 15.0)
    assert line == "4,000 of 10,000 rows (40 %), 2021-03-29 11:13:45, 200 rows/s, 0:30 left"


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
    monkeypatch.setattr("backhaul_codec.recordings.progress_screen.LOG_S", 0.0)
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
