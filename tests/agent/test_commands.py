"""Commands on the vehicle: the rules, and what is started when, over restarts."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import TimeoutError as NatsTimeoutError
from structlog.testing import capture_logs

from backhaul_agent.commands import child, decide
from backhaul_agent.commands.decide import RUNS_MAX, CommandBook, CommandStep, read
from backhaul_agent.commands.service import SINCE
from backhaul_agent.config import CommandConfig
from backhaul_agent.ledger.command_rows import RunOutcome, RunState
from backhaul_agent.ledger.rows import Inbound, Inward, LedgerChanges
from backhaul_codec.protocol.command_errors import ErrorCode
from tests.agent.command_rig import NOW, Connection, S, row
from tests.agent.commanded_vehicle import InStream, Vehicle, shell, vehicle
from tests.agent.ledgers import open_ledger
from tests.support.agent_clock import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


BOOK = CommandBook([CommandConfig("safe", idempotent=True), CommandConfig("plain")])


@pytest.fixture(params=["worded", "reworded"], autouse=True)
def _sentences(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all of this decided again with one sentence for every error: nothing may hang on their words."""
    if request.param == "reworded":
        ends = {code: (state, "it did not work") for code, (state, _) in decide.ENDS.items()}
        monkeypatch.setattr(decide, "ENDS", ends)


def test_a_command_that_came_in_time_is_run() -> None:
    assert BOOK.decide(row(), NOW + S, NOW - S) is CommandStep.RUN
    assert BOOK.decide(row(), NOW + 300 * S - 1, NOW - S) is CommandStep.RUN


def test_nothing_is_started_at_its_deadline_or_after_it() -> None:
    for late_s in (300, 301, 2 * 86_400):
        end = BOOK.decide(row(), NOW + late_s * S, NOW - S)
        assert isinstance(end, RunOutcome)
        assert end.state is RunState.EXPIRED


def test_while_nobody_knows_the_time_nothing_is_started() -> None:
    assert BOOK.decide(row(), None, None) is CommandStep.WAIT
    assert BOOK.decide(row(), NOW, None) is CommandStep.WAIT


@pytest.mark.parametrize(("name", "late_s"), [("plain", 1), ("plain", 400), ("safe", 400)])
def test_what_was_sent_before_the_ledger_began_is_not_guessed_about(name: str, late_s: int) -> None:
    end = BOOK.decide(row(name), NOW + late_s * S, NOW)
    assert isinstance(end, RunOutcome)
    assert end.state is RunState.INTERRUPTED


def test_what_may_be_run_again_is_where_there_is_time() -> None:
    assert BOOK.decide(row("safe"), NOW + S, NOW) is CommandStep.RUN


def test_a_run_cut_short_is_run_again_only_where_that_does_no_harm() -> None:
    cut: dict[str, Any] = {"state": RunState.RUNNING, "runs": 1}
    end = BOOK.decide(row(**cut), None, None)
    assert isinstance(end, RunOutcome)
    assert end.state is RunState.INTERRUPTED
    assert BOOK.decide(row("safe", **cut), NOW + S, NOW - S) is CommandStep.RUN
    assert BOOK.decide(row("safe", **cut), None, None) is CommandStep.WAIT
    for fields, now in ((cut, NOW + 300 * S), (cut | {"runs": RUNS_MAX}, NOW + S)):
        end = BOOK.decide(row("safe", **fields), now, NOW - S)
        assert isinstance(end, RunOutcome)
        assert end.state is RunState.INTERRUPTED


@pytest.mark.parametrize(
    ("id_", "data"),
    [
        ("a.b", b'{"name": "x", "sent_ns": 1, "deadline_ns": 2}'),
        ("", b'{"name": "x", "sent_ns": 1, "deadline_ns": 2}'),
        ("a", b'{"name": "x\\n", "sent_ns": 1, "deadline_ns": 2}'),
        ("a", b'{"name": "x y", "sent_ns": 1, "deadline_ns": 2}'),
        ("a", b'{"name": "x.", "sent_ns": 1, "deadline_ns": 2}'),
        ("a", b'{"name": "x", "sent_ns": 1}'),
        ("a", b'{"name": "x", "sent_ns": 1, "deadline_ns": 9223372036854775808}'),
        ("a", b"\xff"),
        ("a", b""),
    ],
)
def test_garbage_is_no_command(id_: str, data: bytes) -> None:
    with pytest.raises(ValueError, match="no command"):
        read(id_, data)


async def test_the_ledger_says_running_before_the_handler_starts(tmp_path: Path) -> None:
    look = (
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("
        "'SELECT state, runs FROM commands').fetchall())"
    )
    handler = CommandConfig("look", run=(sys.executable, "-c", look, str(tmp_path / "ledger.db")))
    async with vehicle(tmp_path, handler) as it:
        await it.send("c1", "look")
        end = await it.end("c1")
        assert end["result"]["output"] == "[('running', 1)]\n"
        assert [each["state"] for each in await it.said("c1")] == ["accepted", "done"]


async def test_a_run_cut_short_is_reported_and_never_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    once = shell("once", f"echo ran >> {log}; exec sleep 60")
    safe = shell("safe", f"echo $BACKHAUL_COMMAND_ID >> {log}; exec sleep 60", idempotent=True)
    async with vehicle(tmp_path, once, safe) as it:
        await it.send("c1", "once")
        await it.send("c2", "safe")
        await until(lambda: log.exists() and log.read_text() == "ran\n")
    async with vehicle(tmp_path, once, safe) as it:
        assert (await it.end("c1"))["state"] == "interrupted"
        await until(lambda: log.read_text() == "ran\nc2\n")
    async with vehicle(tmp_path, once, safe) as it:
        await until(lambda: log.read_text() == "ran\nc2\nc2\n")
        assert len(await it.said("c1")) == 2


async def test_a_finished_command_that_came_again_leaves_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.commands.service.LOOK_S", 0.01)
    handler = shell("once", "echo fine")
    async with vehicle(tmp_path, handler) as it:
        await it.send("c1", "once")
        await it.end("c1")
    stream = InStream()
    async with vehicle(tmp_path, handler) as it:
        it.tasks.append(asyncio.create_task(it.service.tidy(stream)))  # type: ignore[arg-type]
        await until(lambda: stream.looks == 1)
        stream.held.append("c.c1")
        await it.send("c1", "once")
        await until(lambda: not stream.held)


async def test_a_repeat_is_answered_from_the_ledger(tmp_path: Path) -> None:
    log = tmp_path / "log"
    handler = shell("once", f"echo ran >> {log}; echo fine")
    async with vehicle(tmp_path, handler) as it:
        await it.send("c1", "once")
        first = await it.end("c1")
        await it.send("c1", "once")
        assert await it.end("c1", 2) == first
    async with vehicle(tmp_path, handler) as it:  # and over a restart
        await it.send("c1", "once")
        assert await it.end("c1", 3) == first
        changes = Inward()
        data = b'{"name": "once", "sent_ns": 1, "deadline_ns": 2}'
        it.service.on_message(Inbound(["c", "c1"], data, fresh=False), changes)
        assert not changes  # IN read from its start asks for nothing
    assert log.read_text() == "ran\n"


async def test_a_repeat_of_which_the_answer_is_damaged_gets_one_that_says_so(
    tmp_path: Path,
) -> None:
    """Else the agent would end, and again at each start."""
    handler = shell("once", "echo fine")
    async with vehicle(tmp_path, handler) as it:
        await it.send("c1", "once")
        await it.end("c1")
        await it.ledger._db.execute("UPDATE commands SET result = x'7bff7d'")
        await it.send("c1", "once")
        end = await it.end("c1", 2)
    assert (end["state"], end["code"]) == ("interrupted", "damaged")


async def test_standard_error_is_one_field_of_one_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw it could forge lines, and fill the disk: 4.9 GB in 3 s were seen."""
    monkeypatch.setattr(child, "LEFT_S", 0.1)
    script = 'printf \'oh\\n{"event": "forged"}\' >&2; echo fine; sleep 50 &'
    async with vehicle(tmp_path, shell("loud", script)) as it:
        with capture_logs() as logged:
            for number in range(3):
                await it.send(f"c{number}", "loud")
            end = await it.end("c2")
        assert end["state"] == "done"
        lines = [each for each in logged if "text" in each]
        assert [(each["text"], each["bytes"]) for each in lines] == [
            ('oh\n{"event": "forged"}', 22)
        ]
        assert it.service.status()["left_open"] == {"loud": 3}
        assert it.service.status()["cut"] == {"loud": 0}


async def test_commands_go_one_by_one_in_the_order_they_came(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"cat >> {log}; echo ' begins' >> {log}; sleep 0.05; echo ends >> {log}"
    async with vehicle(tmp_path, shell("slow", script)) as it:
        for number in range(3):
            await it.send(f"c{number}", "slow")
        await it.end("c2")
    lines = "".join(f'["c{number}"] begins\nends\n' for number in range(3))
    assert log.read_text() == lines


async def test_an_outage_does_not_fire_what_is_late(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", FakeClock()
    handler = shell("unlock", f"echo ran >> {log}")
    async with vehicle(tmp_path, handler, clock=clock):
        pass
    clock.advance(86_400)
    async with vehicle(tmp_path, handler, clock=clock) as it:
        await it.send("c1", "unlock", sent_s=-3600, deadline_s=0)
        assert (await it.end("c1"))["state"] == "expired"
        assert [each["state"] for each in await it.said("c1")] == ["expired"]
    assert not log.exists()


async def test_a_new_ledger_runs_nothing_that_the_old_one_may_have_run(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", FakeClock()
    handler = shell("once", f"echo ran >> {log}")
    async with vehicle(tmp_path, handler, clock=clock) as it:
        await it.send("c1", "once", sent_s=0)
        # Sent at the ledger's own first moment: nobody can tell.
        assert (await it.end("c1"))["state"] == "interrupted"
        clock.advance(5)
        await it.send("c2", "once", sent_s=0)
        assert (await it.end("c2"))["state"] == "done"
    (tmp_path / "ledger.db").unlink()
    clock.advance(5)
    async with vehicle(tmp_path, handler, clock=clock) as it:
        await it.send("c2", "once", sent_s=-5)
        assert (await it.end("c2"))["state"] == "interrupted"
    assert log.read_text() == "ran\n"


async def one_waits_as_the_epoch_ends(it: Vehicle, clock: FakeClock) -> None:
    """Have a command wait that the next commit starts, which begins a new epoch; nobody else starts it."""
    serving = it.tasks.pop()
    serving.cancel()
    await asyncio.wait([serving])
    clock.advance(5)
    await it.send("c1", "once", sent_s=0)
    it.writer.gate.epochs.behind("the hub knows more")


async def test_a_ledger_that_turns_out_old_as_a_command_is_started_does_not_run_it(
    tmp_path: Path,
) -> None:
    """A new epoch begins with the very commit that says so: the copy may have forgotten that it ran."""
    log, clock = tmp_path / "log", FakeClock()
    async with vehicle(tmp_path, shell("once", f"echo ran >> {log}"), clock=clock) as it:
        await one_waits_as_the_epoch_ends(it, clock)
        await it.service._next()
        assert [each["state"] for each in await it.said("c1")] == ["accepted", "interrupted"]
    assert not log.exists()


async def test_nor_does_it_where_the_time_is_not_known_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, clock = tmp_path / "log", FakeClock()
    async with vehicle(tmp_path, shell("once", f"echo ran >> {log}"), clock=clock) as it:
        await one_waits_as_the_epoch_ends(it, clock)
        latest_ns, old = it.clock.latest_ns, it.ledger.epoch
        monkeypatch.setattr(
            it.clock, "latest_ns", lambda: latest_ns() if it.ledger.epoch == old else None
        )
        await it.service._next()
        assert [each["state"] for each in await it.said("c1")] == ["accepted"]
        await it.service._next()
        assert [each["state"] for each in await it.said("c1")] == ["accepted", "interrupted"]
    assert not log.exists()


async def test_a_start_that_comes_too_late_says_nothing_of_the_one_before(tmp_path: Path) -> None:
    """As where the ledger waited for the disk, or the program was away, until the deadline had passed."""
    async with vehicle(tmp_path) as it:
        late = row("safe", RunState.RUNNING, deadline_ns=it.clock.now_ns() - 1)
        for ends in (it.service._run, lambda begun: it.service._ask(begun, 1.0)):
            first, again = await ends(late._replace(runs=1)), await ends(late._replace(runs=2))
            assert first.state is RunState.EXPIRED
            assert again.state is RunState.INTERRUPTED
            assert again.code is ErrorCode.CUT_SHORT_LATE


async def test_while_the_time_is_unset_a_command_waits(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", FakeClock()
    handler = shell("once", f"echo ran >> {log}")
    async with vehicle(tmp_path, handler, clock=clock, trust="auto") as it:
        await it.send("c1", "once")
        query = "SELECT state FROM commands"
        for _ in range(20):
            assert await it.ledger.query(query) == [("waiting",)]
            await asyncio.sleep(0)
    assert not log.exists()
    async with vehicle(tmp_path, handler, clock=clock) as it:
        assert (await it.end("c1"))["state"] == "done"


async def test_a_command_whose_turn_comes_as_the_leaf_server_went_away_waits_for_it(
    tmp_path: Path,
) -> None:
    async with vehicle(tmp_path) as it:
        it.client = lost = Connection(lost=True)
        await it.send("c1", "arm")
        await lost.looked_at.wait()
        it.client = Connection(lost=False)
        assert (await it.end("c1"))["state"] == "done"


@pytest.mark.parametrize(("idempotent", "end"), [(True, ("done", 2)), (False, ("interrupted", 1))])
async def test_a_program_that_did_not_answer_is_asked_again_only_where_that_does_no_harm(
    tmp_path: Path, idempotent: bool, end: tuple[str, int]
) -> None:
    connection = Connection(lost=False)
    answer, asked = connection.request, []

    async def silent_once(*subject: object, **_: object) -> Any:
        asked.append(subject)
        if len(asked) == 1:
            raise NatsTimeoutError
        return await answer()

    connection.request = silent_once  # type: ignore[method-assign]
    async with vehicle(tmp_path, CommandConfig("arm", idempotent=idempotent)) as it:
        it.client = connection
        await it.send("c1", "arm")
        said = await it.end("c1")
    assert (said["state"], said["runs"]) == end


async def test_since_when_the_ledger_has_all_commands_is_found_anew_where_it_cannot_be_read(
    tmp_path: Path,
) -> None:
    """A flipped bit makes a letter of a digit; no checksum covers it."""
    ledger = await open_ledger(tmp_path / "ledger.db")
    await ledger.commit(LedgerChanges(meta={SINCE: f"{ledger.epoch}:178q000000000000000"}))
    await ledger.close()
    async with vehicle(tmp_path) as it:
        await until(lambda: it.service.status()["since_ns"] is not None)
