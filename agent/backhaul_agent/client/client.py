"""A small client for programs on the vehicle.

    async with connect("nats://127.0.0.1:4222") as agent:
        await agent.publish("battery", "soc", 81.2)          # returns when it is kept
        await agent.send("battery", "soc", 81.2)             # does not wait
        await agent.event("armed", previous="disarmed", reason="pilot")
        async with agent.batch("battery") as batch:          # many points, packed here
            batch.add("soc", 81.2)

"Kept" means: durable on this vehicle, and from now on the agent's duty to deliver exactly once. A
publish that got no answer (`NotKnownError`) may or may not be kept.

A time that the caller gives is the caller's word, and stays as it is. Where this client stamps, it says
that the stamp is of the machine's clock, and the agent corrects it like its own (docs/clocks.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from backhaul_agent.client.batch import FRAME_POINTS, Batch
from backhaul_agent.errors import Code, NoAgentError, NotKnownError, NotLetInError, RefusedError
from backhaul_agent.leaf.login import login_options
from backhaul_agent.stamps import CLOCK_HEADER, SYSTEM, stamp_ms
from backhaul_codec import CodecError, Opaque, Point, Value, encode_frame
from backhaul_codec.strict.json import JsonError, write_exactly
from backhaul_codec.subjects import SubjectError, encode_token
from backhaul_runtime.clock import Clock, SystemClock
from backhaul_runtime.patched_client import PatchedClient

WAIT_S = 5.0
OWN_STAMPS = {CLOCK_HEADER: SYSTEM}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@asynccontextmanager
async def connect(
    url: str = "nats://127.0.0.1:4222",
    *,
    user: str = "",
    password: str = "",
    credentials: str = "",
    nkey: str = "",
    wait_s: float = WAIT_S,
    clock: Clock | None = None,
) -> AsyncIterator[Agent]:
    """Connect to the vehicle's leaf server; ``wait_s`` is the deadline of every answer.

    ``nkey``: the path of a file with this program's key; ``credentials``: of one with a JWT too.

    Raises:
        LoginError: no such file, or it holds no key.
        NoAgentError: no server there.
    """
    nats = PatchedClient()
    errors: list[Exception] = []

    async def on_error(error: Exception) -> None:
        # What follows a refusal is the server hanging up, which would hide it.
        if not errors or not _is_refusal(errors[0]):
            errors[:] = [error]

    login = login_options(user=user, password=password, credentials=credentials, nkey=nkey)
    try:
        async with asyncio.timeout(wait_s):
            await nats.connect(
                servers=[url],
                name="backhaul client",
                error_cb=on_error,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,  # seconds, and a float is fine
                **login,
            )
    except (NatsError, OSError, TimeoutError) as error:
        await nats.close()
        why = errors[0] if errors else error
        if _is_refusal(why):
            raise NotLetInError(url, str(why)) from error
        raise NoAgentError(f"{url}: {str(why) or 'no answer'}") from error
    try:
        yield Agent(nats, wait_s, clock or SystemClock())
    finally:
        await nats.close()


def _is_refusal(error: Exception) -> bool:
    return "authorization" in str(error).lower()


def _written(said: Any) -> bytes:
    """Return a program's value as JSON that reads back as the same. Raises: JsonError."""
    try:
        return write_exactly(msgspec.to_builtins(said))
    except (TypeError, OverflowError, RecursionError) as error:
        raise JsonError(f"no JSON: {error}", "json") from error


class _Single(NamedTuple):
    """One point on its way; ``headers`` name the clock of the stamp."""

    subject: str
    payload: bytes
    headers: dict[str, str] | None = None


class Agent:
    """The agent, as a program on the vehicle sees it. Make one with `connect`."""

    def __init__(self, nats: NatsClient, wait_s: float, clock: Clock) -> None:
        self.clock = clock
        self.nats = nats
        self._wait_s = wait_s

    async def publish(
        self,
        node: str,
        type: str,
        value: Value,
        *,
        key: str = "",
        time: int | None = None,
        lane: str = "bulk",
    ) -> None:
        """Publish one point and return when it is kept.

        ``time`` in ns since the Unix epoch; without it the agent stamps. ``lane="live"`` sends it
        ahead of telemetry, as a message of its own: for events and state.

        Raises:
            RefusedError: nothing was kept; ``code`` says why.
            NotKnownError: no answer in time.
            NoAgentError: nobody is listening.
        """
        await self._keep(*self._single(node, type, value, key, time, lane))

    async def send(
        self,
        node: str,
        type: str,
        value: Value,
        *,
        key: str = "",
        time: int | None = None,
        lane: str = "bulk",
    ) -> None:
        """Publish one point without waiting; refusals appear on ``agent.rejected.>``.

        Raises:
            RefusedError: the value cannot be sent at all.
        """
        subject, payload, headers = self._single(node, type, value, key, time, lane)
        await self.nats.publish(subject, payload, headers=headers)

    async def event(
        self,
        kind: str,
        *,
        previous: str = "",
        reason: str = "",
        data: Any = None,
        time: int | None = None,
    ) -> None:
        """Report an event (armed, failsafe ...) and return when it is kept.

        ``previous`` is the state before, ``data`` anything that JSON can say, ``time`` as of
        `publish`.

        Raises:
            RefusedError, NotKnownError, NoAgentError: as `publish`.
        """
        said = {"previous": previous or None, "reason": reason or None, "data": data, "time": time}
        try:
            payload = _written({k: v for k, v in said.items() if v is not None})
            subject = f"agent.event.{encode_token(kind)}"
        except ValueError as error:  # a SubjectError is one, and a JsonError
            raise RefusedError(Code.BAD_VALUE, str(error)) from error
        await self._keep(subject, payload)

    async def publish_batch(self, node: str, points: Iterable[Point]) -> int:
        """Publish points of one node, packed into frames; return how many were kept: all.

        Points before the first refused frame are kept, and so may those after it be.

        Raises:
            RefusedError, NotKnownError, NoAgentError: as `publish`.
        """
        async with self.batch(node) as batch:
            for point in points:
                await batch.put(point)
        return batch.kept

    def batch(self, node: str, *, frame_points: int = FRAME_POINTS) -> Batch:
        """Return a batch of points of one node: an async context manager, kept when it ends."""
        return Batch(self, node, frame_points)

    async def on_command(
        self, name: str, handler: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> Subscription:
        """Carry out an operator's commands of a name, for as long as the connection lives.

        ``handler`` gets id, name, params and deadline_ns; what it returns, any JSON, is the result.
        What it raises is the reason why the command has failed. See docs/commands.md.
        """

        async def carry_out(message: Msg) -> None:
            try:
                answer = _written(await handler(_decode(message.data)))
            except Exception as error:  # noqa: BLE001 - whatever it is, the operator is told
                answer = _written({"error": str(error) or type(error).__name__})
            await message.respond(answer)

        # Of several programs on one name one is asked: each is a start.
        return await self.nats.subscribe(f"cmd.{name}", queue="cmd", cb=carry_out)

    async def status(self) -> dict[str, Any]:
        """Return the agent's status, see agent/README.md."""
        return _decode(await self._request("agent.status", b""))

    async def publish_frame(
        self, node: str, points: list[Point], *, own_stamps: bool = False
    ) -> int:
        """Publish points of one node as one frame and return how many were kept.

        ``own_stamps``: the times were read from this machine's clock, for the agent to correct.

        Raises:
            RefusedError, NotKnownError, NoAgentError: as `publish`.
        """
        subject, payload = self.frame_of(node, points)
        return await self._keep(subject, payload, OWN_STAMPS if own_stamps else None)

    def frame_of(self, node: str, points: Sequence[Point]) -> tuple[str, bytes]:
        """Return subject and payload by which points of one node are published.

        Raises:
            RefusedError: no frame can hold them.
        """
        try:
            return f"app.{encode_token(node)}", encode_frame(points, epoch=0, seq=0)
        except (CodecError, SubjectError) as error:
            raise RefusedError(Code.BAD_VALUE, str(error)) from error

    def point_of(
        self, node: str, type_: str, value: Value, *, key: str = ""
    ) -> tuple[str, bytes, str]:
        """Return subject, payload and the clock's word by which a point without a time is published.

        Raises:
            RefusedError: no message can hold it.
        """
        try:
            subject, payload, headers = self._single(node, type_, value, key, None, "bulk")
            return subject, payload, (headers or {}).get(CLOCK_HEADER, "")
        except SubjectError as error:
            raise RefusedError(Code.BAD_VALUE, str(error)) from error

    def _single(
        self, node: str, type_: str, value: Value, key: str, time: int | None, lane: str
    ) -> _Single:
        body: dict[str, Any] = {"value": value}
        match value:
            case bool():
                raise RefusedError(Code.BAD_VALUE, "a bool is no value: send 0 or 1")
            case float() if value - value != 0:
                return self._as_frame(node, type_, value, key, time, lane)
            case int():
                body["dtype"] = "int64"
            case Opaque(dtype=6, data=data):
                body |= {"value": msgspec.Raw(data), "dtype": "json"}
            case bytes() | Opaque():
                return self._as_frame(node, type_, value, key, time, lane)
        if time is not None:
            body["time"] = time
        if lane != "bulk":
            body["lane"] = lane
        tail = f".{encode_token(key)}" if key else ""
        subject = f"app.{encode_token(node)}.{encode_token(type_)}{tail}"
        return _Single(subject, msgspec.json.encode(body))

    def _as_frame(
        self, node: str, type_: str, value: Value, key: str, time: int | None, lane: str
    ) -> _Single:
        """Return a value that JSON cannot hold (bytes, NaN, infinities) as a frame of one point."""
        if lane != "bulk":
            raise RefusedError(Code.BAD_VALUE, "bytes, NaN and infinities go by the bulk lane only")
        stamp = stamp_ms(self.clock) if time is None else time
        point = Point(node=node, type=type_, key=key, time=stamp, value=value)
        try:
            payload = encode_frame([point], epoch=0, seq=0)
        except CodecError as error:
            raise RefusedError(Code.BAD_VALUE, error.reason) from error
        headers = OWN_STAMPS if time is None else None
        return _Single(f"app.{encode_token(node)}", payload, headers)

    async def _keep(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> int:
        return int((await self.ask(subject, payload, headers))["kept"])

    async def ask(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Send a request of any kind and return the answer.

        Raises:
            RefusedError, NotKnownError, NoAgentError: as `publish`.
        """
        answer = _decode(await self._request(subject, payload, headers))
        if error := answer.get("error"):
            raise RefusedError(error["code"], error["message"])
        return answer

    async def _request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> bytes:
        try:
            message = await self.nats.request(
                subject, payload, timeout=self._wait_s, headers=headers
            )
        except NoRespondersError as error:
            raise NoAgentError(subject) from error
        except (NatsTimeoutError, ConnectionClosedError) as error:
            raise NotKnownError(subject, self._wait_s) from error
        return message.data
