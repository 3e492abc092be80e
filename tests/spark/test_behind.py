"""What a server of a cluster answers at the moment when it has nobody to lead a stream, or to read it for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_spark.errors import ServerBehindError, StreamClosedError, StreamMissingError
from backhaul_spark.nats.direct_get import Reader
from backhaul_spark.nats.offsets import ReadMark, spans
from backhaul_spark.nats.stored import StreamInfo

if TYPE_CHECKING:
    from backhaul_spark.nats.connection import Connection

NOBODY = (b"NATS/1.0 503\r\n\r\n", b"")


def stream(name: str, *, allow_direct: bool = True) -> dict[str, Any]:
    return {
        "config": {"name": name, "allow_direct": allow_direct, "num_replicas": 3},
        "created": "then",
        "state": {"first_seq": 1, "last_seq": 9, "messages": 9, "bytes": 90},
    }


def refused(code: int, text: str) -> dict[str, Any]:
    return {"error": {"code": 503, "err_code": code, "description": text}}


class Server:
    """A connection whose server has these answers; nobody takes a request for anything else."""

    server, api = "hub:4222", "$JS.API"

    def __init__(
        self, *streams: dict[str, Any], missing: tuple[str, ...] = (), **answers: dict[str, Any]
    ) -> None:
        listed = {"total": len(streams), "streams": list(streams), "missing": list(missing)}
        self._answers = {"STREAM.LIST": listed}
        names = {"down": "STREAM.INFO.DOWN_00", "leader": "STREAM.MSG.GET.UP_00"}
        self._answers |= {names[key]: answer for key, answer in answers.items()}

    def request(self, subject: str, body: bytes) -> tuple[bytes, bytes]:
        found = self._answers.get(subject.removeprefix(f"{self.api}."))
        return NOBODY if found is None else (b"", json.dumps(found).encode())

    def send(self, subject: str, body: bytes) -> bytes:
        return subject.encode()

    def answer(self, reply: bytes, what: str) -> tuple[bytes, bytes]:
        found = "STREAM.MSG.GET.UP_00" in self._answers
        return (b"NATS/1.0 404 Message Not Found\r\n\r\n", b"") if found else NOBODY

    def change_inbox(self) -> None:
        pass


def reader(*streams: dict[str, Any], **answers: Any) -> Reader:
    connection: Any = Server(*streams, **answers)
    opened: Connection = connection
    return Reader(opened)


def test_down_without_a_leader_is_not_taken_for_gone() -> None:
    """What is not there any more is a gap: thresholds that were written meanwhile would never be read."""
    passing = refused(10008, "JetStream system temporarily unavailable")
    with pytest.raises(ServerBehindError, match=r"DOWN_00 .*temporarily unavailable"):
        reader(stream("UP_00"), down=passing).streams(["UP_*", "DOWN_*"])
    missing = reader(stream("UP_00"), down=refused(10059, "stream not found"))
    assert list(missing.streams(["UP_*", "DOWN_*"])) == ["UP_00"]
    assert list(reader(stream("UP_00")).streams(["UP_*", "DOWN_*"])) == ["UP_00"]
    there = reader(stream("UP_00"), down=stream("DOWN_00"))
    assert list(there.streams(["UP_*", "DOWN_*"])) == ["DOWN_00", "UP_00"]


def test_a_stream_that_nobody_leads_holds_up_who_wants_it_alone() -> None:
    some = reader(stream("UP_00"), missing=("PUSH", "UP_01"))
    assert list(some.streams(["UP_00"])) == ["UP_00"]
    with pytest.raises(ServerBehindError, match="UP_01 has no leader"):
        some.streams(["UP_*"])


def test_what_was_planned_of_a_stream_that_is_not_listed_is_no_gap() -> None:
    start, end = {"DOWN_00": ReadMark(3, "then")}, {"DOWN_00": ReadMark(9, "then")}
    with pytest.raises(StreamMissingError, match="DOWN_00"):
        spans(start, end, {}, on_gap="record")
    other = {"UP_00": StreamInfo("UP_00", "then", 1, 9, 9, 90)}
    assert spans(end, end, other, on_gap="record") == []


def test_a_stream_that_nobody_reads_from_at_this_moment_is_asked_again() -> None:
    """After a change of leader its own server is heard of by the others a little later."""
    with pytest.raises(ServerBehindError, match="UP_00 is read by nobody"):
        list(reader(stream("UP_00")).read("UP_00", 1, 9))
    with pytest.raises(StreamClosedError, match="UP_00"):
        list(reader(stream("UP_00", allow_direct=False)).read("UP_00", 1, 9))


def test_a_leader_that_ends_before_what_is_asked_for_is_not_believed() -> None:
    """Another one leads, and has spoken of more: what this one lacks is no gap."""
    asked = reader(stream("UP_00"), leader=refused(10037, "no message found"))
    assert list(asked.read("UP_00", 8, 9)) == []
    with pytest.raises(ServerBehindError, match="UP_00 ends at 9 there"):
        list(asked.read("UP_00", 8, 10))


class Others(Server):
    """A cluster: the leader lacks message 4 to 9, and each third answer comes from a server that has them."""

    def __init__(self) -> None:
        super().__init__(stream("UP_00"), leader=refused(10037, "no message found"))
        self._asked = 0
        self._left: list[tuple[bytes, bytes]] = []

    def send(self, subject: str, body: bytes) -> bytes:
        wanted = json.loads(body)
        self._asked += 1
        whole = self._asked % 3 == 0
        seqs = range(wanted["seq"], min(wanted["seq"] + wanted["batch"], 10 if whole else 4))
        headers = (
            "NATS/1.0\r\nNats-Sequence: {}\r\nNats-Subject: up.x\r\nNats-Time-Stamp: t\r\n\r\n"
        )
        self._left = [(headers.format(seq).encode(), b"") for seq in seqs]
        end = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n"
        self._left.append((end, b"") if seqs else (b"NATS/1.0 404 Message Not Found\r\n\r\n", b""))
        return b"reply"

    def answer(self, reply: bytes, what: str) -> tuple[bytes, bytes]:
        return self._left.pop(0)


def test_what_a_damaged_leader_lacks_is_no_gap_while_another_server_has_it() -> None:
    connection: Any = Others()
    parts = Reader(connection).read("UP_00", 1, 9)
    assert next(parts).seqs == [1, 2, 3]
    with pytest.raises(ServerBehindError, match="lacks 4, which another has"):
        next(parts)
