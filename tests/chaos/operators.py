"""People at the hub who write configuration and send commands, and note what they were told."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from backhaul_agent.errors import RefusedError
from tests.chaos.diary import Entry
from tests.chaos.publishers import SERIES, SHARED, WAIT_S, noted, quiet, unnoted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.aio.client import Client

    from tests.chaos.diary import Diary
    from tests.support.rig.parts import HubRig

LONGEST_S = 24 * 3600.0
"""No run is longer."""
DEADLINE_S = LONGEST_S + 600.0
"""Not over when a run is judged: what the vehicle never hears of has no end by then."""
SHORT_DEADLINE_S = 2.0


class Operators:
    """Whoever looks after one vehicle. Arguments as of `Publishers`."""

    def __init__(
        self, device: str, hub: HubRig, seed: int, diary: Diary, *, pause_s: float
    ) -> None:
        self._device = device
        self._hub = hub
        self._random = Random(f"{seed} operators of {device}")
        self._seed = seed
        self._diary = diary
        self._pause_s = pause_s
        self._writes = count(1)
        self._sent = count(1)

    def programs(self) -> list[Coroutine[None, None, None]]:
        """Return what they do, each to be run until it is cancelled."""
        return [self._config(), self._commands()]

    async def _config(self) -> None:
        client = await self._connect()
        try:
            for number in self._writes:
                await self._write(client, number)
                await self._pause()
                await unnoted(partial(self._set, client, SHARED, -number))
        finally:
            await client.close()

    async def _commands(self) -> None:
        """Send commands, some to handlers that may be run again, some with little time."""
        client = await self._connect()
        try:
            while True:
                name = self._random.choice(["once", "once", "safe"])
                deadline_s = self._random.choice([DEADLINE_S, DEADLINE_S, SHORT_DEADLINE_S])
                await self._command(client, name, deadline_s)
                await self._pause()
        finally:
            await client.close()

    def go_on(self) -> list[Callable[[], Coroutine[None, None, bool]]]:
        """Return one try each to write configuration and to send a command: whether it was kept."""
        return [
            partial(self._alone, lambda client: self._write(client, next(self._writes))),
            partial(self._alone, lambda client: self._command(client, "once", DEADLINE_S)),
        ]

    async def _alone(self, ask: Callable[[Client], Coroutine[None, None, bool]]) -> bool:
        try:
            async with self._hub.connection() as client:
                return await ask(client)
        except (NatsError, OSError):
            return False

    async def _write(self, client: Client, number: int) -> bool:
        node = f"hub{number % SERIES}"
        entry = Entry("config", self._device, 0, {"node": node, "value": float(number)})
        return await noted(self._diary, entry, partial(self._set, client, node, number))

    async def _command(self, client: Client, name: str, deadline_s: float) -> bool:
        id_ = f"s{self._seed}-{self._device}-{next(self._sent)}"
        send = partial(self._send, client, name, {"id": id_, "deadline_s": deadline_s})
        return await noted(self._diary, Entry("command", self._device, 0, {"id": id_}), send)

    async def _set(self, client: Client, node: str, number: int) -> None:
        points = [{"type": "number", "value": float(number)}]
        question = {"device": self._device, "node": node, "points": points}
        message = await client.request("hub.set", json.dumps(question).encode(), timeout=WAIT_S)
        if error := json.loads(message.data).get("error"):
            raise RefusedError("hub", str(error))

    async def _send(self, client: Client, name: str, body: dict[str, Any]) -> None:
        subject = f"fleet.prod.veh.{self._device}.cmd.{name}"
        await client.jetstream(timeout=WAIT_S).publish(subject, json.dumps(body).encode())

    async def _connect(self) -> Client:
        return await self._hub.connect(
            max_reconnect_attempts=-1, reconnect_time_wait=0.2, error_cb=quiet
        )

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.random() * self._pause_s)
