"""Programs on a vehicle that publish without rest, and what they were told became of each point."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_agent.client import Agent, connect
from backhaul_agent.errors import AgentError, NoAgentError, RefusedError
from backhaul_codec import Point
from demo import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.aio.client import Client

WAIT_S = 1.5
PAUSE_S = 0.2  # the longest between two batches of one program


class Reading(NamedTuple):
    """A point as the test knows it: no two that are published are equal."""

    device: str
    node: str
    time_ns: int
    value: float


@dataclass(slots=True)
class Word:
    """What became of the readings, as far as those who published them were told."""

    kept: set[Reading] = field(default_factory=set)
    refused: set[Reading] = field(default_factory=set)
    """The agent said no, or the leaf that no agent is there: they might be published again."""
    unknown: set[Reading] = field(default_factory=set)


class Publishers:
    """Programs of one vehicle.

    Whoever gets no answer does not try again, so no reading may ever be there twice.
    """

    def __init__(self, device: str, url: str, seed: int, word: Word) -> None:
        self._device = device
        self._url = url
        self._random = Random(f"{seed} {device}")
        self._word = word
        self._numbers = count(1)

    async def run(self, stop: asyncio.Event) -> None:
        """Publish batches large and small, single JSON points and live points until `stop`."""
        async with asyncio.TaskGroup() as group:
            for program in (
                self._batches(),
                self._small_batches(),
                self._json("gps"),
                self._json("cargo", lane="live"),
            ):
                group.create_task(_until(stop, program))

    async def _batches(self) -> None:
        """Publish frames that pass through as they are, several at once."""
        async with connect(self._url) as connected:
            agent = Agent(connected.nats, WAIT_S, connected.clock)
            while True:
                frames = []
                for _ in range(self._random.randint(1, 3)):
                    readings = self._readings("imu", self._random.randint(130, 250))
                    frame = partial(agent.publish_frame, "imu", _points(readings))
                    frames.append(self._noted(readings, frame))
                await asyncio.gather(*frames)
                await self._pause()

    async def _small_batches(self) -> None:
        """Publish frames that are taken apart and packed anew with others, on two nodes."""
        async with connect(self._url) as connected:
            agent = Agent(connected.nats, WAIT_S, connected.clock)
            while True:
                node = self._random.choice(["battery", "cabin"])
                readings = self._readings(node, self._random.randint(1, 120))
                frame = partial(agent.publish_frame, node, _points(readings))
                await self._noted(readings, frame)
                await self._pause()

    async def _json(self, node: str, **more: str) -> None:
        """Publish JSON as any NATS client would, a few at once."""
        client = await patient.connect(
            self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.2, error_cb=_quiet
        )
        try:
            while True:
                asked = []
                for reading in self._readings(node, self._random.randint(1, 4)):
                    body = {"value": reading.value, "time": reading.time_ns, **more}
                    request = partial(_ask, client, f"app.{node}.value", json.dumps(body).encode())
                    asked.append(self._noted([reading], request))
                await asyncio.gather(*asked)
                await self._pause()
        finally:
            await client.close()

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.random() * PAUSE_S)

    def _readings(self, node: str, many: int) -> list[Reading]:
        taken = [next(self._numbers) for _ in range(many)]
        return [Reading(self._device, node, each * 1_000_000, each / 8) for each in taken]

    async def _noted(
        self, readings: list[Reading], publish: Callable[[], Coroutine[None, None, int]]
    ) -> None:
        """Publish, and note what was answered; what no answer came for is unknown."""
        self._word.unknown.update(readings)
        try:
            kept = await publish()
        except (RefusedError, NoAgentError, NoRespondersError):
            self._word.refused.update(readings)
        except (AgentError, NatsError, OSError):
            return
        else:
            assert kept == len(readings)
            self._word.kept.update(readings)
        self._word.unknown.difference_update(readings)


async def _ask(client: Client, subject: str, body: bytes) -> int:
    answer = json.loads((await client.request(subject, body, timeout=WAIT_S)).data)
    if error := answer.get("error"):
        raise RefusedError(error["code"], error["message"])
    return int(answer["kept"])


def _points(readings: list[Reading]) -> list[Point]:
    return [Point(each.node, "value", each.time_ns, each.value) for each in readings]


async def _quiet(_: Exception) -> None:
    """Say nothing: that the leaf is gone now and then is what this is about."""


async def _until(stop: asyncio.Event, program: Coroutine[None, None, None]) -> None:
    """Run a program until `stop`; what is on its way then stays unknown."""
    running = asyncio.create_task(program)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    while not running.done():
        # More than once: nats-py may lose a cancellation that comes together with an answer.
        running.cancel()
        await asyncio.wait([running], timeout=1)
    # OSError: nats-py's `close` raises it where the server has just gone.
    with contextlib.suppress(asyncio.CancelledError, OSError):
        await running
