"""Messages that one server of a cluster has and the leader of their stream lacks are no gap."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_spark.errors import ServerBehindError
from backhaul_spark.nats.direct_get import Reader
from tests.spark.test_behind import Server, refused, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM = "UP_00"


class Others(Server):
    """A cluster: the leader lacks message 4 to 9, and each third answer comes from a server that has them."""

    def __init__(self) -> None:
        super().__init__(stream(STREAM), leader=refused(10037, "no message found"))
        self._asked = 0
        self._left: list[tuple[bytes, bytes]] = []

    def send(self, subject: str, body: bytes) -> bytes:
        wanted = json.loads(body)
        self._asked += 1
        whole = self._asked % 3 == 0
        seqs = range(wanted["seq"], min(wanted["seq"] + wanted["batch"], 10 if whole else 4))
        headers = "NATS/1.0\r\nNats-Sequence: {}\r\nNats-Subject: up.x\r\nNats-Time-Stamp: t\r\n\r\n"
        self._left = [(headers.format(seq).encode(), b"") for seq in seqs]
        end = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n"
        self._left.append((end, b"") if seqs else (b"NATS/1.0 404 Message Not Found\r\n\r\n", b""))
        return b"reply"

    def answer(self, reply: bytes, what: str) -> tuple[bytes, bytes]:
        return self._left.pop(0)


def test_what_a_damaged_leader_lacks_is_no_gap_while_another_server_has_it() -> None:
    connection: Any = Others()
    found: list[int] = []
    parts: Iterator[Any] = Reader(connection).read(STREAM, 1, 9)
    with pytest.raises(ServerBehindError, match="lacks 4, which another has"):
        for part in parts:
            found += part.seqs
    assert found == [1, 2, 3]
