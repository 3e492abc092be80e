"""Answer questions about the past over NATS, on the subject `history.ask`, a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_codec.protocol.history import ALIVE, SUBJECT, Alive, PastQuestion
from backhaul_codec.strict.json import JsonError, Reader
from backhaul_runtime.patched_client import PatchedClient
from backhaul_spark.errors import BackhaulSparkError, UnreachableError
from backhaul_spark.nats.endpoint import Endpoint

log = structlog.get_logger(__name__)

AT_ONCE = 4
"""Questions that are worked at; others wait, so many that all of them are UNDER_WAY_MAX."""
UNDER_WAY_MAX = 32
WAITING_MAX = 4 * UNDER_WAY_MAX
"""Askers of those questions: who has no answer yet asks again, and the work is done once."""
_PENDING_MAX = 1000
_GROUP = "history"
"""Of several servers one answers."""
_ATTEMPT_S = 2
_PING_S = 10


class HistoryServer:
    """Answers for as long as it runs.

    Args:
        answer: answers a question, in a thread; several at a time.
        endpoint: the hub, and a login of its account HISTORY.
        alive: what to say to who asks whether this is here.
        connect_s: for how long the hub is waited for at the start.
    """

    def __init__(
        self,
        answer: Callable[[PastQuestion], dict[str, Any]],
        endpoint: Endpoint,
        *,
        alive: Callable[[], Alive] = Alive,
        connect_s: float = 30.0,
    ) -> None:
        self._answer = answer
        self._endpoint = endpoint
        self._alive = alive
        self._connect_s = connect_s
        self._reader = Reader(PastQuestion)
        self._under_way: dict[bytes, asyncio.Future[bytes]] = {}
        self._waiting = 0

    async def run(self, stopping: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Answer until told to stop; a hub that is away is waited for.

        Raises:
            UnreachableError: it was not there at the start, or took the login back for good.
        """
        client = await self._connected()
        try:
            with ThreadPoolExecutor(AT_ONCE, "history") as threads:
                async with asyncio.TaskGroup() as group:
                    take = partial(self._take, group, threads)
                    subscription = await client.subscribe(
                        SUBJECT, _GROUP, pending_msgs_limit=_PENDING_MAX, cb=take
                    )
                    await client.flush()
                    ready()
                    while not stopping.is_set() and not client.is_closed:
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(stopping.wait(), 0.5)
                    if not client.is_closed:
                        await subscription.unsubscribe()
            if not stopping.is_set():
                raise UnreachableError(str(self._endpoint), "the connection has closed for good")
        finally:
            await client.close()

    async def _take(
        self, group: asyncio.TaskGroup, threads: ThreadPoolExecutor, message: Msg
    ) -> None:
        if message.data == ALIVE:
            await self._tell(message, msgspec.json.encode(self._alive()))
        elif self._waiting == WAITING_MAX or (
            len(self._under_way) == UNDER_WAY_MAX and message.data not in self._under_way
        ):
            await self._tell(message, _refusal("too many questions at once", "ask again"))
        else:
            self._waiting += 1
            group.create_task(self._respond(message, self._worked_at(threads, message.data)))

    def _worked_at(self, threads: ThreadPoolExecutor, data: bytes) -> asyncio.Future[bytes]:
        """Return the coming answer to a question: the threads work once for all who ask it meanwhile."""
        answer = self._under_way.get(data)
        if answer is None:
            loop = asyncio.get_running_loop()
            answer = self._under_way[data] = loop.run_in_executor(threads, self._said, data)
            answer.add_done_callback(lambda _: self._under_way.pop(data))
        return answer

    async def _respond(self, message: Msg, answer: asyncio.Future[bytes]) -> None:
        try:
            await self._tell(message, await asyncio.shield(answer))
        finally:
            self._waiting -= 1

    async def _tell(self, message: Msg, body: bytes) -> None:
        try:
            await message.respond(body)
        except NatsError as error:
            log.warning("not_answered", error=repr(error))

    def _said(self, data: bytes) -> bytes:
        """Return the answer, or the refusal, to a question."""
        try:
            return msgspec.json.encode(self._answer(self._reader.read(data)))
        except JsonError as error:
            return _refusal(str(error))
        except BackhaulSparkError as error:
            return _refusal(str(error), error.hint)
        except Exception:
            # Whatever is asked, the next question is answered.
            log.exception("question_failed")
            return _refusal("a fault of the server of history", "its log has the traceback")

    async def _connected(self) -> PatchedClient:
        client = PatchedClient()
        endpoint = self._endpoint
        scheme = "tls" if endpoint.tls else "nats"
        tls = ssl.create_default_context(cafile=endpoint.tls_ca or None) if endpoint.tls else None
        errors: list[Exception] = []

        async def on_error(error: Exception) -> None:
            errors[:] = [error]
            if client.is_connected:
                log.warning("nats_error", error=repr(error))

        login: dict[str, str] = (
            {"user_credentials": endpoint.creds}
            if endpoint.creds
            else {"user": endpoint.user, "password": endpoint.password}
        )
        try:
            async with asyncio.timeout(self._connect_s):
                await client.connect(
                    [f"{scheme}://{_host(host)}:{port}" for host, port in endpoint.servers],
                    **login,
                    tls=tls,
                    name="backhaul-spark history",
                    connect_timeout=_ATTEMPT_S,
                    max_reconnect_attempts=-1,
                    ping_interval=_PING_S,
                    max_outstanding_pings=2,
                    reconnect_time_wait=0.5,  # seconds; a float is fine
                    error_cb=on_error,
                )
        except (NatsError, OSError, TimeoutError) as error:
            await client.close()
            why = errors[0] if errors else error
            raise UnreachableError(str(endpoint), repr(why)) from error
        return client


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _refusal(message: str, hint: str = "") -> bytes:
    return msgspec.json.encode({"error": {"message": message, "hint": hint}})


__all__ = ["AT_ONCE", "UNDER_WAY_MAX", "WAITING_MAX", "HistoryServer"]
