"""What the rigs of demonstration and tests stand on: ports of one's own, a link that is cut, patience."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.rig import patient
from tests.support.rig.ports import NoPortError, free_port, held_stretch
from tests.support.rig.relay import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOLDS = """\
import sys
from pathlib import Path
from tests.support.rig.ports import held_stretch

print(held_stretch(Path(sys.argv[1]), begin=0), flush=True)
sys.stdin.read()
"""


def test_no_two_processes_have_ports_of_one_stretch(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    command = [sys.executable, "-c", HOLDS, str(locks)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "0\n"
        assert held_stretch(locks, begin=0) == 1
        other.communicate("")
    assert held_stretch(locks, begin=0) == 0, "the end of a process gives it up"


def test_without_a_place_for_the_locks_it_fails(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        held_stretch(tmp_path / "nowhere" / "locks", begin=0)


def test_a_port_is_free_not_given_twice_in_a_row_and_never_the_systems() -> None:
    given = [free_port() for _ in range(50)]
    assert len(set(given)) == 50
    first_of_the_systems = int(
        Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    )
    assert max(given) < first_of_the_systems
    with socket.create_server(("127.0.0.1", given[0])):
        round_ = [free_port() for _ in range(200)]
        assert given[0] not in round_


def test_of_a_stretch_that_is_nearly_full_no_port_is_given_twice_in_a_row() -> None:
    """Nobody may listen yet on one that was given just before."""
    taken: list[socket.socket] = []
    try:
        while len(taken) < 126:
            taken.append(socket.create_server(("127.0.0.1", free_port())))
        given = [free_port() for _ in range(16)]
        assert len(set(given)) == len(given)
    finally:
        for each in taken:
            each.close()


def test_where_all_are_taken_it_says_so() -> None:
    taken: list[socket.socket] = []
    try:
        with contextlib.suppress(NoPortError):
            while len(taken) < 500:
                taken.append(socket.create_server(("127.0.0.1", free_port())))
        assert len(taken) < 500
    finally:
        for each in taken:
            each.close()


@pytest.fixture
async def far_end() -> AsyncIterator[int]:
    """A server that says nothing; its port."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:  # also where the test ends first
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", free_port())
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_no_connection_outlives_a_cut_whenever_it_was_made(far_end: int) -> None:
    for turns in range(12):
        async with Relay("127.0.0.1", far_end) as relay:
            with socket.create_connection(("127.0.0.1", relay.port)) as program:
                program.setblocking(False)
                for _ in range(turns):  # of the event loop, while the connection is taken in
                    await asyncio.sleep(0)
                await relay.cut()
                async with asyncio.timeout(60):
                    with contextlib.suppress(ConnectionResetError):
                        assert await asyncio.get_running_loop().sock_recv(program, 1) == b""


async def test_a_healed_link_is_where_it_was(far_end: int) -> None:
    async with Relay("127.0.0.1", far_end) as relay:
        port = relay.port
        await relay.cut()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await relay.heal()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()


async def test_a_patient_client_has_been_heard_when_it_has_flushed() -> None:
    """nats-py's own ping overtakes a subscription that was made just before."""
    heard: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1000}\r\n')
        try:
            while line := await reader.readline():
                heard.append(line)
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
        finally:
            writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", free_port()) as server:
        port = server.sockets[0].getsockname()[1]
        client = await patient.connect(f"nats://127.0.0.1:{port}")
        await client.subscribe("x")
        await client.flush()
        (subscribed,) = [at for at, line in enumerate(heard) if line.startswith(b"SUB x")]
        assert b"PING\r\n" in heard[subscribed:]
        await client.close()
