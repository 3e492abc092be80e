"""Publish messages into the hub's streams, each acknowledged, and wait for a hub that is away.

Many are under way at a time, since one round trip each would be the limit. Whatever was not
acknowledged is published again, in order: each message carries what makes that harmless (outgoing.py).
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from backhaul_runtime.clock import SYSTEM_CLOCK, SleepingClock
from backhaul_spark.errors import (
    HubServerError,
    LoginRefusedError,
    NobodyTakesError,
    PublishRefusedError,
    StreamFullError,
)
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.endpoint import Endpoint
from backhaul_spark.sink.outgoing import Outgoing

T = TypeVar("T")
Done: TypeAlias = Literal["stored", "repeat", "dropped"]
# So many acknowledgements under way: more made it no faster (python -m benchmarks sink).
WINDOW_MESSAGES = 1024
WINDOW_BYTES = 1 << 20
WAIT_S_MIN, WAIT_S_MAX = 0.2, 5.0
_WRONG_LAST_SEQUENCE = 10071
# No room: by bytes, by messages, on the disk; what the rest of JetStream says of a moment's want.
_FULL = frozenset({10077, 10078, 10023, 10047})
_PASSING = frozenset({10008, 10009, 10164, 10167, 10195})


class Published(NamedTuple):
    """The fate of published messages."""

    stored: int = 0
    repeats: int = 0
    """Those that the stream had already."""
    dropped: int = 0
    """Those that there was nothing to say of any more."""


class Publisher:
    """One connection that publishes; opened when it is first needed. Not safe for two threads.

    Args:
        endpoint: the hub, and a login that may publish there.
        tell: told in a sentence when the hub does not take what is published, and when it does again.
        give_up: asked before each wait; once it says yes, what is in the way is raised.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        tell: Callable[[str], None] = lambda text: None,
        give_up: Callable[[], bool] = lambda: False,
        clock: SleepingClock = SYSTEM_CLOCK,
        connect: Callable[[Endpoint], Connection] = Connection,
    ) -> None:
        self._endpoint = endpoint
        self._tell = tell
        self._give_up = give_up
        self._clock = clock
        self._connect = connect
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def publish(self, items: Iterable[T], message_of: Callable[[T], Outgoing | None]) -> Published:
        """Publish a message for each item and return once each is stored; for as long as that takes.

        Args:
            items: of any kind.
            message_of: makes an item's message each time that it is sent; None where by now there is
                nothing to say any more.

        Raises:
            LoginRefusedError: waiting does not help. PublishRefusedError: nor does it here; what was before is
                stored, and what is after may be.
            HubServerError, StreamFullError: what was in the way when `give_up` said yes.
        """
        left = deque(items)
        done: Counter[Done] = Counter()
        wait_s, trouble = WAIT_S_MIN, ""
        while left:
            before = len(left)
            try:
                self._publish(left, message_of, done)
            except (LoginRefusedError, PublishRefusedError):
                self.close()
                raise
            except (HubServerError, StreamFullError) as error:
                # What is still on its way back belongs to nobody on a new connection.
                self.close()
                if self._give_up():
                    raise
                if str(error) != trouble:
                    trouble = str(error)
                    self._tell(f"{trouble}; {len(left)} wait, nothing is lost ({error.hint})")
                wait_s = WAIT_S_MIN if len(left) < before else min(2 * wait_s, WAIT_S_MAX)
                self._clock.sleep(wait_s)
        if trouble:
            self._tell("the hub takes them again")
        return Published(done["stored"], done["repeat"], done["dropped"])

    def _publish(
        self, left: deque[T], message_of: Callable[[T], Outgoing | None], done: Counter[Done]
    ) -> None:
        """Publish until nothing is left; unacknowledged messages stay in `left`, in their order."""
        if self._connection is None:
            self._connection = self._connect(self._endpoint)
        under_way: dict[bytes, T] = {}
        again: list[T] = []
        trouble: HubServerError | StreamFullError | None = None
        try:
            while under_way or (left and trouble is None):
                if trouble is None and len(under_way) <= WINDOW_MESSAGES // 2:
                    room = WINDOW_MESSAGES - len(under_way)
                    under_way |= _send(self._connection, left, message_of, done, room)
                    if not under_way:
                        continue
                reply, header, body = self._connection.any_answer("what was published")
                if reply not in under_way:
                    continue
                item = under_way.pop(reply)
                try:
                    done[judged(header, body)] += 1
                except (NobodyTakesError, StreamFullError) as error:
                    trouble = trouble or error
                    again.append(item)
        finally:
            left.extendleft(reversed([*again, *under_way.values()]))
        if trouble is not None:
            raise trouble


def judged(header: bytes, body: bytes) -> Done:
    """Describe an acknowledgement.

    Raises:
        NobodyTakesError: no stream has the subject, or none that works just now.
        StreamFullError: there is no room.
        PublishRefusedError: for any other reason.
    """
    if header.startswith(b"NATS/1.0 503"):
        raise NobodyTakesError("no stream takes them")
    try:
        said = json.loads(body)
        error = said.get("error")
        if error is None:
            return "repeat" if said.get("duplicate") else "stored"
        code, text = error.get("err_code"), str(error.get("description"))
    except (ValueError, AttributeError) as unreadable:
        raise PublishRefusedError(
            f"an answer that is no acknowledgement: {body[:80]!r}"
        ) from unreadable
    if code == _WRONG_LAST_SEQUENCE:
        return "repeat"
    if code in _FULL:
        raise StreamFullError(text)
    if code in _PASSING:
        raise NobodyTakesError(text)
    raise PublishRefusedError(f"{text} ({code})")


def _send(
    connection: Connection,
    left: deque[T],
    message_of: Callable[[T], Outgoing | None],
    done: Counter[Done],
    room: int,
) -> dict[bytes, T]:
    """Send as many as there is room for in one write; return them by their reply subjects."""
    messages: list[Outgoing] = []
    sent: list[T] = []
    size = 0
    try:
        while left and len(sent) < room and size < WINDOW_BYTES:
            message = message_of(left[0])
            item = left.popleft()
            if message is None:
                done["dropped"] += 1
                continue
            sent.append(item)
            messages.append(message)
            size += len(message.body)
        return dict(zip(connection.send_all(messages), sent, strict=True)) if messages else {}
    except BaseException:
        left.extendleft(reversed(sent))
        raise
