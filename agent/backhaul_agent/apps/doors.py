"""Connections by which programs reach the agent, beside its own: a flood at one door blocks no other.

What programs publish and ask over one connection waits in one queue of the leaf server. A program that
sends faster than the agent takes fills it; the server then cuts the agent, and all others wait behind it.
So apps.conf gives each program with an account of its own a **door**: its requests come under
``agent.from.<door>.<program>.``, and each door is a connection of the agent's. A server slows down, or cuts,
who sends to a door that is full; the other doors and the agent's own connection notice nothing.

A session of the agent's opens them all before it serves. Who serves uses `hear` where it would subscribe.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from backhaul_agent.apps.floods import QueueTurn
from backhaul_agent.apps.rights import DOORS, FROM, door_subject
from backhaul_agent.cancellation import heed_cancel
from backhaul_runtime.patched_client import PatchedClient

Callback = Callable[[Msg], Awaitable[None]]
OnBusy = Callable[[str, str, str], None]
Connect = Callable[[PatchedClient, Callable[[Exception], Awaitable[None]]], Awaitable[None]]

OPEN_S_MAX = 5.0
LOOK_S = 0.1
# What a program must have sent for its door to have been cut for it, and not for anything else.
CUT_BYTES_MIN = 8 << 20
log = structlog.get_logger("doors")


class DoorMsg(Msg):
    """A message from a program, under the subject that the program used."""

    program: str = ""


def program_of(message: Msg) -> str:
    """Return which program sent a message, as the server knows it; empty where it has no account of its own."""
    return message.program if isinstance(message, DoorMsg) else ""


class DoorClient(PatchedClient):
    """Tells at once of a message there is no room for, before more of it is decoded than its subject."""

    def __init__(self, door: int, on_busy: OnBusy) -> None:
        super().__init__()
        self.sent_bytes: Counter[str] = Counter()
        self._prefix_length = len(f"{FROM}.{door}.")  # it stands before all that is heard here
        self._on_busy = on_busy

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        # Nothing is subscribed at a door but with a callback: of what nats-py does beside handing the
        # message to it, nothing applies, and for a single reading that would be a good part of the work.
        heard = self._subs.get(sid)
        if heard is None:
            return
        size, queue = len(data), heard._pending_queue
        text = subject.decode(errors="replace")
        program, _, name = text[self._prefix_length :].partition(".")
        answer_to = reply.decode(errors="replace")
        self.sent_bytes[program] += size
        if (
            queue.qsize() >= heard._pending_msgs_limit
            or heard._pending_size + size >= heard._pending_bytes_limit > 0
        ):
            self._on_busy(program, name, answer_to)
            return
        said = await self._process_headers(headers) if headers else None
        message = DoorMsg(self, name, answer_to, data, said, _sid=sid)
        message.program = program
        heard._pending_size += size
        queue.put_nowait(message)


@dataclass(slots=True)
class Heard:
    """The subscriptions at every door, and on the agent's own connection where ``own`` is that."""

    subject: str
    callback: Callback
    limits: dict[str, Any]
    own: Subscription | None = None
    at_doors: dict[int, Subscription] = field(default_factory=dict)

    async def drain(self) -> None:
        """Take in the messages that the server has delivered, then no more."""
        heard = [*self.at_doors.values(), *([self.own] if self.own else [])]
        self.at_doors.clear()
        # All at once: what waits at a door that is flooded is not to cost the others their time.
        await asyncio.gather(*map(_drain, heard))


class Doors:
    """All doors of a session: opened once, and each again whenever the server has cut it.

    Args:
        connect: connects a client, with a callback for its errors.
        on_busy: told of a message there is no room for: program, subject, reply subject.
        on_cut: told of the program for which a door was cut.
    """

    def __init__(self, connect: Connect, on_busy: OnBusy, on_cut: Callable[[str], None]) -> None:
        self._connect = connect
        self._on_busy = on_busy
        self._on_cut = on_cut
        self._heard: list[Heard] = []
        self._clients: dict[int, DoorClient] = {}

    async def open(self) -> None:
        """Open every door. Raises: NatsError, OSError, TimeoutError: the server is gone, or refuses."""
        for door in range(DOORS):
            await self._open(door)

    async def run(self) -> None:
        """Open again each door that was cut, for as long as the session lives (the caller cancels)."""
        while True:
            await asyncio.sleep(LOOK_S)
            for door, client in list(self._clients.items()):
                if client.is_closed:
                    await self._open_again(door, client.sent_bytes)

    async def close(self) -> None:
        """Close all doors."""
        clients, self._clients = list(self._clients.values()), {}
        self._heard.clear()
        for client in clients:
            await client.close()

    async def hear(self, heard: Heard) -> None:
        """Hear it at every door from now on."""
        self._heard.append(heard)
        for door, client in self._clients.items():
            if not client.is_closed:
                await _subscribe(client, door, heard)

    async def flush(self) -> None:
        """Return when the server knows all that is heard. Raises: NatsError."""
        for client in self._clients.values():
            if not client.is_closed:
                await client.flush()

    async def _open(self, door: int) -> None:
        client = DoorClient(door, self._on_busy)

        async def note(error: Exception) -> None:
            log.debug("door", door=door, error=str(error))

        try:
            async with asyncio.timeout(OPEN_S_MAX):
                await self._connect(client, note)
            heed_cancel()
            for heard in self._heard:
                await _subscribe(client, door, heard)
        except BaseException:
            await client.close()
            raise
        self._clients[door] = client

    async def _open_again(self, door: int, sent_bytes: Counter[str]) -> None:
        try:
            await self._open(door)
        except (NatsError, OSError, TimeoutError) as error:
            log.warning("door_not_opened", door=door, error=str(error))
            return
        # The server is there, and has let in this one: it did not end by itself.
        for program, sent in sent_bytes.most_common(1):
            log.warning("door_cut", door=door, program=program, sent_bytes=sent)
            if sent >= CUT_BYTES_MIN:
                self._on_cut(program)


class OwnClient(PatchedClient):
    """The agent's own connection, and the doors beside it; None where programs have no accounts."""

    doors: Doors | None = None


async def hear(client: Client, subject: str, callback: Callback, **limits: Any) -> Heard:
    """Subscribe to programs' publishes or questions, on this connection and at the doors beside it."""
    heard = Heard(subject, callback, limits)
    heard.own = await client.subscribe(subject, cb=callback, **limits)
    await hear_at_doors(client, heard)
    return heard


async def hear_at_doors(client: Client, heard: Heard) -> None:
    """Subscribe at the doors beside a connection, where it has any."""
    if isinstance(client, OwnClient) and client.doors is not None:
        await client.doors.hear(heard)


async def _drain(subscription: Subscription) -> None:
    try:
        await subscription.drain()  # type: ignore[no-untyped-call]
    except NatsError as error:
        log.warning("not_unsubscribed", error=str(error))


async def _subscribe(client: DoorClient, door: int, heard: Heard) -> None:
    loop = asyncio.get_running_loop()
    turn = QueueTurn()
    waiting: Callable[[], int] = int  # 0, until it is subscribed

    async def in_turn(message: Msg) -> None:
        await heard.callback(message)
        # A queue that is never empty would never let go of the loop.
        if turn.is_over(waiting(), loop.time()):
            await asyncio.sleep(0)

    here = await client.subscribe(
        door_subject(door, "*", heard.subject), cb=in_turn, **heard.limits
    )
    waiting = here._pending_queue.qsize
    heard.at_doors[door] = here


# What may wait on any other subject that programs ask on; who comes beyond it is told that we are busy.
# The client's own limits, 524,288 messages and 128 MB a subject, are more than the agent may have.
ASKED: dict[str, Any] = {"pending_msgs_limit": 1024, "pending_bytes_limit": 8 << 20}
