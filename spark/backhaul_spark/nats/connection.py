"""A small synchronous NATS client: requests, direct-get batches and many publishes over one socket.

Why not nats-py: a Spark task is a plain generator in a worker process, and the same reads
through asyncio run at a third of the speed (measured in docs/adr/0003-delta-through-delta-rs.md).
Protocol: https://docs.nats.io/reference/reference-protocols/nats-protocol
Direct get in batches: ADR-31 of nats-architecture-and-design.
"""

from __future__ import annotations

import json
import random
import socket
import ssl
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

from backhaul_runtime.clock import SYSTEM_CLOCK, Clock
from backhaul_spark.errors import (
    HubProtocolError,
    LoginRefusedError,
    NoAnswerError,
    UnreachableError,
)
from backhaul_spark.nats.endpoint import Endpoint, local_file, read_creds

RECEIVE_BYTES = 1 << 18
LINE_BYTES_MAX = 1 << 16  # an INFO line lists every server of a cluster
AGAIN_S = 2.0
"""After so long without an answer a request is sent again: a cluster's server that dies takes along what it has in hand."""


class Dial(Protocol):
    """Open a TCP connection; `socket.create_connection` is one."""

    def __call__(self, address: tuple[str, int], timeout: float) -> socket.socket:
        """Return a connected socket or raise OSError."""
        ...


class Connection:
    """One logged-in connection. Not safe for two threads, nor for two reads at a time.

    Every wait has a deadline of `timeout_s`. After any exception the connection is useless:
    close it and make another.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_s: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
        dial: Dial = socket.create_connection,
    ) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._clock = clock
        self._buffer = b""
        self._position = 0
        self._inbox = _new_inbox()
        self._inboxes = 1
        self._requests = 0
        self._expired = ""
        self._logged_in = False
        self.server = ""
        self.api = endpoint.api
        self._socket = self._open(dial)
        try:
            self._log_in()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket; never raises."""
        with suppress(OSError):
            self._socket.close()

    def change_inbox(self) -> None:
        """Leave the answers to earlier questions; call it now and then, with nothing under way.

        For as long as an inbox is subscribed, the server keeps some 450 bytes for every direct get
        that it has passed on to another account and answered there.
        """
        self._inbox = _new_inbox()
        self._inboxes += 1
        sub = b"SUB %s.* %d\r\nUNSUB %d\r\n"
        self._write(sub % (self._inbox.encode(), self._inboxes, self._inboxes - 1))

    def request(self, subject: str, body: bytes) -> tuple[bytes, bytes]:
        """Send a request, again while no answer comes, and return (header block, body) of the first answer."""
        deadline = self._clock.monotonic_s() + self._timeout_s
        replies: list[bytes] = []
        while True:
            replies.append(self.send(subject, body))
            again = min(deadline, self._clock.monotonic_s() + AGAIN_S)
            try:
                while True:
                    to, header, data = self._message(deadline, subject, again)
                    if to in replies:
                        return header, data
            except NoAnswerError:
                if self._clock.monotonic_s() >= deadline:
                    raise

    def send(self, subject: str, body: bytes) -> bytes:
        """Send a request; return the reply subject on which its answers will come."""
        return self.send_all([(subject, b"", body)])[0]

    def send_all(self, requests: Iterable[tuple[str, bytes, bytes]]) -> list[bytes]:
        """Send requests (subject, header block or b"", body) in one write; return their reply subjects."""
        replies: list[bytes] = []
        data = bytearray()
        for subject, header, body in requests:
            self._requests += 1
            reply = b"%s.%d" % (self._inbox.encode(), self._requests)
            names, size = b"%s %s" % (subject.encode(), reply), len(header) + len(body)
            if header:
                data += b"HPUB %s %d %d\r\n%s%s\r\n" % (names, len(header), size, header, body)
            else:
                data += b"PUB %s %d\r\n%s\r\n" % (names, size, body)
            replies.append(reply)
        self._write(data)
        return replies

    def answer(self, reply: bytes, what: str) -> tuple[bytes, bytes]:
        """Wait for the next answer on `reply`; answers to abandoned requests are passed over."""
        deadline = self._clock.monotonic_s() + self._timeout_s
        while True:
            to, header, body = self._message(deadline, what)
            if to == reply:
                return header, body

    def any_answer(self, what: str) -> tuple[bytes, bytes, bytes]:
        """Wait for the next answer to anything: (reply subject, header block, body)."""
        return self._message(self._clock.monotonic_s() + self._timeout_s, what)

    def _message(
        self, deadline: float, what: str, begins: float | None = None
    ) -> tuple[bytes, bytes, bytes]:
        """Return the next message. Where none begins in time, nothing is lost, and one can be waited for again."""
        begins = deadline if begins is None else begins
        while not (line := self._line(begins, what)).startswith((b"HMSG ", b"MSG ")):
            self._control(line)
        parts = line.split()
        total = int(parts[-1])
        header = int(parts[-2]) if line[0] == 72 else 0  # b"H"
        data = self._exactly(total + 2, deadline, what)
        return parts[1], data[:header], data[header:total]

    # -- below: bytes

    def _open(self, dial: Dial) -> socket.socket:
        causes: list[str] = []
        servers = list(self._endpoint.servers)
        # Not always the first: of a cluster, one that answers may be the one that lags behind.
        random.shuffle(servers)
        for host, port in servers:
            try:
                opened = dial((host, port), timeout=self._timeout_s)
            except OSError as error:
                causes.append(f"{host}:{port} {error.strerror or error}")
                continue
            with suppress(OSError):  # a socket pair in a test has no Nagle
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.server = f"{host}:{port}"
            self._host = host
            return opened
        raise UnreachableError(str(self._endpoint), "; ".join(causes))

    def _log_in(self) -> None:
        deadline = self._clock.monotonic_s() + self._timeout_s
        info = self._line(deadline, "the greeting")
        if not info.startswith(b"INFO "):
            raise HubProtocolError(self.server, "this is not a NATS server")
        try:
            greeting: dict[str, Any] = json.loads(info[5:])
        except ValueError as error:
            raise HubProtocolError(self.server, "a greeting that is no JSON") from error
        if self._endpoint.tls:
            self._start_tls()
        elif greeting.get("tls_required"):
            raise LoginRefusedError(self.server, "the server wants TLS: use tls:// in servers")
        options: dict[str, object] = {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "0.1.0",
            "name": "backhaul-spark",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
        }
        connect = json.dumps(options | self._login(greeting)).encode()
        self._write(b"CONNECT %s\r\nSUB %s.* 1\r\nPING\r\n" % (connect, self._inbox.encode()))
        while (line := self._line(deadline, "the login")) != b"PONG":
            self._control(line)
        self._logged_in = True

    def _login(self, greeting: dict[str, Any]) -> dict[str, str]:
        """Return the user's part of CONNECT; a `.creds` file is read anew each time."""
        endpoint = self._endpoint
        if not endpoint.creds:
            return {"user": endpoint.user, "pass": endpoint.password} if endpoint.user else {}
        credentials = read_creds(endpoint.creds)
        # The server says no more than "authorization violation" of a JWT whose time is over.
        self._expired = credentials.expired(self._clock.now_ns() / 1e9)
        return {"jwt": credentials.jwt, "sig": credentials.sign(str(greeting.get("nonce", "")))}

    def _start_tls(self) -> None:
        try:
            ca = self._endpoint.tls_ca
            context = ssl.create_default_context(cafile=str(local_file(ca)) if ca else None)
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host)
        except ssl.SSLError as error:
            raise LoginRefusedError(self.server, f"TLS: {error.reason or error}") from error
        except OSError as error:
            raise UnreachableError(self.server, f"TLS: {error}") from error

    def _control(self, line: bytes) -> None:
        if line == b"PING":
            self._write(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            text = line[4:].decode(errors="replace").strip(" '")
            if text.lower() == "authentication timeout":  # by this machine's doing, and no refusal
                raise UnreachableError(self.server, "a login took longer than it waits for one")
            if "authoriz" in text.lower() or "authentic" in text.lower():
                if self._logged_in:
                    # Expired or revoked since. Whether what the file holds by now will do, the next
                    # login shows.
                    raise UnreachableError(self.server, f"the server ended the login: {text}")
                creds = self._endpoint.creds
                because = f" ({creds}: {self._expired})" if self._expired else ""
                raise LoginRefusedError(self.server, text + because)
            raise HubProtocolError(self.server, text)
        elif not line.startswith((b"PONG", b"INFO ", b"+OK")):
            raise HubProtocolError(self.server, f"unexpected line {line[:80]!r}")

    def _write(self, data: bytes | bytearray) -> None:
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            raise UnreachableError(self.server, str(error)) from error

    def _line(self, deadline: float, what: str) -> bytes:
        while True:
            end = self._buffer.find(b"\r\n", self._position)
            if end >= 0:
                line = self._buffer[self._position : end]
                self._position = end + 2
                return line
            if len(self._buffer) - self._position > LINE_BYTES_MAX:
                raise HubProtocolError(self.server, "a protocol line without an end")
            self._fill(deadline, what)

    def _exactly(self, count: int, deadline: float, what: str) -> bytes:
        missing = self._position + count - len(self._buffer)
        if missing > 0:
            # Joined once: a large body must not copy the whole buffer for every packet.
            parts = [self._buffer[self._position :]]
            while missing > 0:
                parts.append(self._receive(deadline, what))
                missing -= len(parts[-1])
            self._buffer, self._position = b"".join(parts), 0
        data = self._buffer[self._position : self._position + count]
        self._position += count
        return data

    def _fill(self, deadline: float, what: str) -> None:
        received = self._receive(deadline, what)
        self._buffer = self._buffer[self._position :] + received
        self._position = 0

    def _receive(self, deadline: float, what: str) -> bytes:
        left = deadline - self._clock.monotonic_s()
        if left <= 0:
            raise NoAnswerError(self.server, what, self._timeout_s)
        try:
            self._socket.settimeout(left)
            received = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError as error:
            raise NoAnswerError(self.server, what, self._timeout_s) from error
        except OSError as error:
            raise UnreachableError(self.server, str(error)) from error
        if not received:
            raise UnreachableError(self.server, "the server closed the connection")
        return received


def _new_inbox() -> str:
    return f"_INBOX.{uuid.uuid4().hex}"
