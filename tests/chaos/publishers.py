"""Programs on a vehicle that publish without rest, and note what they were told became of each point."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_agent.client import Agent, connect
from backhaul_agent.client.config import ConfigClient
from backhaul_agent.errors import AgentError, NoAgentError, RefusedError
from backhaul_agent.stamps import stamp_ms
from backhaul_codec import Point
from tests.chaos.diary import Entry, readings_of
from tests.chaos.evidence import BY_CLIENT, EVENT, LIVE_NODES, UNTIMED
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.aio.client import Client

    from backhaul_runtime.clock import Clock
    from tests.chaos.diary import Diary

WAIT_S = 1.5
SERIES = 3
"""Series of configuration that each end writes alone; and one that both write."""
SHARED = "both"


class Publishers:
    """Programs of one vehicle.

    Whoever gets no answer does not try again, so no reading may ever be there twice.

    Args:
        device: its id.
        url: of its leaf server.
        seed: says how much is published when; not what becomes of it.
        diary: takes down all that is asked and answered.
        now_ns: stamps what is published, in ns since the Unix epoch.
        wall: the vehicle's own clock, which may jump: stamps what the client stamps.
        pause_s: the longest time between two batches of one program.
    """

    def __init__(
        self,
        device: str,
        url: str,
        seed: int,
        diary: Diary,
        now_ns: Callable[[], int],
        wall: Clock,
        *,
        pause_s: float,
    ) -> None:
        self._device = device
        self._url = url
        self._random = Random(f"{seed} {device}")
        self._diary = diary
        self._now_ns = now_ns
        self._wall = wall
        self._pause_s = pause_s
        self._next = 1
        self._events_so_far = count(1)
        self._writes = count(1)

    def programs(self) -> list[Coroutine[None, None, None]]:
        """Return the programs, each to be run until it is cancelled."""
        return [
            self._batches(),
            self._small_batches(),
            self._json("gps"),
            *(self._json(node, lane="live") for node in LIVE_NODES),
            self._untimed(),
            self._events(),
            self._config(),
        ]

    async def _batches(self) -> None:
        """Publish frames that pass through as they are, several at once."""
        async with connect(self._url) as connected:
            agent = Agent(connected.nats, WAIT_S, connected.clock)
            while True:
                many = self._random.randint(1, 3)
                entries = [self._entry("imu", self._random.randint(130, 250)) for _ in range(many)]
                await asyncio.gather(*(self._frame(agent, entry) for entry in entries))
                await self._pause()

    async def _small_batches(self) -> None:
        """Publish frames that are taken apart and packed anew with others, on two nodes."""
        async with connect(self._url) as connected:
            agent = Agent(connected.nats, WAIT_S, connected.clock)
            while True:
                node = self._random.choice(["battery", "cabin"])
                await self._frame(agent, self._entry(node, self._random.randint(1, 120)))
                await self._pause()

    async def _json(self, node: str, **more: str) -> None:
        """Publish JSON as any NATS client would, a few at once."""
        client = await patient.connect(
            self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.2, error_cb=quiet
        )
        try:
            while True:
                entries = [self._entry(node, 1) for _ in range(self._random.randint(1, 4))]
                await asyncio.gather(*(self._single(client, entry, more) for entry in entries))
                await self._pause()
        finally:
            await client.close()

    async def _untimed(self) -> None:
        """Publish readings to which nobody gives a time: the agent stamps them, or the client."""
        async with connect(self._url, clock=self._wall) as connected:
            agent = Agent(connected.nats, WAIT_S, connected.clock)
            while True:
                node = self._random.choice(UNTIMED)
                entry = self._entry(node, 1, timed=False)
                value = float(entry.body["first"])
                if node == BY_CLIENT:
                    points = [Point(node, "value", stamp_ms(self._wall), value)]
                    frame = partial(agent.publish_frame, node, points, own_stamps=True)
                    await self._noted(entry, frame)
                else:
                    await self._noted(entry, partial(agent.publish, node, "value", value))
                await self._pause()

    async def _events(self) -> None:
        """Report events, one after the other."""
        async with connect(self._url) as connected:
            agent = Agent(connected.nats, WAIT_S, connected.clock)
            while True:
                await self._event(agent)
                await self._pause()

    async def _config(self) -> None:
        """Write configuration: to series that nobody else writes, and to one that the hub does."""
        async with connect(self._url) as connected:
            agent = Agent(connected.nats, WAIT_S, connected.clock)
            config = ConfigClient(agent)
            for number in self._writes:
                await self._write(agent, number)
                await self._pause()
                await unnoted(partial(config.set, SHARED, {"number": float(number)}))

    def go_on(self) -> list[Callable[[], Coroutine[None, None, bool]]]:
        """Return one try each to publish a reading, an event and configuration: whether it was kept."""
        return [
            partial(self._alone, lambda agent: self._frame(agent, self._entry("battery", 1))),
            partial(self._alone, self._event),
            partial(self._alone, lambda agent: self._write(agent, next(self._writes))),
        ]

    async def _alone(self, ask: Callable[[Agent], Coroutine[None, None, bool]]) -> bool:
        """Do one thing over a connection of its own; return whether it was kept."""
        try:
            async with connect(self._url) as connected:
                return await ask(Agent(connected.nats, WAIT_S, connected.clock))
        except (AgentError, NatsError, OSError):
            return False

    async def _event(self, agent: Agent) -> bool:
        number = next(self._events_so_far)
        report = partial(agent.event, EVENT, data={"number": number})
        return await self._noted(Entry("event", self._device, 0, {"event": number}), report)

    async def _write(self, agent: Agent, number: int) -> bool:
        node = f"vehicle{number % SERIES}"
        entry = Entry("config", self._device, 0, {"node": node, "value": float(number)})
        write = partial(ConfigClient(agent).set, node, {"number": float(number)})
        return await self._noted(entry, write)

    async def _frame(self, agent: Agent, entry: Entry) -> bool:
        node = entry.body["node"]
        points = [Point(node, "value", each.time_ns, each.value) for each in readings_of(entry)]
        return await self._noted(entry, partial(agent.publish_frame, node, points))

    async def _single(self, client: Client, entry: Entry, more: dict[str, str]) -> None:
        [reading] = readings_of(entry)
        body = json.dumps({"value": reading.value, "time": reading.time_ns, **more}).encode()
        await self._noted(entry, partial(_ask, client, f"app.{reading.node}.value", body))

    def _entry(self, node: str, many: int, *, timed: bool = True) -> Entry:
        first, self._next = self._next, self._next + many
        # Whole milliseconds, none in the future.
        time_ns = (self._now_ns() // 1_000_000 - many) * 1_000_000 if timed else 0
        body = {"node": node, "time_ns": time_ns, "first": first, "many": many}
        return Entry("readings", self._device, 0, body)

    async def _noted(self, entry: Entry, ask: Callable[[], Coroutine[None, None, object]]) -> bool:
        return await noted(self._diary, entry, ask)

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.random() * self._pause_s)


async def noted(
    diary: Diary, entry: Entry, ask: Callable[[], Coroutine[None, None, object]]
) -> bool:
    """Ask for something and note what was answered; return whether it was kept.

    What gets no answer stays unknown.
    """
    number = await diary.asked(entry.what, entry.device, **entry.body)
    try:
        await ask()
    except (RefusedError, NoAgentError, NoRespondersError):
        # An agent said no, or the leaf that no agent is there: it might be published again.
        await diary.answered(number, "refused")
        return False
    except (AgentError, NatsError, OSError):
        return False
    await diary.answered(number, "kept")
    return True


async def unnoted(ask: Callable[[], Coroutine[None, None, object]]) -> None:
    """Ask for something of which no more is promised than that both ends agree on it."""
    try:
        await ask()
    except (AgentError, NatsError, OSError):
        return


async def quiet(_: Exception) -> None:
    """Say nothing: that a server is gone now and then is what this is about."""


async def _ask(client: Client, subject: str, body: bytes) -> None:
    answer = json.loads((await client.request(subject, body, timeout=WAIT_S)).data)
    if error := answer.get("error"):
        raise RefusedError(error["code"], error["message"])
    assert answer == {"kept": 1}
