"""What becomes of a command that is carried out: by an executable, or by a program that is asked."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from backhaul_agent.commands import child
from backhaul_agent.commands import handlers as command_runs
from backhaul_agent.commands.decide import ended
from backhaul_agent.commands.handlers import NotDeliveredError, ask_program, run_executable
from backhaul_agent.ledger.command_rows import RunState
from backhaul_codec.protocol.command_errors import ErrorCode
from tests.agent.command_rig import Connection, row
from tests.support.waiting import until


async def test_a_run_ends_with_its_process_group_at_its_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "GRACE_S", 0.2)
    pids = tmp_path / "pids"
    script = f"sleep 60 & echo $! $$ > {pids}; echo begun; wait"
    output = ""
    for timeout_s in (0.2, 5.0, 50.0):
        end, _ = await run_executable(
            row(), ("/bin/sh", "-c", script), timeout_s=timeout_s, result_bytes_max=256
        )
        assert end.state is RunState.FAILED
        assert "killed" in end.error
        if output := json.loads(end.result)["output"]:
            break  # else it was ended before it had begun
    assert output == "begun\n"
    await until(lambda: not any(map(alive, pids.read_text().split())), "all of them have gone")


async def test_a_run_that_may_not_be_ended_ends_no_agent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def not_ours(pid: int, number: int) -> None:
        (tmp_path / "end").touch()
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "killpg", not_ours)
    monkeypatch.setattr(child, "GRACE_S", 60.0)
    script = f"while ! [ -e {tmp_path}/end ]; do sleep 0.01; done"
    end, _ = await run_executable(
        row(), ("/bin/sh", "-c", script), timeout_s=0.1, result_bytes_max=256
    )
    assert end.state is RunState.FAILED


def alive(pid: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("run", "state", "words"),
    [
        (("/bin/sh", "-c", "exit 3"), RunState.FAILED, "exit status 3"),
        (("/nonexistent/program",), RunState.FAILED, "cannot be started"),
        (("/bin/sh", "-c", "kill -9 $$"), RunState.FAILED, "exit status -9"),
        (("/bin/sh", "-c", "exec 0<&-; true"), RunState.DONE, ""),
    ],
)
async def test_what_becomes_of_an_executable(
    run: tuple[str, ...], state: RunState, words: str
) -> None:
    end, _ = await run_executable(row(), run, timeout_s=60, result_bytes_max=256)
    assert end.state is state
    assert words in end.error


async def test_nobody_is_asked_over_a_connection_that_is_lost() -> None:
    lost: Any = Connection(lost=True)
    with pytest.raises(NotDeliveredError):
        await ask_program(lost, row(), timeout_s=30, result_bytes_max=64)


async def test_an_answer_nested_too_deep_to_be_read_is_no_json() -> None:
    """Else a program could end the agent with it."""
    program: Any = Connection(lost=False, answer=b"[" * 100_000)
    end = await ask_program(program, row(), timeout_s=30, result_bytes_max=1 << 20)
    assert end == ended(ErrorCode.BAD_ANSWER, why="not JSON")


async def test_a_long_output_is_cut_and_never_blocks(tmp_path: Path) -> None:
    script = "head -c 300000 /dev/zero | tr '\\0' x"
    end, _ = await run_executable(
        row(), ("/bin/sh", "-c", script), timeout_s=60, result_bytes_max=256
    )
    assert json.loads(end.result) == {"exit": 0, "output": "x" * 256, "truncated": True}


async def test_a_run_is_over_when_its_process_is_though_a_child_holds_its_output(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid}; echo begun; exit 3"
    end, _ = await run_executable(
        row(), ("/bin/sh", "-c", script), timeout_s=50, result_bytes_max=256
    )
    try:
        assert (end.state, end.error) == (RunState.FAILED, "exit status 3")
        said = json.loads(end.result)
        assert said == {"exit": 3, "output": "begun\n", "output_left_open": True}
        assert alive(pid.read_text().strip()), "what the program left behind is its own affair"
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


async def test_a_child_that_floods_what_it_holds_open_neither_delays_nor_fills() -> None:
    script = "(exec yes) & echo $! >&2"
    end, said = await run_executable(
        row(), ("/bin/sh", "-c", script), timeout_s=50, result_bytes_max=256
    )
    assert end.state is RunState.DONE
    printed = json.loads(end.result)
    assert printed == {"exit": 0, "output": ANY, "truncated": True, "output_left_open": True}
    assert len(printed["output"]) == 256
    # Its output is closed when the run is over: it cannot go on.
    await until(lambda: not alive(said.complaint.split()[0]), "the flood has ended")


async def test_what_a_run_complains_of_is_kept_to_a_bound_and_goes_to_no_log_raw(
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = "echo '{\"event\": \"forged\"}' >&2; head -c 3000000 /dev/zero | tr '\\0' y >&2"
    end, said = await run_executable(
        row(), ("/bin/sh", "-c", script), timeout_s=60, result_bytes_max=256
    )
    assert end.state is RunState.DONE
    assert said.complaint.startswith('{"event": "forged"}\nyyy')
    assert len(said.complaint) <= command_runs.COMPLAINT_BYTES_MAX
    assert said.complaint_bytes == 3_000_020
    assert capfd.readouterr().err == ""
