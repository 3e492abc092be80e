"""How a run ends: not at the first moment that looks well, and not with nothing in it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner
from nats.errors import OutboundBufferLimitError

from tests.chaos.__main__ import main
from tests.chaos.look import commands_waiting, epochs_in_time, take_commands
from tests.chaos.operators import DEADLINE_S, LONGEST_S
from tests.chaos.run import (
    DEVICES,
    SETTLE_S,
    Calm,
    Outcome,
    Plan,
    broken_off,
    cancelled_at_the_end,
    run,
)
from tests.chaos.schedule import Fault
from tests.support.rig.parts import RigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.chaos.world import World

COUNTS = {"points": 21, "events": 21, "config writes": 21, "commands": 21, "commands done": 1}
FULL = Outcome(Plan(1, 25.0, ()), [], COUNTS, {"cut": 1}, {}, 1.0)


def test_calm_lasts_once_two_looks_five_seconds_apart_and_all_between_were_good() -> None:
    calm = Calm()
    looks = [(0.0, True), (4.9, True), (5.0, False), (6.0, True), (10.9, True), (11.0, True)]
    assert [calm.lasts(at_s, good=good) for at_s, good in looks] == [False] * 5 + [True]


def test_a_run_with_enough_of_everything_is_not_thin() -> None:
    assert FULL.thin() == []


@pytest.mark.parametrize("name", COUNTS)
def test_a_run_with_too_little_of_something_says_of_what(name: str) -> None:
    few = COUNTS[name] - 1
    assert replace(FULL, counts=COUNTS | {name: few}).thin() == [f"{name}: {few}"]


def test_a_run_that_broke_off_says_why_and_how_to_run_it_again() -> None:
    plan = Plan(7, 25.0, (Fault(1.0, 2.0, "cut", "VID-001"),))
    outcome = broken_off(plan, ExceptionGroup("of a TaskGroup", [ConnectionResetError("lost")]))
    assert outcome.wrong == ["the run broke off: ConnectionResetError('lost')"]
    assert "make chaos SEED=7 MINUTES=0.4167 FAULTS=1.00+2.00:cut@VID-001" in str(outcome)
    assert len(outcome.thin()) == 6


async def test_a_fault_that_fails_is_an_outcome_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise RigError("the hub never answers again")

    monkeypatch.setattr("tests.chaos.run._whole", fails)
    outcome = await run(Plan(1, 1.0, ()), tmp_path)
    assert outcome.wrong == ["the run broke off: RigError('the hub never answers again')"]


async def test_the_time_is_known_once_each_vehicle_knows_it() -> None:
    def knows(device: str) -> dict[str, Any]:
        return {"device": device, "clock": {"quality": "synced"}, "lanes": {"live": {"epoch": 5}}}

    answers: list[list[dict[str, Any]]] = [
        [],
        [knows("VID-001")],
        [knows("VID-001"), knows("VID-002") | {"clock": None}],
        [knows("VID-001"), knows("VID-002")],
    ]
    world = SimpleNamespace(hub=Hub(iter(answers)), vehicles=dict.fromkeys(DEVICES))
    assert await epochs_in_time(cast("World", world)) == {"VID-001": 5, "VID-002": 5}


class Hub:
    """A hub that tells of each time's devices."""

    def __init__(self, answers: Iterator[list[dict[str, Any]]]) -> None:
        self._answers = answers

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Hub]:
        yield self

    async def request(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(data=json.dumps({"devices": next(self._answers)}))


def test_no_command_with_time_expires_before_the_longest_run_is_judged() -> None:
    assert DEADLINE_S > LONGEST_S + 2 * SETTLE_S
    assert DEADLINE_S <= 30 * 24 * 3600, "the hub takes no more"


@pytest.mark.parametrize(("commands", "status"), [(21, 0), (20, 1)], ids=["enough", "thin"])
def test_of_a_thin_run_all_stays_and_how_to_run_it_again_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: int, status: int
) -> None:
    async def ran(plan: Plan, _: Path) -> Outcome:
        return replace(FULL, plan=plan, counts=COUNTS | {"commands": commands})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tests.chaos.__main__.run", ran)
    monkeypatch.setattr("tests.chaos.__main__.server_binary", lambda: "")
    said = CliRunner().invoke(main, ["--seed", "7", "--faults", "1.00+2.00:cut@VID-001"])
    assert said.exit_code == status
    assert ("make chaos SEED=7 MINUTES=1 FAULTS=1.00+2.00:cut@VID-001" in said.output) == status
    assert len([*(tmp_path / "chaos-out").iterdir()]) == status


def test_a_run_without_faults_is_thin() -> None:
    assert replace(FULL, kinds={}).thin() == ["no faults"]


async def test_commands_that_are_no_longer_among_the_newest_are_asked_for_by_their_ids() -> None:
    known = {f"c{number}": {"id": f"c{number}", "state": "done"} for number in range(2_500)}
    known["c1"]["state"] = "sent"
    asked: list[str] = []

    async def ask(limit: int = 0, **which: str) -> list[dict[str, Any]]:
        if "id" in which:
            asked.append(which["id"])
            return [known[which["id"]]] if which["id"] in known else []
        return list(known.values())[-limit:]

    commands: dict[str, dict[str, Any]] = {}
    told = {*known, "never came"}
    await take_commands(commands, ask, ["VID-001"], told)
    assert commands == known
    assert len(asked) == 1_501
    await take_commands(commands, ask, ["VID-001"], told)
    assert asked[1_501:] == ["c1", "never came"]


async def test_a_run_of_few_commands_asks_for_none_by_its_id() -> None:
    async def ask(limit: int = 0, **which: str) -> list[dict[str, Any]]:
        assert "id" not in which
        return []

    await take_commands({}, ask, ["VID-001"], {"never came"})


def test_a_command_in_a_ledger_that_has_not_run_is_not_rest(tmp_path: Path) -> None:
    (tmp_path / "backhaul-agent").mkdir()
    db = sqlite3.connect(tmp_path / "backhaul-agent" / "ledger.db")
    db.execute("CREATE TABLE commands (state TEXT)")
    db.execute("INSERT INTO commands VALUES ('done')")
    db.commit()
    assert commands_waiting("VID-001", tmp_path) == []
    db.execute("INSERT INTO commands VALUES ('waiting')")
    db.commit()
    assert commands_waiting("VID-001", tmp_path) == ["VID-001: 1 commands wait or run"]
    db.close()


async def test_programs_end_with_what_they_ran_beside_though_one_loses_a_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.chaos.run._AGAIN_S", 0.05)

    async def deaf() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def beside() -> None:
        async with cancelled_at_the_end(deaf()):
            await asyncio.sleep(0)
            raise OSError

    async with asyncio.timeout(60):
        with pytest.raises(ExceptionGroup):
            await beside()


@pytest.mark.parametrize("error", [ConnectionResetError, OutboundBufferLimitError])
async def test_a_program_that_cannot_close_its_connection_in_the_end_fails_no_run(
    error: type[Exception],
) -> None:
    begun = asyncio.Event()

    async def reset() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise error

    async with asyncio.timeout(60), cancelled_at_the_end(reset()):
        await begun.wait()


async def test_a_program_that_ends_by_an_error_before_the_end_fails_the_run() -> None:
    async def broken() -> None:
        raise ConnectionResetError

    async with asyncio.timeout(60):
        with pytest.raises(ExceptionGroup):
            async with cancelled_at_the_end(broken()):
                await asyncio.Event().wait()
