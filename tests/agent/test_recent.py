"""What an agent tells of its recent past out of its ledger: bounded, and with what was given up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from backhaul_agent.ledger import command_rows
from backhaul_agent.ledger.command_rows import Arrived, RunOutcome, RunState
from backhaul_agent.ledger.rows import Evicted, LedgerChanges, Outgoing, Quarantine
from backhaul_agent.ledger.system_events import app_event, event, receipt
from backhaul_agent.status import recent
from backhaul_agent.status.recent import SAID_BYTES_MAX, Recent
from backhaul_codec import Point, encode_frame
from backhaul_codec.protocol.command_errors import ErrorCode
from tests.agent.ledgers import open_ledger

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HOUR_NS = 3600 * 10**9


def reading(time_ns: int, boot: int = 0) -> Outgoing:
    body = encode_frame([Point("n", "t", time_ns, 1.0)], epoch=0, seq=0)
    return Outgoing("bulk", "f.n", body, times=(time_ns, time_ns), boot=boot)


async def test_commands_are_told_newest_first_with_outcome_and_a_long_result_is_cut(
    tmp_path: Path,
) -> None:
    ledger = await open_ledger(tmp_path / "l.db")
    results = (b"", b'{"door":2}', b'"' + b"x" * 2 * SAID_BYTES_MAX + b'"')
    for number, result in enumerate(results, 1):
        came = Arrived(f"c{number}", "door.unlock", b"{}", 5, 9)
        await ledger.commit(LedgerChanges(commands=[command_rows.take_in(came, 10)]))
        if result:
            done = RunOutcome(RunState.FAILED, ErrorCode.NONE, "jammed", result, 2)
            await ledger.commit(LedgerChanges(commands=[command_rows.finish(number, done, 7)]))
    told = (await Recent(ledger).commands(10))["commands"]
    assert [each["id"] for each in told] == ["c3", "c2", "c1"]
    assert told[0]["result"] == '"' + "x" * (SAID_BYTES_MAX - 1) + "…"
    assert told[1] == {
        "id": "c2", "name": "door.unlock", "sent_ns": 5, "deadline_ns": 9, "ended_ns": 7,
        "state": "failed", "code": "", "error": "jammed", "result": {"door": 2}, "runs": 2,
    }  # fmt: skip
    assert (told[2]["state"], told[2]["ended_ns"], told[2]["result"]) == ("waiting", None, None)
    assert [each["id"] for each in (await Recent(ledger).commands(1))["commands"]] == ["c3"]
    await ledger.close()


async def test_events_are_those_of_programs_and_those_that_history_has(
    tmp_path: Path,
) -> None:
    ledger = await open_ledger(tmp_path / "l.db")
    long = "y" * 2 * SAID_BYTES_MAX
    said = [app_event("armed", {"reason": "pilot", "data": long}, 10, 0)]
    for time in range(11, 11 + 3 * recent.EVENT_ROWS):
        said += [event("mark", {}, time), reading(time)]
    said.append(receipt("bulk", 42, 1, 2, "room", 999))
    await ledger.commit(LedgerChanges(messages=said))
    told = (await Recent(ledger).events(10))["events"]
    assert [(each["kind"], each["by"], each["time"]) for each in told] == [
        ("receipt", "agent", 999), ("armed", "program", 10),
    ]  # fmt: skip
    assert told[0]["data"]["reason"] == "room"
    assert len(told[1]["data"]) == SAID_BYTES_MAX + 1
    assert told[1]["reason"] == "pilot"
    assert len(json.dumps(await Recent(ledger).events(1))) < 300
    await ledger.close()


async def test_hours_that_wait_and_what_was_given_up_between_which_times(
    tmp_path: Path,
) -> None:
    ledger = await open_ledger(tmp_path / "l.db")
    times = [hour * HOUR_NS + 7 for hour in (1, 1, 2, 3, 4, 4)]
    await ledger.commit(LedgerChanges(messages=[reading(time) for time in times]))
    await ledger.commit(LedgerChanges(watermarks={"bulk": 1}))
    lane = ledger.lanes["bulk"]
    rows = await ledger.query("SELECT id FROM messages WHERE lane = ? AND seq IN (3, 4)", lane.id)
    gone = [Evicted(lane.id, 3, 4, "room")]
    await ledger.commit(LedgerChanges(evict=[id_ for (id_,) in rows], evicted=gone))
    await ledger.commit(LedgerChanges(quarantine=[Quarantine("bulk", 6, "bad")], time_ns=77))
    told = await Recent(ledger).waiting()
    assert [(each["from_ns"] // HOUR_NS, each["messages"]) for each in told["hours"]] == [
        (4, 1), (1, 1),
    ]  # fmt: skip
    [bulk] = [each for each in told["lanes"] if each["lane"] == "bulk"]
    assert (bulk["messages"], bulk["oldest_ns"]) == (2, HOUR_NS + 7)
    quarantined, evicted = told["given_up"]
    assert (evicted["lo"], evicted["hi"], evicted["reason"]) == (3, 4, "room")
    assert (evicted["after_ns"], evicted["before_ns"]) == (times[1], times[4])
    assert (quarantined["lo"], quarantined["reason"]) == (6, "quarantined: bad")
    await ledger.commit(LedgerChanges(watermarks={"bulk": 6}))
    told = await Recent(ledger).waiting()
    assert told["hours"] == []
    await ledger.close()


async def test_a_long_backlog_is_summed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await open_ledger(tmp_path / "l.db")
    await ledger.commit(LedgerChanges(messages=[reading(HOUR_NS + at) for at in range(50)]))
    monkeypatch.setattr(recent, "SLICE_ROWS", 7)
    told = await Recent(ledger).waiting()
    assert [each["messages"] for each in told["hours"]] == [50]
    await ledger.close()
