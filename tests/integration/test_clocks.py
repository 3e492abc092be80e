"""Vehicles whose wall clock is wrong by years: their points reach the hub with true times."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import time
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from backhaul_agent.client import connect
from backhaul_codec import Message, Point
from tests.integration.clockless import (
    SLACK_NS,
    YEAR_S,
    assert_true_times,
    read_up,
    vehicle,
    without_heads_again,
)
from tests.integration.data import DATA
from tests.support.rig.parts import program, run_to_end
from tests.support.skewed_agent import SkewedClock

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.client import Agent

pytestmark = [pytest.mark.nats]
KILLS = 6  # each costs an agent's start
TWIZY = Path(__file__).parents[2] / "agent" / "mappings" / "twizy.toml"


@pytest.mark.parametrize("years", [-56, 30])
async def test_readings_made_without_a_clock_arrive_with_true_times(
    world: World, years: int
) -> None:
    it = await vehicle(world, years * YEAR_S)
    await it.send(30)
    await it.send(5, live=True)
    status = await it.until(lambda status: status["clock"]["held_messages"] > 5)
    assert status["clock"]["quality"] == "unset"
    assert status["clock"]["error_ns"] is None
    assert [status["lanes"][name]["appended"] for name in ("live", "bulk")] == [0, 0]
    await it.relay.heal()
    status = await it.until(lambda status: status["clock"]["quality"] == "synced")
    assert abs(status["clock"]["offset_ns"] + years * YEAR_S * 10**9) < SLACK_NS
    assert status["clock"]["error_ns"] < SLACK_NS
    await it.send(10)
    # The wall clock jumps, by itself or because somebody set it: nothing comes of it.
    for seconds in (3600, -40 * YEAR_S, 60):
        it.set_wall_clock(seconds)
        await it.until(
            lambda status, ns=seconds * 10**9: abs(status["clock"]["offset_ns"] + ns) < SLACK_NS  # type: ignore[misc]
        )
        await it.send(5)
    status = await it.until(lambda status: status["clock"]["jumps"] >= 1)
    await it.all_at_the_hub()
    found = await read_up(world, "VID-001")
    live = without_heads_again(found["p"], compared=1)
    assert_true_times([*found["f"], *live], it.sent)
    assert {message.clock for message in found["f"]} == {0}
    said = [json.loads(m.points[0].value.data) for m in found["e"] if b"quality" in _data(m)]  # type: ignore[union-attr]
    # Where the machine is busy an exchange comes late, and the agent says holdover meanwhile.
    assert "synced" in {word["quality"] for word in said} <= {"synced", "holdover"}, said
    report = await world.report()
    assert report["devices"][0]["clock"]["quality"] == "synced"


def _data(message: Message) -> bytes:
    value = message.points[0].value
    return getattr(value, "data", b"")


async def test_killed_while_stamps_are_put_right_each_is_put_right_once(world: World) -> None:
    it = await vehicle(world, -56 * YEAR_S)
    await it.send(1500, live=True)  # a message each
    status = await it.until(lambda status: not status["ledger"]["staged_points"])
    held = status["clock"]["held_messages"]
    assert held > 1500

    def waiting() -> int | None:
        with contextlib.closing(sqlite3.connect(it.ledger, timeout=0.1)) as db:
            try:
                (count,) = db.execute("SELECT count(*) FROM messages WHERE boot > 0").fetchone()
            except sqlite3.OperationalError:
                return None  # the agent is frozen amid a commit
            return int(count)

    kills = 0
    # However busy the machine is, whoever looks at it is not to be slower than it: it goes on in steps.
    await it.relay.heal()
    left: int | None = held
    try:
        async with asyncio.timeout(2 * DEADLINE_S):
            while left != 0:
                await asyncio.sleep(0.005)
                os.kill(it.rig.agent.pid, signal.SIGSTOP)
                left = await asyncio.to_thread(waiting)
                if left and left < held and kills < KILLS:
                    await it.rig.agent.stop(signal.SIGKILL)
                    kills, held = kills + 1, left
                    await it.rig.start_agent()
                else:
                    os.kill(it.rig.agent.pid, signal.SIGCONT)
    finally:
        os.kill(it.rig.agent.pid, signal.SIGCONT)
    assert kills, "it was too quick to be killed"
    await it.all_at_the_hub()
    found = await read_up(world, "VID-001")
    # With each start of the agent; stamps are put right in order, so its newest one by then is the head.
    assert_true_times(without_heads_again(found["p"], compared=1 + kills), it.sent)


async def test_a_hub_that_never_tells_the_time_gets_the_readings_all_the_same(
    world: World,
) -> None:
    it = await vehicle(world, -56 * YEAR_S, "[clock]\nhold_s_max = 1.5\n")
    await it.send(10)
    await asyncio.sleep(2.0)
    status = await it.status()
    assert status["clock"]["held_messages"], "with the link down, patience does not run out"
    # The hub's server answers, its control plane does not: streams are sourced as they were.
    await world.hub.control.stop()
    await it.relay.heal()
    status = await it.until(
        lambda status: (
            not status["clock"]["held_messages"] and status["clock"]["stamps_given_up"] > 0
        )
    )
    assert status["clock"]["quality"] == "unset"
    await world.hub.start_control()
    await it.all_at_the_hub()
    found = await read_up(world, "VID-001")
    values = sorted(point.value for message in found["f"] for point in message.points)  # type: ignore[type-var]
    assert values == sorted(it.sent)
    assert {message.clock for message in found["f"]} == {2}


def rows_without_a_clock() -> list[dict[str, Any]]:
    """Return Twizy's 170 rows that have no time, and two on either side of each run."""
    if not DATA.exists():
        pytest.skip(f"no recordings in {DATA}")
    rows: list[dict[str, Any]] = pq.read_table(DATA / "twizy_ev.parquet").to_pylist()
    near = {
        index + step
        for index, row in enumerate(rows)
        if row["t_ns"] is None
        for step in (-2, -1, 0, 1, 2)
    }
    return [row for index, row in enumerate(rows) if index in near]


def rows_made_up() -> list[dict[str, Any]]:
    """Return rows like Twizy's; of three, one has a time."""
    columns = [series["column"] for series in tomllib.loads(TWIZY.read_text())["series"]]
    return [
        {column: float(number) for column in columns}
        | {"Mode": "NDR"[number % 3], "Soc": number / 8}
        | {"t_ns": None if number % 3 else 1_617_016_425_000_000_000 + number}
        for number in range(30)
    ]


def by_series(rows: list[dict[str, Any]], *, timed: bool) -> dict[tuple[str, str], list[Any]]:
    """Return what is to arrive of rows with or without a time: (value, time) in order."""
    return {
        (series["node"], series["type"]): [
            (repr(row[series["column"]]), row["t_ns"])
            for row in rows
            if row[series["column"]] is not None and (row["t_ns"] is not None) is timed
        ]
        for series in tomllib.loads(TWIZY.read_text())["series"]
    }


@pytest.mark.parametrize("recording", [rows_without_a_clock, rows_made_up])
async def test_rows_without_a_clock_from_a_vehicle_without_one_get_true_times(
    world: World, tmp_path: Path, recording: Callable[[], list[dict[str, Any]]]
) -> None:
    rows = recording()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    it = await vehicle(world, -56 * YEAR_S)
    started = time.time_ns()
    replay = [program("backhaul-agent"), "replay", str(tmp_path / "rows.parquet")]
    said = await run_to_end(
        [*replay, "--map", str(TWIZY), "--speed", "max", "--stamp-now", "--url", it.rig.url]
    )
    ended = time.time_ns()
    untimed = sum(row["t_ns"] is None for row in rows)
    assert f"{untimed} rows without a valid time, stamped by the agent" in said
    status = await it.until(lambda status: not status["ledger"]["staged_points"])
    assert status["clock"]["quality"] == "unset"
    assert status["clock"]["held_messages"]
    await it.relay.heal()
    await it.all_at_the_hub()

    given: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    stamped: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for message in sorted((await read_up(world, "VID-001"))["f"], key=lambda each: each.seq):
        for point in message.points:
            found = stamped if point.time > started - SLACK_NS else given
            found[point.node, point.type].append((repr(point.value), point.time))
    assert given == by_series(rows, timed=True)
    for series, wanted in by_series(rows, timed=False).items():
        values, stamps = zip(*stamped[series], strict=True)
        assert values == tuple(value for value, _ in wanted), series
        assert sorted(stamps) == list(stamps), "the order of the rows is that of their times"
        assert stamps[-1] <= ended + SLACK_NS


async def test_the_clients_own_stamps_are_put_right_and_given_times_left_alone(
    world: World,
) -> None:
    it = await vehicle(world, -56 * YEAR_S)
    given = [5, 1_617_016_425_000_000_000]

    async def batch(agent: Agent) -> None:
        async with agent.batch("n") as batch:
            for _ in range(20):
                before = time.time_ns()
                batch.add("t", number := float(len(it.sent)))
                it.sent[number] = (before, time.time_ns())
            for stamp in given:
                batch.add("given", 0.5, time=stamp)
        await agent.publish("blob", "own", b"\xff")  # JSON cannot say it: the client stamps
        await agent.publish("blob", "given", b"\xff", time=given[0])

    async with connect(it.rig.url, clock=SkewedClock(it.offset)) as agent:
        began = time.time_ns()
        await batch(agent)
        await it.relay.heal()
        await it.until(lambda status: status["clock"]["quality"] == "synced")
        await batch(agent)
    await it.all_at_the_hub()
    found = (await read_up(world, "VID-001"))["f"]
    points = [point for message in found for point in message.points]
    assert sorted(point.time for point in points if point.type == "given") == sorted(
        2 * [*given, given[0]]
    )
    own = [point.time for point in points if point.type == "own"]
    assert len(own) == 2
    assert began - SLACK_NS <= min(own) <= max(own) <= time.time_ns() + SLACK_NS
    assert_true_times(
        [message for message in found if any(point.type == "t" for point in message.points)],
        it.sent,
    )


async def test_readings_from_the_future_are_kept_and_the_hub_says_so(
    world: World, tmp_path: Path
) -> None:
    rig, _ = await world.vehicle()
    now = time.time_ns()
    stamps = [now, now + 3600 * 10**9, now + YEAR_S * 10**9]
    async with connect(rig.url) as agent:
        points = [Point("n", "t", stamp, 0.5) for stamp in stamps]
        assert await agent.publish_batch("n", points) == 3
    report = await world.until(lambda report: bool(report["devices"][0]["future"]))
    future = report["devices"][0]["future"]
    assert (future["points"], future["newest_ns"]) == (2, stamps[-1])
    assert now <= future["last_ns"] <= time.time_ns()
    found = (await read_up(world, "VID-001"))["f"]
    assert [point.time for message in found for point in message.points] == stamps
    devices = [program("backhaul-hub"), "devices", "--dir", str(world.hub.directory)]
    await run_to_end(devices, log=tmp_path / "said")
    said = (tmp_path / "said").read_text()
    assert "VID-001: 2 readings stamped from the future, up to 364 days" in said
