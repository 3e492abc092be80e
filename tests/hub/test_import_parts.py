"""Imports: rows by device, in blocks that have the same places every time; what changed is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from nats.errors import OutboundBufferLimitError

from backhaul_codec import Point, decode, peek
from backhaul_codec.assurance.completeness import HOUR_NS, LaneId, LaneRecord, Mark, report_hours
from backhaul_codec.errors import MappingError
from backhaul_codec.protocol.words import ImportWord, WordError, read_word
from backhaul_codec.ranges import RangeSet
from backhaul_codec.recordings.mapping import DeviceOf, load
from backhaul_codec.recordings.points import PointsRow
from backhaul_codec.recordings.readers import Chunk
from backhaul_codec.subjects import SubjectError, parse_uplink
from backhaul_hub.backup.files import set_created
from backhaul_hub.config import Health
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.health.judge import HealthFacts, HubHealth
from backhaul_hub.imports import run
from backhaul_hub.imports.blocks import BLOCK_ROWS, epoch_of, messages, pack, stretch_of
from backhaul_hub.imports.files import files_below, groups, look
from backhaul_hub.imports.run import ChangedError, Flow
from backhaul_hub.imports.split import Blocks, Splitter
from backhaul_hub.lane_records.imported_rows import (
    Source,
    add_hours,
    epochs_of,
    imported_hours,
    note_stream,
    put,
    source_of_db,
    take_epoch,
    unfinished,
)
from tests.hub.clock_wire import HubClock

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_codec.assurance.conditions import Condition

HOUR = 450_000
MAP = """
[time]
column = "t"
unit = "s"
[[series]]
column = "soc"
node = "battery"
type = "soc"
[device]
{device}
"""


def chunk(first: int, cells: list[Any], **columns: list[Any]) -> Chunk:
    return Chunk(first, len(cells), {"t": cells, "soc": cells, **columns}, 0)


@pytest.mark.parametrize(
    ("pattern", "path", "device"),
    [
        ("{device}.csv", "VID-001.csv", "VID-001"),
        ("{device}.csv", "deep/below/VID-001.csv", "VID-001"),
        ("{device}_*.parquet", "VID-001_2021_03.parquet", "VID-001"),
        ("logs/{device}/*.csv", "logs/VID-001/a.csv", "VID-001"),
        ("logs/{device}/*.csv", "logs/VID-001/deeper/a.csv", None),
        ("{device}.csv", "VID 001.csv", None),
        ("{device}.csv", "VID-001.csv.csv", None),
        ("{device}.csv", "WVW1.csv", "VID-009"),
    ],
)
def test_devices_from_names_of_files(pattern: str, path: str, device: str | None) -> None:
    assert DeviceOf(file=pattern, names={"WVW1": "VID-009"}).of_path(path) == device


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("", "either column or file"),
        ('column = "vin"\nfile = "{device}.csv"', "either column or file"),
        ('file = "all.csv"', "stands in it once"),
        ('colour = "red"', "colour"),
    ],
)
def test_mappings_that_do_not_say_whose(tmp_path: Path, device: str, words: str) -> None:
    path = tmp_path / "m.toml"
    path.write_text(MAP.format(device=device))
    with pytest.raises(MappingError, match=words):
        load(path)


def test_rows_of_a_file_are_numbered_for_each_device() -> None:
    splitter = Splitter(DeviceOf(column="vin", names={"x": "VID-003"}), None)
    found = [
        (device, part.first_row, part.columns["t"])
        for cells in ([1, 2, 3], [4, 5, 6, 7, 8])
        for device, part in splitter.split(
            chunk(0, cells, vin=["VID-001", "x", "VID-001", None, "VID 7"][: len(cells)])
        )
    ]
    assert found == [
        ("VID-001", 0, [1, 3]),
        ("VID-003", 0, [2]),
        ("VID-001", 2, [4, 6]),
        ("VID-003", 1, [5]),
    ]
    assert splitter.unnamed == {"": 1, "VID 7": 1}
    one = Splitter(DeviceOf(file="{device}.csv"), "VID-001")
    assert [part.first_row for _ in range(2) for _, part in one.split(chunk(0, [1, 2]))] == [0, 2]


def test_blocks_begin_where_rows_are_kept_and_end_alike_however_they_come() -> None:
    def cut(sizes: list[int]) -> list[tuple[int, list[int]]]:
        blocks, found, at = Blocks(5, 4, 7), [], 0
        for size in sizes:
            found += [
                (each.first_row, each.columns["t"])
                for each in blocks.add(chunk(at, list(range(at, at + size))))
            ]
            at += size
        rest = blocks.rest()
        return [*found, (rest.first_row, rest.columns.get("t", []))]

    wanted = [(5, [5, 6]), (7, [7]), (8, [8, 9, 10, 11]), (12, [12, 13, 14, 15]), (16, [16])]
    assert cut([17]) == cut([3, 3, 3, 3, 3, 2]) == cut([1] * 17) == wanted
    assert cut([12])[-1] == (12, [])


def rows(count: int, *, first: int = 0) -> list[PointsRow]:
    return [
        PointsRow(
            None if number % 7 == 6 else (HOUR * 3600 + number) * 10**9,
            [Point("battery", "soc", (HOUR * 3600 + number) * 10**9, float(number))],
            number,
        )
        for number in range(first, first + count)
    ]


def test_a_block_is_frames_and_a_word_that_says_what_they_are() -> None:
    packed = pack(rows(3000))
    assert (packed.points, packed.untimed, packed.refused) == (2572, 428, 0)
    found = messages(packed, "VID-001", "ab", (0, 3000), 7, 5)
    assert [peek(body).seq for _, body in found] == [1, 2, 3, 4]
    assert {peek(body).epoch for _, body in found} == {7}
    assert {subject for subject, _ in found[:-1]} == {"import.VID-001.f.battery"}
    points = [point for _, body in found[:-1] for point in decode(body, node="battery").points]
    assert [point.value for point in points] == [float(n) for n in range(3000) if n % 7 != 6]
    subject, body = found[-1]
    word = read_word(parse_uplink(subject), 7, body)
    assert word == ImportWord("ab", 0, 3000, ((HOUR, 2572),))
    assert messages(packed, "VID-001", "ab", (0, 3000), 7, 5) == found


def test_points_that_no_frame_holds_are_left_out_and_counted() -> None:
    bad = Point("battery", "x" * 5000, HOUR * 3600 * 10**9, 1.0)
    packed = pack([*rows(5), PointsRow(bad.time, [bad], 5)])
    assert (packed.points, packed.refused) == (5, 1)
    assert "5000 bytes" in packed.last_refusal


def test_epochs_are_of_the_rows_and_never_taken_twice() -> None:
    stretch = stretch_of("ab", 0, "d0", 9, "d9")
    epoch = epoch_of(stretch, {})
    assert 0 < epoch < 1 << 32
    assert epoch == epoch_of(stretch, {1: "x", epoch: stretch}), "the same rows again"
    others = {epoch_of(stretch_of("ab", 0, "d0", end, "d9"), {}) for end in range(100)}
    assert len(others) == 100
    assert epoch_of(stretch, {epoch: "other rows"}) not in {epoch, 0}


def test_no_vehicle_can_import_and_nothing_else_can_be_imported() -> None:
    for subject in (
        "up.VID-001.import.f.x",
        "up.VID-001.i.f.x",
        "import.VID-001.p.a.b.c",
        "import.VID-001.e.mark",
        "import.VID-001.n.gps.f.gps",
        "import.VID 1.f.x",
        "import.f.x",
    ):
        with pytest.raises(SubjectError):
            parse_uplink(subject)
    assert parse_uplink("import.VID-001.f.x").lane == "import"
    _, body = messages(pack(rows(3)), "VID-001", "ab", (0, 3), 7, 5)[-1]
    assert read_word(parse_uplink("up.VID-001.e.import"), 7, body) is None
    _, spoilt = messages(pack(rows(3)), "VID-001", "x" * 100, (0, 3), 7, 5)[-1]
    with pytest.raises(WordError):
        read_word(parse_uplink("import.VID-001.e.import"), 7, spoilt)


def flow(tmp_path: Path, kept: Source | None = None) -> Flow:
    path = tmp_path / "m.toml"
    path.write_text(MAP.format(device='file = "{device}.csv"'))
    return Flow(kept or Source("ab", "VID-001", "f.csv", 10), load(path))


def test_a_flow_goes_on_where_rows_are_kept_and_refuses_others(tmp_path: Path) -> None:
    cells = list(range(BLOCK_ROWS + 10))
    first = flow(tmp_path)
    blocks = first.take(chunk(0, cells))
    end, digest = first.advance(blocks[0])
    assert (end, first.end().rows) == (BLOCK_ROWS, 10)
    kept = replace(first.kept, rows=end, digest=digest, going=end)
    again = flow(tmp_path, kept)
    assert again.take(chunk(0, cells)) == []
    assert again.end().columns["t"] == cells[BLOCK_ROWS:]
    with pytest.raises(ChangedError, match="changed, or is another one"):
        flow(tmp_path, kept).take(chunk(0, [*cells[:50], 7, *cells[51:]]))
    short = flow(tmp_path, kept)
    short.take(chunk(0, cells[:100]))
    with pytest.raises(ChangedError, match="fewer"):
        short.end()
    # A block that was begun is published again as it was, though the file has grown.
    begun = replace(kept, going=end + 4, going_digest="x")
    grown = flow(tmp_path, begun)
    (block,) = grown.take(chunk(0, cells))
    assert (block.first_row, block.rows) == (end, 4)
    with pytest.raises(ChangedError, match="begun"):
        grown.advance(block)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_server_that_is_away_for_a_while_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """While it is away the connection holds some messages back, and refuses more."""
    path = tmp_path / "m.toml"
    path.write_text(MAP.format(device='file = "{device}.csv"'))
    mapping = load(path)
    assert mapping.device is not None
    errors = [OutboundBufferLimitError(), HubError("no answer"), OutboundBufferLimitError()][:times]

    class Api:
        async def publish(self, subject: str, body: bytes) -> dict[str, int]:
            if errors:
                raise errors.pop()
            return {"seq": 7}

    monkeypatch.setattr(run, "AGAIN_S", 0.001)
    monkeypatch.setattr(run, "AGAIN_S_MAX", 0.002)
    nothing: Any = None
    api: Any = Api()
    work = run.Import(tmp_path, mapping, mapping.device, nothing, api, HubClock(), lambda *_: None)
    if times == 1:
        await work._publish("import.VID-001.f.x", b"")
        assert work._seq == 7
    else:
        with pytest.raises(HubError, match="has not taken a message"):
            await work._publish("import.VID-001.f.x", b"")


def blocks_of(tmp_path: Path, *sizes: int) -> set[str]:
    """Return what tells each block from all others, of a file imported whenever it has so many rows."""
    found: set[str] = set()
    kept = None
    for size in sizes:
        one = flow(tmp_path, kept)
        for block in [*one.take(chunk(0, list(range(size)))), one.end()]:
            if block.rows:
                begun = one.kept
                end, digest = one.advance(block)
                found.add(stretch_of(begun.source, begun.rows, begun.digest, end, digest))
                one.kept = replace(begun, rows=end, digest=digest, going=end)
        kept = one.kept
    return found


def test_a_file_that_had_grown_has_the_same_blocks_where_it_is_imported_again(
    tmp_path: Path,
) -> None:
    """Where the stream was lost, or hub.db: else all that came after it had grown would be there twice."""
    grown = blocks_of(tmp_path, 100, BLOCK_ROWS * 2 + 7, BLOCK_ROWS * 5 + 9)
    whole = blocks_of(tmp_path, BLOCK_ROWS * 5 + 9)
    assert len(whole) == 6
    assert len(whole & grown) == 4, "all but those in which an import had ended"
    assert len(grown - whole) == 4


def health(imports: str) -> list[Condition]:
    judged = HubHealth(Health())
    judged.look(HealthFacts([], imports=imports), 1.0, 1)
    return judged.conditions.shown()


async def test_what_hub_db_keeps_of_imports(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        source = Source("ab", "VID-001", "f.csv", 10, going=10, going_epoch=7)
        source = replace(source, going_hours=msgspec.json.encode([5]).decode())
        await registry.write([*put(source), take_epoch("VID-001", 7, "rows")])
        assert await source_of_db(registry, "ab") == source
        assert await epochs_of(registry, "VID-001") == {7: "rows"}
        assert await imported_hours(registry, "VID-001") == {5 * HOUR_NS: False}
        minute_ns = 60 * 10**9
        assert await unfinished(registry, minute_ns) == "", "it may go on"
        said = "f.csv of VID-001, 0 of 10 rows"
        assert await unfinished(registry, 3 * minute_ns) == said
        assert await unfinished(registry, 8 * 86_400 * 10**9) == ""
        (found,) = health(said)
        assert (found.code, found.detail) == ("import-unfinished", said)
        done = replace(source, rows=10)
        await registry.write([*put(done), add_hours("VID-001", {5: 3, 6: 1})])
        assert await imported_hours(registry, "VID-001") == {5 * HOUR_NS: True, 6 * HOUR_NS: True}
        assert await imported_hours(registry, "VID-002") == {}
        assert await unfinished(registry, 3 * minute_ns) == ""


async def test_a_stream_that_was_put_back_or_moved_is_the_one_that_was_published_to(
    tmp_path: Path,
) -> None:
    """A server calls it a new one; else the next import would say that it lost messages."""
    path = tmp_path / "hub.db"
    async with await Registry.open(path) as registry:
        await registry.write([note_stream("then", 7)])
    set_created(path, {"then": "now", "other": "x"})
    async with await Registry.open(path) as registry:
        assert await registry.fetch("SELECT created, seq FROM import_stream") == [("now", 7)]
    with closing(sqlite3.connect(path)) as older:
        older.execute("DROP TABLE import_stream")
    set_created(path, {"now": "later"})


def test_hours_that_no_vehicle_has_spoken_of_are_imported() -> None:
    marks = [Mark((HOUR + n) * HOUR_NS, 1, n, {"live": n, "bulk": 0}) for n in (5, 6, 7)]
    lanes = {LaneId("live", 1): LaneRecord(RangeSet([(1, 7)]), highest=7)}
    hours = range(HOUR * HOUR_NS, (HOUR + 7) * HOUR_NS, HOUR_NS)
    imported = {HOUR * HOUR_NS: True, (HOUR + 1) * HOUR_NS: False, (HOUR + 6) * HOUR_NS: True}
    found = {
        each.hour_ns // HOUR_NS - HOUR: (each.state, each.why)
        for each in report_hours(marks, lanes, hours, imported)
    }
    assert found[0] == ("imported", "")
    assert found[1][0] == "waiting"
    assert "was not finished" in found[1][1]
    assert 2 not in found
    assert found[6] == ("complete", "readings of this hour were imported as well")
    assert [each.state for each in report_hours([], {}, hours, imported)] == [
        "imported",
        "waiting",
        "imported",
    ]


def test_files_are_looked_at_before_anything_is_imported(tmp_path: Path) -> None:
    mapping = tmp_path / "m.toml"
    mapping.write_text(MAP.format(device='file = "{device}.csv"'))
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    good = "t,soc\n" + "".join(f"{1_617_016_425 + n},{n}\n" for n in range(20)) + ",5\n"
    (logs / "VID-002.csv").write_text(good)
    (logs / "deep" / "VID-001.csv").write_text(good)
    (logs / "VID-003.csv").write_text("t,soc\n" + "".join(f"{n},{n}\n" for n in range(20)))
    (logs / "VID-004.csv").write_text("soc\n1\n")
    (logs / "not one.csv").write_text(good)
    (logs / "notes.txt").write_text("no log")
    assert len(files_below(logs)) == 5
    loaded = load(mapping)
    assert loaded.device is not None
    found = look(logs, loaded, loaded.device, lambda _: None)
    assert (found.devices, found.rows, found.untimed) == (["VID-001", "VID-002"], 42, 2)
    assert {each.file: each.why.split(":")[0] for each in found.refused} == {
        "VID-003.csv": "column 't'",
        "VID-004.csv": "column 't'",
        "not one.csv": "its name is not like device.file, '{device}.csv'",
    }


def test_devices_are_taken_in_groups_that_fit_into_memory() -> None:
    found = list(groups({f"VID-{n}": 1 for n in range(5)}, 10, 4))
    assert [len(group) for group in found] == [2, 2, 1]
    assert len(list(groups({"VID-1": 1}, 10, 4000))) == 1
