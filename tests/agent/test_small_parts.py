"""Watermarks, JetStream answers, log bursts, systemd's socket, the command line."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.cli.main import cli, main
from backhaul_agent.errors import JetStreamError
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_agent.logs import Bursts
from backhaul_agent.stamps import stamp_ms
from backhaul_agent.uplink.confirmations import Claim
from backhaul_agent.uplink.dispatch import Watermarks, WatermarkWord, read_watermark
from backhaul_runtime.jetstream import covers
from backhaul_runtime.systemd_notify import Notifier
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path


def test_a_watermark_says_epoch_and_seq() -> None:
    assert read_watermark(b'{"epoch": 7, "seq": 12, "more": 1}') == WatermarkWord(7, 12)


@pytest.mark.parametrize(
    "data",
    [b"", b"12", b"{}", b'{"epoch": 7}', b'{"epoch": 7, "seq": "1"}', b'{"epoch": 7, "seq": -1}',
     b'{"epoch": 0, "seq": 1}', b'{"epoch": 7, "seq": 1.5}', b"\xff"],
)  # fmt: skip
def test_garbage_is_no_watermark(data: bytes) -> None:
    with pytest.raises(ValueError, match="no watermark"):
        read_watermark(data)


@pytest.mark.parametrize(
    ("lane", "data", "heard"),
    [
        (
            "bulk",
            b'{"epochs": {"7": [3, "0123456789ab", 1], "9": [0, "", 0]}}',
            [(7, Claim(3, bytes.fromhex("0123456789ab"), 1)), (9, Claim(0))],
        ),
        ("bulk", b'{"epochs": {"0": [3, "", 0]}}', None),
        ("bulk", b'{"epochs": {"7": [-1, "", 0]}}', None),
        ("bulk", b'{"epochs": {"7": [3, "xy", 0]}}', None),
        ("bulk", b'{"seq": 3}', None),
        ("other", b'{"epochs": {"7": [3, "", 0]}}', None),
        ("bulk.more", b'{"epochs": {"7": [3, "", 0]}}', None),
    ],
)
def test_former_epochs_are_told_to_their_lane(
    lane: str, data: bytes, heard: list[tuple[int, Claim]] | None
) -> None:
    said: list[tuple[int, Claim]] = []
    bulk: Any = SimpleNamespace(name="bulk", on_watermark=lambda *each: said.append(each))
    message = Inbound(["s", "held", *lane.split(".")], data, True)
    if heard is None:
        with pytest.raises(ValueError, match="watermark"):
            Watermarks([bulk]).on_held(message, Inward())
    else:
        Watermarks([bulk]).on_held(message, Inward())
    assert said == (heard or [])


@given(st.binary(max_size=40))
def test_nothing_else_escapes_from_a_watermark(data: bytes) -> None:
    try:
        read_watermark(data)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("current", "wanted", "same"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"external": {"deliver": ""}}, False),
        ({"external": {"api": "x"}}, {"external": {"api": "x", "deliver": ""}}, True),
        ({"s": [{"n": 1, "m": 2}]}, {"s": [{"n": 1}]}, True),
        ({"s": [{"n": 1}, {"n": 2}]}, {"s": [{"n": 1}]}, False),
        ({"s": "x"}, {"s": ["x"]}, False),
    ],
)
def test_only_real_differences_update_a_stream(current: Any, wanted: Any, same: bool) -> None:
    assert covers(current, wanted) is same


class Server:
    """Answers API requests from a list; remembers them."""

    def __init__(self, *answers: object) -> None:
        self.requests: list[tuple[str, Any]] = []
        self._answers = list(answers)

    async def __call__(self, subject: str, payload: bytes) -> bytes:
        self.requests.append((subject, json.loads(payload) if payload else None))
        answer = self._answers.pop(0)
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


MISSING = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}


async def test_a_missing_stream_is_created() -> None:
    server = Server(MISSING, {"config": {}})
    assert await JetStream(server).ensure_stream({"name": "X"})
    assert server.requests[1] == ("$JS.API.STREAM.CREATE.X", {"name": "X"})


async def test_a_different_stream_is_updated_and_keeps_what_we_do_not_say() -> None:
    server = Server({"config": {"name": "X", "max_bytes": 1, "max_age": 5}}, {"config": {}})
    assert await JetStream(server).ensure_stream({"name": "X", "max_bytes": 2})
    assert server.requests[1] == (
        "$JS.API.STREAM.UPDATE.X", {"name": "X", "max_bytes": 2, "max_age": 5},
    )  # fmt: skip


async def test_the_same_stream_is_left_alone() -> None:
    server = Server({"config": {"name": "X", "max_bytes": 1}})
    assert not await JetStream(server).ensure_stream({"name": "X", "max_bytes": 1})


async def test_where_a_stream_begins_is_said_when_it_is_made_and_never_later() -> None:
    wanted = {"name": "X", "max_bytes": 1, "first_seq": 2}
    server = Server(MISSING, {"config": {}})
    assert await JetStream(server).ensure_stream(wanted)
    assert server.requests[1] == ("$JS.API.STREAM.CREATE.X", wanted)
    server = Server({"config": {"name": "X", "max_bytes": 1}})
    assert not await JetStream(server).ensure_stream(wanted)
    server = Server({"config": {"name": "X", "max_bytes": 5}}, {"config": {}})
    assert await JetStream(server).ensure_stream(wanted)
    assert server.requests[1] == ("$JS.API.STREAM.UPDATE.X", {"name": "X", "max_bytes": 1})


@pytest.mark.parametrize(
    ("answer", "words"),
    [(b"garbage", "not JSON"), ({"error": {"code": 503, "description": "down"}}, "down")],
)
async def test_server_errors_carry_their_request(answer: object, words: str) -> None:
    with pytest.raises(JetStreamError, match=words) as caught:
        await JetStream(Server(answer)).request("STREAM.INFO.X")
    assert caught.value.request == "STREAM.INFO.X"


async def test_a_message_that_is_not_there_is_none() -> None:
    assert await JetStream(Server(MISSING)).message("X", seq=1) is None


async def test_a_message_with_broken_base64_is_an_error() -> None:
    answer = {"message": {"seq": 1, "subject": "x", "data": "*"}}
    with pytest.raises(JetStreamError, match="base64"):
        await JetStream(Server(answer)).message("X", seq=1)


def test_a_burst_is_logged_once_then_summed_up() -> None:
    fake = FakeClock()
    bursts = Bursts(fake, quiet_s=10)
    assert [bursts.note("bad_json") for _ in range(3)] == [1, 0, 0]
    assert bursts.note("busy") == 1
    fake.advance(10)
    assert bursts.note("bad_json") == 3
    assert bursts.counts == {"bad_json": 4, "busy": 1}


def test_stamps_have_ms_resolution() -> None:
    assert stamp_ms(FakeClock(1_234_567_899)) == 1_234_000_000


@pytest.mark.parametrize("abstract", [False, True])
async def test_systemd_gets_datagrams(tmp_path: Path, abstract: bool) -> None:
    name = f"backhaul-test-{os.getpid()}-{tmp_path.name}"  # abstract ones are everybody's
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name if abstract else str(tmp_path / "notify"))
        address = "@" + name if abstract else str(tmp_path / "notify")
        notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"})
        notifier.send("READY=1")
        assert receiver.recv(100) == b"READY=1"
        receiver.setblocking(False)
        alive = True
        task = asyncio.create_task(notifier.watchdog(lambda: alive))
        async with asyncio.timeout(60):
            for _ in range(2):
                assert await asyncio.get_running_loop().sock_recv(receiver, 100) == b"WATCHDOG=1"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_without_systemd_nothing_is_sent() -> None:
    notifier = Notifier({})
    notifier.send("READY=1")
    await notifier.watchdog(lambda: True)  # returns at once
    Notifier({"NOTIFY_SOCKET": "/nonexistent/notify"}).send("READY=1")


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5


def test_check_config_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.toml"
    monkeypatch.setattr("sys.argv", ["backhaul-agent", "check-config", "--config", str(path)])
    path.write_text('[device]\nid = "V"\ntoken = "t"\n[frame]\npoints = 1\n')
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err == f"backhaul-agent: {path}: frame.points: unknown key\n"
    path.write_text('[device]\nid = "V"\ntoken = "t"\n')
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    assert "good. Device V" in capsys.readouterr().out


@pytest.mark.slow
def test_the_daemon_imports_no_desk_tools() -> None:
    """What a vehicle runs must not load what only `replay` and Spark need."""
    import subprocess
    import sys

    code = (
        "import sys, backhaul_agent.cli.vehicle.run\n"
        "heavy = {'numpy', 'pyarrow', 'pandas', 'pyspark', 'backhaul_agent.replay', 'backhaul_codec.recordings'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
