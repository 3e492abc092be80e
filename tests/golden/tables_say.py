"""Tables made of captured messages, what they say, and what they hold once further messages have come."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from backhaul_codec import Opaque, Point, chain, encode_frame, encode_point, hash_of
from backhaul_spark.completeness.hour_reports import HourReports, hour_reports
from backhaul_spark.completeness.lane_states import lane_states
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.tables.schemas import TABLES
from tests.support.spark_frames import STORED, message_batch, stored, task

from .plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NOON = 1_767_268_800_000_000_000
HOUR = 3_600_000_000_000
JSON = 6
Message = tuple[int, str, bytes]
"""Its sequence in UP, subject and body."""


class Stopped:
    """A clock that stands where it was put."""

    def __init__(self, hours: int) -> None:
        self._hours = hours

    def now_ns(self) -> int:
        return NOON + self._hours * HOUR

    def monotonic_s(self) -> float:
        return float(self._hours)

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


def captured(lines: Iterable[str]) -> list[Message]:
    """Return messages of UP from lines of a subject and a body in base64."""
    found = []
    for number, line in enumerate(lines, 1):
        subject, body = json.loads(line)[:2]
        found.append((number, subject, base64.b64decode(body)))
    return found


def begin(root: Path, messages: list[Message]) -> None:
    """Make the tables: two ingests, rollups and completeness reports after each."""
    first, second, _ = _parts(messages)
    _take(root, 3, first)
    _take(root, 4, second)


def go_on(root: Path, messages: list[Message]) -> None:
    """Have further messages come, some of them again, and restate what they change."""
    first, _, third = _parts(messages)
    _take(root, 30, third + first[:20])


def says(root: Path) -> dict[str, Any]:
    """Return every row of every table, by a stable order, and what is read from them."""
    tables = {spec.name: _rows(root / spec.name) for spec in TABLES if (root / spec.name).exists()}
    return {
        "tables": tables,
        "hours": plain(hour_reports(str(root))),
        "lanes": plain(lane_states(str(root))),
    }


def _rows(table: Path) -> list[Any]:
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted((plain(row) for row in rows), key=lambda row: json.dumps(row, sort_keys=True))


def _parts(messages: list[Message]) -> tuple[list[Message], list[Message], list[Message]]:
    """Return what comes first, then, and last: of the vehicle of former versions, and what was not captured."""
    of_nine = [each for each in messages if each[1].startswith("up.VID-009.")]
    own = [(len(messages) + n, *each) for n, each in enumerate(_own(), 1)]
    ended = [each for each in of_nine if each[1].endswith(".e.epoch")]
    first = of_nine[:60] + of_nine[-60:-20] + own[:-1]
    second = of_nine[90:150] + ended + _forked(len(messages) + 100)
    return first, second, of_nine[60:90] + own[-1:] + of_nine[-1:]


def _own() -> list[tuple[str, bytes]]:
    """Return three sound hours of one vehicle, one of which lacks a message that is given up; the last comes late."""
    found, link = [], bytes(6)
    for seq in range(1, 13):
        points = [Point("gps", "lat", NOON + seq * HOUR // 4 + n, seq + n / 8) for n in range(5)]
        body = chain(encode_frame(points, epoch=0, seq=0), epoch=3, seq=seq, link=link)
        link = hash_of("f.gps", body)
        found.append(("up.VID-010.f.gps", body))
    words: list[tuple[str, int, dict[str, Any]]] = [
        ("mark", hour, {"epoch": 3, "lanes": {"live": 1 + hour, "bulk": 4 * hour}, "why": "hour"})
        for hour in range(4)
    ]
    words.append(
        ("receipt", 3, {"lane": "bulk", "epoch": 3, "lo": 10, "hi": 10, "reason": "evicted"})
    )
    live = [
        ("up.VID-010.e." + kind, _word(kind, said, hour, seq))
        for seq, (kind, hour, said) in enumerate(words, 1)
    ]
    return found[:5] + found[6:9] + found[10:] + live + [found[5]]


def _forked(last: int) -> list[Message]:
    """Return a seq with two contents: two machines of one identity."""
    frames = [encode_frame([Point("gps", "mode", NOON, said)], epoch=4, seq=1) for said in "ab"]
    bodies = [chain(body, epoch=4, seq=1, link=bytes(6)) for body in frames]
    mark = {"epoch": 4, "lanes": {"live": 0, "bulk": 0}, "why": "hour"}
    then = {"epoch": 4, "lanes": {"live": 1, "bulk": 1}, "why": "hour"}
    found = [("up.VID-011.f.gps", body) for body in bodies]
    found += [
        ("up.VID-011.e.mark", _word("mark", said, n, n + 1)) for n, said in enumerate((mark, then))
    ]
    return [(last + n, *each) for n, each in enumerate(found, 1)]


def _word(kind: str, said: dict[str, Any], hour: int, seq: int) -> bytes:
    data = Opaque(JSON, json.dumps(said).encode())
    epoch = said["epoch"]
    return encode_point(Point("agent", kind, NOON + hour * HOUR, data), epoch=epoch, seq=seq)


def _take(root: Path, hours: int, messages: list[Message]) -> None:
    clock = Stopped(hours)
    ingest = Ingest(str(root), clock)
    batch = stored([])
    batch.seqs = [seq for seq, _, _ in messages]
    batch.subjects = [subject for _, subject, _ in messages]
    batch.times = [STORED] * len(messages)
    batch.bodies = [body for _, _, body in messages]
    number = ingest.tables.next_ingest
    report = task(str(root), number, message_batch("UP_00", batch))
    ingest.commit("golden", number, [report])
    Rollup(str(root), clock, run_here).run()
    HourReports(str(root), clock).run()
