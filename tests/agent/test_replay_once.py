"""Replay: a recording that is read wrongly is refused whole, and each row is kept once, whatever ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ingest.replay_book import PLACES, Bundle, KeptRecording, ReplayBook
from backhaul_codec.errors import MappingError
from backhaul_codec.recordings.chain import Chain, source_of
from backhaul_codec.recordings.mapping import load
from backhaul_codec.recordings.progress import Progress
from backhaul_codec.recordings.readers import Chunk
from backhaul_codec.recordings.times import TimeCheck, row_time
from tests.agent.recordings import BEGAN_S, bundle, mapping

if TYPE_CHECKING:
    from pathlib import Path


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
