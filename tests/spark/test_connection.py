"""The small NATS client against a scripted server: split lines, silence, refusals."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import backhaul_spark.nats.connection
from backhaul_spark.errors import (
    HubProtocolError,
    LoginRefusedError,
    NoAnswerError,
    OptionError,
    UnreachableError,
)
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.endpoint import Endpoint, endpoint_from, parse_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENDPOINT = Endpoint((("hub", 4222),), "spark", "secret")


def serve(
    *answers: bytes | Callable[[bytes], bytes], end: bool = False
) -> Callable[..., socket.socket]:
    """Return a dial whose peer greets, then answers each thing that it hears, piece by piece."""

    def dial(address: tuple[str, int], timeout: float) -> socket.socket:
        ours, theirs = socket.socketpair()
        threading.Thread(target=talk, args=(theirs,), daemon=True).start()
        return ours

    def talk(theirs: socket.socket) -> None:
        with theirs, suppress(OSError):  # the client hangs up when it has seen enough
            theirs.sendall(b'INFO {"headers":true}\r\n')
            for answer in answers:
                heard = theirs.recv(65536)
                if not heard:
                    return
                data = answer if isinstance(answer, bytes) else answer(heard)
                for byte in range(0, len(data), 7):  # never a whole line at a time
                    theirs.sendall(data[byte : byte + 7])
            while not end and theirs.recv(65536):
                pass

    return dial


@pytest.fixture
def connect() -> Iterator[Callable[..., Connection]]:
    """Open connections that are closed with the test."""
    opened: list[Connection] = []

    def open_one(dial: Callable[..., socket.socket], timeout_s: float = 120.0) -> Connection:
        """Log in, however long that takes; what is asked then has `timeout_s`."""
        opened.append(Connection(ENDPOINT, timeout_s=120.0, dial=dial))
        opened[-1]._timeout_s = timeout_s
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def test_an_answer_in_pieces_among_pings_is_put_together(
    connect: Callable[..., Connection],
) -> None:
    def answer(heard: bytes) -> bytes:
        reply = heard.split()[2]
        late = b"HMSG other.1 1 12 14\r\nNATS/1.0\r\n\r\nxx\r\n"
        return (
            b"PING\r\nINFO {}\r\n"
            + late
            + b"HMSG "
            + reply
            + b" 1 12 17\r\nNATS/1.0\r\n\r\nhello\r\n"
        )

    connection = connect(serve(b"PONG\r\n", answer))
    assert connection.request("what", b"") == (b"NATS/1.0\r\n\r\n", b"hello")


def test_a_request_that_was_lost_is_sent_again(
    connect: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backhaul_spark.nats.connection, "AGAIN_S", 0.01)

    def answer(heard: bytes) -> bytes:
        return b"MSG " + heard.split()[2] + b" 1 5\r\nhello\r\n"

    connection = connect(serve(b"PONG\r\n", b"", answer))
    assert connection.request("what", b"") == (b"", b"hello")


def test_silence_has_a_deadline(connect: Callable[..., Connection]) -> None:
    connection = connect(serve(b"PONG\r\n"), timeout_s=0.2)
    with pytest.raises(NoAnswerError, match=r"no answer to direct get within 0.2 s"):
        connection.answer(connection.send("x", b""), "direct get")


def test_pings_alone_do_not_put_the_deadline_off(connect: Callable[..., Connection]) -> None:
    connection = connect(serve(b"PONG\r\n", *[b"PING\r\n"] * 1000), timeout_s=0.2)
    with pytest.raises(NoAnswerError):
        connection.answer(connection.send("x", b""), "direct get")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"-ERR 'Authorization Violation'\r\n", LoginRefusedError),
        (b"-ERR 'User Authentication Expired'\r\n", LoginRefusedError),
        (b"-ERR 'User Authentication Revoked'\r\n", LoginRefusedError),
        (b"-ERR 'Authentication Timeout'\r\n", UnreachableError),
        (b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n", HubProtocolError),
        (b"SOMETHING else\r\n", HubProtocolError),
        (b"x" * 70_000, HubProtocolError),
    ],
)
def test_a_refusal_or_nonsense_has_a_name(
    connect: Callable[..., Connection], answer: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        connect(serve(answer))


@pytest.mark.parametrize("why", ["Expired", "Revoked"])
def test_a_login_that_the_server_ends_later_is_no_refusal(
    connect: Callable[..., Connection], why: str
) -> None:
    """The file may hold another by now: whoever connects again reads it anew."""
    said = f"-ERR 'User Authentication {why}'\r\n".encode()
    connection = connect(serve(b"PONG\r\n", said))
    with pytest.raises(UnreachableError, match=f"Authentication {why}"):
        connection.request("what", b"")


def test_a_server_that_hangs_up_is_unreachable(connect: Callable[..., Connection]) -> None:
    with pytest.raises(UnreachableError, match="closed"):
        connect(serve(b"", end=True))


def test_no_server_at_all_names_every_address() -> None:
    def dial(address: tuple[str, int], timeout: float) -> socket.socket:
        raise ConnectionRefusedError(111, "Connection refused")

    endpoint = Endpoint((("a", 1), ("b", 2)))
    with pytest.raises(UnreachableError) as caught:
        Connection(endpoint, dial=dial)
    for address in ("a:1", "b:2"):  # in any order
        assert f"{address} Connection refused" in str(caught.value)
    assert "nats-server running" in caught.value.hint


def test_servers_are_read_from_urls() -> None:
    assert parse_servers("nats://u:p%40@a:1, b") == ((("a", 1), ("b", 4222)), False, "u", "p@")
    assert parse_servers("tls://a")[1] is True
    for bad in ("", "http://a", "nats://a:port"):
        with pytest.raises(OptionError):
            parse_servers(bad)


def test_the_password_comes_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "hub.toml"
    file.write_text('[nats]\nurl = "nats://a"\n[nats.spark]\nuser = "u"\npassword = "secret"\n')
    endpoint = endpoint_from({"servers": "nats://a", "credentials": str(file)})
    assert (endpoint.user, endpoint.password) == ("u", "secret")
    assert "secret" not in repr(endpoint)
    file.write_text("user = 'u'")
    with pytest.raises(OptionError, match="password"):
        endpoint_from({"servers": "nats://a", "credentials": str(file)})
    with pytest.raises(OptionError, match="readable"):
        endpoint_from({"servers": "nats://a", "credentials": str(tmp_path / "none")})
