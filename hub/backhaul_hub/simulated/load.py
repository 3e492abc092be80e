"""Publishing a simulated fleet's messages, at its pace, and making sure that they are stored.

Thousands of acknowledgements a second would cost more than the messages. So each stream acknowledges one
message of every few hundred: nobody else writes to it, so the sequence that this one was given
says whether all those before it were stored.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_hub.errors import HubError
from backhaul_hub.lane_names import out_stream
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.shards import shard_of, up_name
from backhaul_hub.simulated.fleet import SimulatedVehicles
from backhaul_hub.simulated.lanes import Sourced
from backhaul_hub.simulated.target import INBOX, publish_subject
from backhaul_runtime.clock import Clock

# A server refuses what comes while 10,000 messages of a stream wait.
ACKNOWLEDGED_EVERY, UNACKNOWLEDGED_MAX = 256, 4096
_TIMEOUT_S = 30.0
_TICK_S = 0.02
# Of what is late, so much is sent before anything else has its turn.
_TURN_MESSAGES = 2_000
_HASH = "00000000"
_SECOND_NS = 1_000_000_000


class Store:
    """Publishes into the streams of UP.

    Args:
        client: logged in as the simulator, its inboxes below INBOX.
        last_seqs: of each stream, what it holds already.
    """

    def __init__(self, client: Client, last_seqs: dict[str, int]) -> None:
        self.messages = 0
        self.bytes = 0
        self._client = client
        self._first = dict(last_seqs)
        self._sent: dict[str, int] = defaultdict(int)
        self._stored: dict[str, int] = defaultdict(int)
        self._streams: dict[str, str] = {}
        self._moved = asyncio.Event()
        self._trouble: HubError | None = None

    @classmethod
    async def open(cls, client: Client, api: JetStreamApi, shards: int) -> Store:
        """Ask for the streams' contents, and listen to their acknowledgements.

        Raises:
            HubError: a stream is not there.
        """
        names = [up_name(shard) for shard in range(shards)]
        infos = [await api.info(name) for name in names]
        seqs = {name: info["state"]["last_seq"] for name, info in zip(names, infos, strict=True)}
        store = cls(client, seqs)
        await client.subscribe(f"{INBOX}.>", cb=store.acknowledged)
        return store

    async def send(self, message: Sourced) -> None:
        """Publish one message; wait where too many are not acknowledged.

        Raises:
            HubError: messages were not stored.
        """
        stream = self._stream(message.device)
        self._sent[stream] += 1
        sent = self._sent[stream]
        subject = publish_subject(stream, message.device, message.leaf_subject)
        reply = f"{INBOX}.{stream}.{sent}" if sent % ACKNOWLEDGED_EVERY == 0 else ""
        await self._client.publish(subject, message.body, reply, source_header(message))
        self.messages += 1
        self.bytes += len(message.body)
        if sent - self._stored[stream] > UNACKNOWLEDGED_MAX:
            await self._wait(lambda: sent - self._stored[stream] <= UNACKNOWLEDGED_MAX // 2)

    async def flush(self, api: JetStreamApi) -> None:
        """Wait until everything is stored.

        Raises:
            HubError: it is not.
        """
        for stream, sent in self._sent.items():
            deadline_s = asyncio.get_running_loop().time() + _TIMEOUT_S
            while (seq := await _last_seq(api, stream)) < self._first[stream] + sent:
                if asyncio.get_running_loop().time() > deadline_s:
                    raise _lost(stream, self._first[stream] + sent, seq)
                await asyncio.sleep(_TICK_S)
        if self._trouble:
            raise self._trouble

    def _stream(self, device: str) -> str:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = up_name(shard_of(device, len(self._first)))
        return stream

    async def acknowledged(self, message: Msg) -> None:
        """Take in a stream's word on one message of many."""
        _, stream, sent = message.subject.split(".")
        said: dict[str, Any] = json.loads(message.data) if message.data else {}
        expected = self._first[stream] + int(sent)
        if said.get("seq") != expected and self._trouble is None:
            why = said.get("error", {}).get("description", "nobody takes it")
            self._trouble = (
                _lost(stream, expected, said["seq"])
                if "seq" in said
                else HubError(f"{stream} does not take messages: {why}")
            )
        self._stored[stream] = int(sent)
        self._moved.set()

    async def _wait(self, until: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while not until() and self._trouble is None:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise HubError(f"nothing was stored for {_TIMEOUT_S:g} s") from None
        if self._trouble:
            raise self._trouble


def source_header(message: Sourced) -> dict[str, str]:
    """Return the headers of a source on a stored message: where it stood before.

    Under another name of the same length: the server takes its own from nobody (error 10227). So a
    message is as large as a sourced one, and readers that looked for the true name would find none.
    """
    place = f"{out_stream(message.lane)}:{_HASH} {message.seq}"
    return {"Fake-Stream-Source": f"{place} > up.{message.device}.> {message.leaf_subject} {_HASH}"}


async def _last_seq(api: JetStreamApi, stream: str) -> int:
    return int((await api.info(stream))["state"]["last_seq"])


def _lost(stream: str, expected: int, found: int) -> HubError:
    return HubError(
        f"{stream} is at {found}, not at {expected}: not everything was stored, or somebody else writes"
    )


@dataclass(eq=False)
class Run:
    """Sends a fleet's messages, in real time.

    Args:
        fleet: whose plan says what and for how long.
        send: takes one message after another.
        clock: the fleet lives by its wall time.
        sleep: as `asyncio.sleep`.
    """

    _fleet: SimulatedVehicles
    _send: Callable[[Sourced], Awaitable[None]]
    _clock: Clock
    _sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self.behind_s = 0.0
        """How late the next message is."""
        self.behind_s_max = 0.0

    async def introduce(self) -> None:
        """Have all vehicles name themselves, as fast as they can."""
        await self._all(self._fleet.introductions())

    async def live(self, backlog_at_s: float, backlog_messages_s: float) -> None:
        """Send the messages that are due, until the plan is over and the backlog gone.

        Args:
            backlog_at_s: when the link comes back to those who are away.
            backlog_messages_s: how fast what they have to send arrives.
        """
        plan = self._fleet.plan
        total = round(plan.messages_s * plan.seconds)
        began_s = self._clock.monotonic_s()
        began_ns = self._clock.now_ns() if plan.seconds else plan.start_ns
        self._fleet.go_live(began_ns)
        backlog: Iterator[Sourced] | None = None
        number, late = 0, 0
        while True:
            at_s = self._clock.monotonic_s() - began_s
            due = min(total, int(at_s * plan.messages_s) + 1)
            self.behind_s = at_s - number / plan.messages_s if number < due else 0.0
            self.behind_s_max = max(self.behind_s_max, self.behind_s)
            turn = min(due, number + _TURN_MESSAGES)
            await self._all(self._fleet.live(number, turn))
            number = turn
            if backlog is None and at_s >= backlog_at_s:
                backlog = self._fleet.backlog(began_ns + int(backlog_at_s * _SECOND_NS))
            if backlog is not None:
                wanted = int((at_s - backlog_at_s) * backlog_messages_s) + 1 - late
                wanted = min(wanted, _TURN_MESSAGES)
                sent = await self._all(islice(backlog, wanted))
                late += sent
                if number == total and sent < wanted:
                    return
            if number == due:
                await self._sleep(_TICK_S)

    async def _all(self, messages: Iterable[Sourced]) -> int:
        count = 0
        for message in messages:
            await self._send(message)
            count += 1
        return count
