"""Read streams by sequence range with JetStream's direct get, and list the streams.

Stateless on the server: no consumer is made, so an aborted reader leaves nothing behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from backhaul_codec.subjects import IMPORT_STREAM
from backhaul_runtime.clock import SYSTEM_CLOCK, SleepingClock
from backhaul_runtime.jetstream import (
    MESSAGE_NOT_FOUND,
    STREAM_NOT_FOUND,
    Refusal,
    StreamMessage,
    message_in,
    read_answer,
)
from backhaul_spark.errors import (
    HubProtocolError,
    HubServerError,
    LoginRefusedError,
    ServerBehindError,
    StreamClosedError,
    StreamMissingError,
)
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.endpoint import DOWN, Endpoint, api_of
from backhaul_spark.nats.stored import Stored, StreamInfo, holes

# One request answers at most this much: small enough that a reader which stalls between two
# requests never makes the server drop it as a slow consumer, large enough to hide the round trip.
BATCH_MESSAGES = 4096
BATCH_BYTES = 4 << 20
ATTEMPTS = 6
_Answer = TypeVar("_Answer")
# Which server of a cluster answers is chance: that of three one damaged one answers each time, is one in six thousand.
_OTHERS = 8


class Reader:
    """The requests of the data source on one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def streams(self, patterns: list[str]) -> dict[str, StreamInfo]:
        """Return the streams whose name fits one of `patterns` (shell style), by name.

        Raises:
            StreamMissingError: a pattern without wildcards fits nothing.
        """
        found: dict[str, StreamInfo] = {}
        offset, total = 0, 1
        while offset < total:
            page = self._api("STREAM.LIST", {"offset": offset})
            if missing := [each for each in page.get("missing") or () if _fits(each, patterns)]:
                # Of a cluster: these are streams that no server leads at this moment.
                raise self._behind(", ".join(missing), "has no leader")
            streams = page.get("streams") or []
            total = int(page.get("total", 0))
            offset += max(1, len(streams))
            for stream in streams:
                info = _stream_info(stream)
                if _fits(info.name, patterns):
                    found[info.name] = info
        for name in (DOWN, IMPORT_STREAM):
            # By its own name: "*" means what vehicles have sent.
            if any(p[:3] == name[:3] and fnmatchcase(name, p) for p in patterns):
                found |= self._elsewhere(name)
        for pattern in patterns:
            if not set("*?[") & set(pattern) and pattern not in found:
                raise StreamMissingError(pattern)
        return dict(sorted(found.items()))

    def _elsewhere(self, name: str) -> dict[str, StreamInfo]:
        """Return the stream of account HUB, if it exists; it stands in no list of UP's."""
        header, body = self.connection.request(f"{self._api_of(name)}.STREAM.INFO.{name}", b"")
        if header.startswith(b"NATS/1.0 503"):
            return {}
        answer, refusal = read_answer(body)
        if refusal is not None and refusal.err_code != STREAM_NOT_FOUND:
            # Of a cluster: it is there, and nobody leads it at this moment.
            raise self._behind(name, refusal.description)
        return {} if refusal is not None else {name: _stream_info(answer)}

    def _behind(self, stream: str, detail: str) -> ServerBehindError:
        return ServerBehindError(self.connection.server, stream, detail)

    def _api_of(self, stream: str) -> str:
        return api_of(self.connection.api, stream)

    def newest(self, stream: str, subject: str) -> bytes | None:
        """Return the body of the newest message on a subject, as the stream's leader has it; None: there is none.

        Raises:
            ServerBehindError: of a cluster, nobody leads the stream just now.
            HubProtocolError: the server refused.
        """
        message, refusal = self._of_leader(stream, last_by_subj=subject)
        if message is not None:
            return message.data
        # Without a refusal it is an older hub, which has no such stream, and exports none.
        if refusal is None or refusal.err_code in (MESSAGE_NOT_FOUND, STREAM_NOT_FOUND):
            return None
        raise self._behind(stream, refusal.description)

    def _of_leader(
        self, stream: str, **query: int | str
    ) -> tuple[StreamMessage | None, Refusal | None]:
        """Return a message as the stream's leader has it, or why not; neither where nobody answers for the stream."""
        asked = f"{self._api_of(stream)}.STREAM.MSG.GET.{stream}"
        header, answer = self.connection.request(asked, json.dumps(query).encode())
        if header.startswith(b"NATS/1.0 503"):
            return None, None
        found, refusal = read_answer(answer)
        return (None, refusal) if refusal else (message_in(found), None)

    def read(self, stream: str, lo: int, hi: int) -> Iterator[Stored]:
        """Yield the messages `lo` to `hi` (included) that the stream still has, in order.

        Deleted messages are simply not there: the caller compares sequences. What an answer leaves
        out is believed where neither the stream's leader nor another server has got it.

        Raises:
            ServerBehindError: one has; whatever was yielded is right.
        """
        while lo <= hi:
            part, done = self._batch(stream, lo, hi)
            if part.seqs:
                self._require_gone(stream, holes(part.seqs, lo))
                lo = part.seqs[-1] + 1
                yield part
            if done:
                self._require_gone(stream, [(lo, hi)] if lo <= hi else [])
                return

    def read_subject(self, stream: str, lo: int, hi: int, subject: str) -> Iterator[Stored]:
        """Yield the messages `lo` to `hi` (included) on a subject, which may have wildcards, in order.

        Raises:
            ServerBehindError: of a cluster, the leader has more; whatever was yielded is right.
        """
        while lo <= hi:
            part, done = self._batch(stream, lo, hi, subject)
            if part.seqs:
                lo = part.seqs[-1] + 1
                yield part
            if done:
                self._require_no_more(stream, lo, hi, subject)
                return

    def first_since(self, stream: str, time_us: int) -> int | None:
        """Return the sequence of the first message that was stored at a time (µs since 1970) or later; None: none was."""
        moment = datetime.fromtimestamp(time_us / 1e6, UTC)
        wanted = {"start_time": moment.isoformat().replace("+00:00", "Z"), "batch": 1}
        reply = self.connection.send(
            f"{self._api_of(stream)}.DIRECT.GET.{stream}", json.dumps(wanted).encode()
        )
        found = None
        while True:
            header, _ = self.connection.answer(reply, f"direct get of {stream} since {moment}")
            if header.startswith(b"NATS/1.0 ") and b"\r\nNats-Sequence:" not in header:
                self._is_end(stream, header, Stored())
                return found
            found = int(_field(header, b"Nats-Sequence"))

    def _require_no_more(self, stream: str, lo: int, hi: int, subject: str) -> None:
        if lo > hi or self.streams([stream])[stream].replicas == 1:
            return
        found, refusal = self._of_leader(stream, seq=lo, next_by_subj=subject)
        if refusal is not None and refusal.err_code == MESSAGE_NOT_FOUND:
            return
        if found is None or found.seq <= hi:
            raise self._behind(stream, f"is not there yet at {lo}")

    def _require_gone(self, stream: str, missing: Iterable[tuple[int, int]]) -> None:
        """Make sure that the stream's leader has nothing of these ranges, nor another server.

        A direct get is answered by any server of a cluster, and one may lag behind. Any may lack what was damaged
        on its disk, the leader too.

        Raises:
            ServerBehindError: one has some, or the leader cannot know.
        """
        missing = list(missing)
        info = self.streams([stream])[stream] if missing else None
        if info is None or info.replicas == 1:
            return
        if info.last_seq < missing[-1][1]:
            # A leader that the others have replaced, and that has not heard of it yet.
            raise self._behind(stream, f"ends at {info.last_seq} there")
        for lo, hi in missing:
            found, refusal = self._of_leader(stream, seq=lo, next_by_subj=">")
            if found is None and (refusal is None or refusal.err_code != MESSAGE_NOT_FOUND):
                raise self._behind(stream, f"has no leader to ask for {lo}")
            if found is not None and found.seq <= hi:
                raise self._behind(stream, f"is not there yet at {found.seq}")
            if seq := self.anywhere(stream, lo, hi):
                what = f"is led by a server that lacks {seq}, which another has,"
                raise self._behind(stream, what)

    def anywhere(self, stream: str, lo: int, hi: int) -> int:
        """Return the first of messages `lo` to `hi` that a server of the cluster has, 0 where none answers with any."""
        for _ in range(_OTHERS):
            part, _ = self._batch(stream, lo, hi, messages_max=1)
            if part.seqs:
                return part.seqs[0]
        return 0

    def _batch(
        self,
        stream: str,
        lo: int,
        hi: int,
        subject: str | None = None,
        messages_max: int = 0,
    ) -> tuple[Stored, bool]:
        size = min(messages_max or BATCH_MESSAGES, hi - lo + 1)
        wanted: dict[str, object] = {"seq": lo, "batch": size, "max_bytes": BATCH_BYTES}
        if subject is not None:
            wanted["next_by_subj"] = subject
        what = f"direct get of {stream} from {lo}"
        reply = self.connection.send(
            f"{self._api_of(stream)}.DIRECT.GET.{stream}", json.dumps(wanted).encode()
        )
        part = Stored()
        while True:
            header, body = self.connection.answer(reply, what)
            # A sender may have put a status on its message too, but a sequence has only the server.
            if header.startswith(b"NATS/1.0 ") and b"\r\nNats-Sequence:" not in header:
                return part, self._is_end(stream, header, part)
            # The server writes its fields last; a sender may have put the same names in front.
            seq = int(_field(header, b"Nats-Sequence"))
            if seq > hi:
                continue  # the rest of this answer lies beyond the range: what is left out moved it up
            part.seqs.append(seq)
            part.subjects.append(_field(header, b"Nats-Subject").decode(errors="replace"))
            part.times.append(_field(header, b"Nats-Time-Stamp").decode())
            part.bodies.append(body)

    def _is_end(self, stream: str, header: bytes, part: Stored) -> bool:
        status = header[9:12]
        if status == b"204":
            return not part.seqs or _field(header, b"Nats-Num-Pending") == b"0"
        if status == b"404":
            return True
        if status == b"503":
            if self.streams([stream])[stream].direct:
                # Whoever reads it for others is known to a cluster's servers a little later.
                raise self._behind(stream, "is read by nobody just now")
            raise StreamClosedError(stream)
        text = header[9:].split(b"\r\n", 1)[0].decode(errors="replace")
        raise HubProtocolError(self.connection.server, f"direct get of {stream}: {text}")

    def _api(self, verb: str, body: dict[str, object]) -> dict[str, Any]:
        header, answer = self.connection.request(
            f"{self.connection.api}.{verb}", json.dumps(body).encode()
        )
        if header.startswith(b"NATS/1.0 503"):
            raise HubProtocolError(self.connection.server, "JetStream is off for this account")
        result, refusal = read_answer(answer)
        if refusal is not None:
            raise HubProtocolError(self.connection.server, refusal.description)
        return result


def _fits(stream: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(stream, pattern) for pattern in patterns)


def _stream_info(answer: dict[str, Any]) -> StreamInfo:
    state = answer["state"]
    return StreamInfo(
        name=answer["config"]["name"],
        created=answer["created"],
        first_seq=state["first_seq"],
        last_seq=state["last_seq"],
        messages=state["messages"],
        bytes=state["bytes"],
        direct=bool(answer["config"].get("allow_direct")),
        replicas=answer["config"].get("num_replicas", 1),
    )


def _field(header: bytes, name: bytes) -> bytes:
    start = header.rfind(b"\r\n" + name + b": ")
    if start < 0:
        raise HubProtocolError("hub", f"an answer without {name.decode()}")
    start += len(name) + 4
    return header[start : header.index(b"\r\n", start)]


_idle: dict[tuple[int, Endpoint], Connection] = {}


@contextmanager
def borrowed(endpoint: Endpoint) -> Iterator[Reader]:
    """Lend this process's connection to `endpoint`, opening one if none is free.

    Worker processes live for many tasks, so a connection is kept between them; by process id,
    because a forked child must not share its parent's socket. After an error it is closed.
    """
    connection = _idle.pop((os.getpid(), endpoint), None) or Connection(endpoint)
    try:
        connection.change_inbox()
        yield Reader(connection)
    except BaseException:
        connection.close()
        raise
    # In one step: of two threads that give theirs back, one keeps it.
    if _idle.setdefault((os.getpid(), endpoint), connection) is not connection:
        connection.close()


def close_connections() -> None:
    """Close the connections that this process keeps between reads."""
    while _idle:
        _idle.popitem()[1].close()


def read_range(
    endpoint: Endpoint, stream: str, lo: int, hi: int, *, clock: SleepingClock = SYSTEM_CLOCK
) -> Iterator[Stored]:
    """Yield messages `lo` to `hi`, connecting again where it left off when the link breaks.

    Raises:
        HubServerError: after six attempts in a row without a single message (about 6 s of waits).
    """
    failures = 0
    while lo <= hi:
        try:
            with borrowed(endpoint) as reader:
                for part in reader.read(stream, lo, hi):
                    lo, failures = part.seqs[-1] + 1, 0
                    yield part
                return
        except LoginRefusedError:
            raise
        except HubServerError:
            failures += 1
            if failures == ATTEMPTS:
                raise
            clock.sleep(0.2 * 2 ** (failures - 1))


def list_streams(
    endpoint: Endpoint, patterns: list[str], *, clock: SleepingClock = SYSTEM_CLOCK
) -> dict[str, StreamInfo]:
    """Return the streams that fit `patterns`; a connection gone stale is replaced once.

    Where there are several servers it is tried for as long as in `read_range`: after the loss of
    one, a cluster needs some seconds to choose others to lead its streams.
    """
    return _asked(endpoint, lambda reader: reader.streams(patterns), clock)


def is_held(
    endpoint: Endpoint, stream: str, lo: int, hi: int, *, clock: SleepingClock = SYSTEM_CLOCK
) -> bool:
    """Tell whether a server of a cluster has any of the messages `lo` to `hi`, though the stream's leader lacks them."""
    if len(endpoint.servers) == 1:
        return False
    return bool(_asked(endpoint, lambda reader: reader.anywhere(stream, lo, hi), clock))


def _asked(endpoint: Endpoint, ask: Callable[[Reader], _Answer], clock: SleepingClock) -> _Answer:
    attempts = 2 if len(endpoint.servers) == 1 else ATTEMPTS
    for failures in range(attempts):
        try:
            with borrowed(endpoint) as reader:
                return ask(reader)
        except LoginRefusedError:
            raise
        except HubServerError:
            if failures == attempts - 1:
                raise
            if attempts > 2:
                clock.sleep(0.2 * 2**failures)
    raise AssertionError("unreachable")
