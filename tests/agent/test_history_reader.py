"""History out of a real ledger: every place a point may stand, each once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.commit.contents import Points
from backhaul_agent.commit.framer import Framer
from backhaul_agent.history.ledger_source import LedgerHistory
from backhaul_agent.history.merge import HistoryQuestion, Merge
from backhaul_agent.ledger.rows import DictionaryRow, LedgerChanges, Outgoing, Staged
from backhaul_codec import Point, encode_bundle, encode_frame, encode_point
from backhaul_codec.subjects import (
    edge_frame_subject,
    frame_subject,
    node_frame_subject,
    point_subject,
)
from backhaul_codec.wire.addressed import edge_frame_points
from backhaul_codec.wire.dictionaries import digest_of, is_packed, pack_with
from backhaul_codec.wire.envelope import unseal
from tests.agent.ledgers import NOTHING, open_ledger, spoil
from tests.agent.writers import CONFIG

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from backhaul_agent.ledger.ledger import Ledger

ASKED = HistoryQuestion("battery", "soc", "", 0, 10_000, 100_000)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        yield ledger
    finally:
        await ledger.close()


def soc(time: int, value: Any = None, **more: Any) -> Point:
    return Point("battery", "soc", time, float(time) if value is None else value, **more)


def framed(points: Sequence[Point], subject: str | None = None) -> Outgoing:
    times = [point.time for point in points]
    body = encode_frame(points, epoch=0, seq=0)
    lane = "live" if subject else "bulk"
    subject = subject or frame_subject(points[0].node)
    return Outgoing(lane, subject, body, times=(min(times), max(times)))


def single(point: Point) -> Outgoing:
    subject = point_subject(point.node, point.type, point.key)
    body = encode_point(point, epoch=0, seq=0)
    return Outgoing("live", subject, body, times=(point.time, point.time))


async def read(ledger: Ledger, question: HistoryQuestion = ASKED) -> list[tuple[int, Any]]:
    merge, found = Merge(question.limit), []
    async for run, horizon_ns in LedgerHistory(ledger, question).runs():
        merge.add(run)
        times, values = merge.take(horizon_ns)
        found += list(zip(times, values, strict=True))
        if merge.done:
            break
    return found


async def test_wherever_a_point_stands_it_is_found_in_order(ledger: Ledger) -> None:
    edge = edge_frame_points([Point("battery", "nodeType", 60, "x")], [soc(60)])
    await ledger.commit(LedgerChanges([
        framed([soc(10), Point("battery", "volt", 11, 1.0), soc(30)]),
        framed([soc(20)]),
        single(soc(40)),
        framed([soc(50), Point("battery", "soc", 51, 2.0, key="cell1")], node_frame_subject("battery")),
        framed(edge, edge_frame_subject("car", "battery")),
        framed([replace(soc(15), node="other")]),
    ]))  # fmt: skip
    plan = Framer(CONFIG.frame).plan([Points("battery", [soc(70), soc(5)])], 0.0)
    await ledger.commit(plan.changes)
    assert len(await ledger.staged()) == 1
    assert await read(ledger) == [(time, float(time)) for time in (5, 10, 20, 30, 40, 50, 60, 70)]
    assert await read(ledger, ASKED._replace(key="cell1")) == [(51, 2.0)]
    assert await read(ledger, ASKED._replace(type="nodeType")) == []
    assert await read(ledger, ASKED._replace(from_ns=20, to_ns=60)) == [
        (time, float(time)) for time in (20, 30, 40, 50)
    ]


async def test_a_series_is_found_in_bundles_and_in_packed_ones(ledger: Ledger) -> None:
    points = [soc(10), replace(soc(11), node="other"), Point("battery", "volt", 12, 1.0), soc(13)]
    body = encode_bundle(points, epoch=0, seq=0, compression="none")
    dictionary = unseal(body)[1]
    packed = pack_with(encode_bundle([soc(20)], epoch=0, seq=0), dictionary)
    assert is_packed(packed)
    lost = pack_with(encode_bundle([soc(30)], epoch=0, seq=0), dictionary + b"!")
    messages = [(body, (10, 13)), (packed, (20, 20)), (lost, (30, 30))]
    outgoing = [Outgoing("bulk", "b", body, times=times) for body, times in messages]
    await ledger.commit(LedgerChanges(outgoing))
    ledger.dictionaries[digest_of(dictionary)] = DictionaryRow(dictionary, 42, 1, True, 0)
    history = LedgerHistory(ledger, ASKED)
    assert [time async for run, _ in history.runs() for time in run[0]] == [10, 13, 20]
    assert history.unreadable == 1
    other = LedgerHistory(ledger, ASKED._replace(node="other"))
    assert [time async for run, _ in other.runs() for time in run[0]] == [11]


async def test_deleted_points_are_left_out(ledger: Ledger) -> None:
    plan = Framer(CONFIG.frame).plan([Points("battery", [soc(3), soc(4, tombstone=1)])], 0.0)
    await ledger.commit(plan.changes)
    await ledger.commit(
        LedgerChanges(
            [framed([soc(1), soc(2, tombstone=1)]), single(soc(5, tombstone=3)), single(soc(6))]
        )
    )
    assert [time for time, _ in await read(ledger)] == [1, 3, 6]


async def test_events_and_other_series_are_not_history(ledger: Ledger) -> None:
    heads = Outgoing("live", "e.heads", encode_point(Point("", "heads", 5, "x"), epoch=0, seq=0))
    await ledger.commit(LedgerChanges([heads, framed([Point("battery", "volt", 5, 1.0)])]))
    assert await read(ledger) == []


async def test_a_damaged_message_is_passed_over_and_counted(ledger: Ledger) -> None:
    await ledger.commit(
        LedgerChanges([framed([soc(1)]), framed([soc(2)])], [Staged("battery", 1, b"x")])
    )
    await ledger._db.execute("UPDATE messages SET body = substr(body, 1, 40) WHERE seq = 1")
    history = LedgerHistory(ledger, ASKED)
    found = [time async for run, _ in history.runs() for time in run[0]]
    assert found == [2]
    assert history.unreadable == 1


async def test_a_frame_under_the_subject_of_a_point_is_passed_over_and_counted(
    ledger: Ledger,
) -> None:
    """Damage may lead an index to another row. Else the agent would end whenever a program asks."""
    stray = framed([soc(1), soc(2)], point_subject("battery", "soc", ""))
    await ledger.commit(LedgerChanges([stray, single(soc(3))]))
    history = LedgerHistory(ledger, ASKED)
    found = [time async for run, _ in history.runs() for time in run[0]]
    assert found == [3]
    assert history.unreadable == 1


async def test_an_edge_whose_subject_is_no_text_any_more_ends_no_answer(ledger: Ledger) -> None:
    """Else the whole ledger would be set aside, for one row."""
    edge = framed(edge_frame_points([], [soc(1)]), edge_frame_subject("car", "battery"))
    await ledger.commit(LedgerChanges([edge, framed([soc(2)])]))
    await ledger._db.execute(
        "UPDATE messages SET subject = CAST(x'702e63ff722e62617474657279' AS TEXT) "
        "WHERE subject = 'p.car.battery'"
    )
    assert await read(ledger) == [(2, 2.0)]
    assert not ledger.damaged.is_set()


async def test_rows_with_nothing_in_a_column_end_no_answer(tmp_path: Path) -> None:
    """Else the agent would end whenever a program asks for this series."""
    path = tmp_path / "damaged.db"
    ledger = await open_ledger(path)
    await ledger.commit(LedgerChanges([framed([soc(1)])], [Staged("battery", 1, b"x")]))
    await ledger.close()
    spoil(path, "messages", b"f.battery", -9, NOTHING)  # its seq
    spoil(path, "staged", b"battery", -3, NOTHING)  # its body
    ledger = await open_ledger(path)
    assert await read(ledger) == [(1, 1.0)]
    await ledger.close()


async def test_what_is_framed_while_we_read_is_met_once(ledger: Ledger) -> None:
    """Points move from staged rows into a frame between two slices."""
    points = [soc(time) for time in range(1, 6)]
    plan = Framer(CONFIG.frame).plan([Points("battery", points[:3])], 0.0)
    (row,) = await ledger.commit(plan.changes)
    found: list[int] = []
    first = True
    async for run, _ in LedgerHistory(ledger, ASKED).runs():
        found += run[0]
        if first:
            first = False
            await ledger.commit(LedgerChanges([framed(points)], unstage=[row]))
    assert sorted(found) == [1, 2, 3]
    assert [time for time, _ in await read(ledger)] == [1, 2, 3, 4, 5]


async def test_many_slices_while_the_ledger_grows_and_forgets(ledger: Ledger) -> None:
    """Every point there was at the start and was not given up is there, in order, once."""
    for start in range(0, 4000, 10):
        await ledger.commit(LedgerChanges([framed([soc(start + at) for at in range(10)])]))
    stop = asyncio.Event()

    async def grow() -> None:
        time = 4000
        while not stop.is_set():
            await ledger.commit(LedgerChanges([framed([soc(time)])]))
            time += 1
            await asyncio.sleep(0)

    growing = asyncio.create_task(grow())
    found = await read(ledger)
    stop.set()
    await growing
    assert [time for time, _ in found if time < 4000] == list(range(4000))
    assert len(found) == len(set(found))


async def test_a_limit_stops_between_two_stamps(ledger: Ledger) -> None:
    await ledger.commit(LedgerChanges([framed([soc(1), soc(2), soc(2), soc(3)]), framed([soc(2)])]))
    assert [time for time, _ in await read(ledger, ASKED._replace(limit=3))] == [1]


async def test_the_index_finds_the_rows(ledger: Ledger) -> None:
    """The rows of a series are found by subject and time, not by reading the ledger."""
    from backhaul_agent.history import ledger_source as history_reader

    rows = await ledger.query(
        "EXPLAIN QUERY PLAN " + history_reader._SLICE, "f.n", 0, 0, 0, 9, 0, 10
    )
    plan = " ".join(str(row[3]) for row in rows)
    assert "USING INDEX messages_history (subject=? AND (t_lo" in plan
    assert "TEMP B-TREE" not in plan
