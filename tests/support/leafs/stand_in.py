"""What speaks on a vehicle's leaf server in the place of its agent, and says over the link what an idle agent says.

Real: streams and durables (the agent's own configurations), messages of the real codec, appended to OUT and pushed beside
it, questions for the time with a report and the word on pushed lanes, IN that is sourced with a link and sleeps later.
Stood in for: there is no ledger; nothing is asked for again, and no window is measured. It looks for the link at its server once
for all vehicles, and takes a lane for calm after three seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_agent.errors import JetStreamError
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.leaf.link_state import LOOK_DOWN_S, LOOK_S
from backhaul_agent.leaf.streams import (
    in_stream_config,
    out_consumer_config,
    out_stream,
    out_stream_config,
)
from backhaul_agent.push.in_sleep import HEARD_S_MAX, LISTENED_S
from backhaul_agent.push.in_sleep import SETTLED_S as IN_SETTLED_S
from backhaul_agent.push.policy import SETTLED_S
from backhaul_agent.time_sync.exchange import PAUSES_S, ROUTINE_PAUSES_S, WANTED
from backhaul_codec.kinds import BULK, LIVE, SHARED_LANES
from backhaul_codec.protocol.push import beside_subject, push_subject
from backhaul_codec.protocol.vehicle_report import VehicleReport
from backhaul_hub.simulated.lanes import Lanes
from backhaul_hub.simulated.vehicle import Vehicle as Readings
from tests.support.rig.patient import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from backhaul_hub.simulated.lanes import Sourced
    from backhaul_runtime.clock import Clock
    from tests.support.leafs.farm import LeafFarm, LeafServer, Vehicle
    from tests.support.rig.patient import PatientClient

STREAM_BYTES_MAX = 4 << 20
CLOCK_S, MARK_S = 900.0, 3600.0
"""How often an idle agent asks for the time, and leaves a mark."""
_NODE, _STEP_NS = "battery", 1_000_000_000
_REPORT = VehicleReport("0" * 32, "1" * 32, "2" * 32, "1.0.0", 1, 40, (), None, (1, 2, 3, 4, 5))
_AT_ONCE = 20
_TRIES = 50


class StandIn:
    """Speaks for one vehicle.

    Args:
        vehicle: which.
        server: its leaf server.
        clock: stamps what it says.
        phase: at which part of their times it asks and marks, 0 to 1.
        rests: whether its lanes are pushed once they are calm; else they are sourced for ever.
    """

    def __init__(
        self, vehicle: Vehicle, server: LeafServer, clock: Clock, phase: float, *, rests: bool
    ) -> None:
        self.vehicle = vehicle
        self.settled = False
        """Whether its lanes are pushed, and IN sleeps: it is idle."""
        self._epoch = clock.now_ns() // _STEP_NS
        self.lanes = Lanes(Readings(vehicle.id, 1), self._epoch, bundles=True)
        self._server = server
        self._clock = clock
        self._phase = phase
        self._rests = rests
        self._client: PatientClient | None = None
        self._asleep: set[str] = set()
        self._word: dict[str, int] = {}
        self._wanted, self._untold, self._asks_end = WANTED, False, False
        self._news, self._answered = asyncio.Event(), asyncio.Event()
        self._downs: dict[str, int] | None = None
        self._listening: Subscription | None = None

    @property
    def pushed(self) -> bool:
        """Whether the hub sources no lane of it."""
        return bool(self._word) and self._asleep == set(self._word)

    @property
    def client(self) -> PatientClient:
        """The connection to its account at the leaf server."""
        assert self._client is not None
        return self._client

    @property
    def _jetstream(self) -> JetStream:
        return JetStream(self._request)

    async def _request(self, subject: str, body: bytes) -> bytes:
        """Ask the leaf server; while it reads its configuration again nobody is there for a moment."""
        for _ in range(_TRIES):
            with contextlib.suppress(NoRespondersError):
                return (await self.client.request(subject, body)).data
            await asyncio.sleep(LOOK_DOWN_S)
        return (await self.client.request(subject, body)).data

    async def start(self) -> None:
        """Connect, and make its streams and durables as an agent does at its start."""
        self._client = await connect(
            self._server.url, nkeys_seed_str=self.vehicle.agent_seed, max_reconnect_attempts=-1
        )
        config = self.vehicle.config
        for lane in SHARED_LANES:
            stream = out_stream_config(config, lane) | {"max_bytes": STREAM_BYTES_MAX}
            await self._jetstream.ensure_stream(stream)
            await self._jetstream.ensure_consumer(
                out_stream(lane), out_consumer_config(config, lane)
            )
        await self._put_in(sourced=False)
        device = config.device
        await self.client.subscribe(f"clkr.{device.id}.{device.token}", cb=self._on_answer)

    async def stop(self) -> None:
        """Close its connection."""
        if self._client is not None:
            await self._client.close()

    async def run(self, linked: asyncio.Event) -> None:
        """Do what an agent does once its link is up, then what it does idle; the caller cancels with the link."""
        await linked.wait()
        self.settled = False
        self._asleep, self._word, self._downs = set(), {}, None
        self._wanted, self._asks_end = WANTED, False
        self._answered.clear()
        await self._stop_listening()
        await self._put_in(sourced=True)
        now_ns = self._clock.now_ns()
        said = [self.lanes.link_up(now_ns), *self.lanes.frame(_NODE, now_ns, _STEP_NS, 1)]
        for message in said:
            # The first words of `live` go beside as well.
            await self.append(message, pushed=message.lane == LIVE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_asking())
            if self._rests:
                tasks.create_task(self._rest())
            tasks.create_task(self._keep_marking())

    async def _rest(self) -> None:
        """Have the lanes pushed once they are calm, and IN sleep."""
        await self._answered.wait()
        await asyncio.sleep(SETTLED_S)
        self._word = {LIVE: self.lanes.live_seq, BULK: self.lanes.bulk_seq}
        while not self.pushed:
            self._tell()
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(IN_SETTLED_S - SETTLED_S)
        device = self.vehicle.config.device
        subject = beside_subject(device.id, device.token, ">")
        self._listening = await self.client.subscribe(subject, cb=_ignore)
        await asyncio.sleep(LISTENED_S)
        self._asks_end = True
        while self._downs is None:
            self._tell()
            await asyncio.sleep(LOOK_S)
        while True:
            await asyncio.sleep(LOOK_S)
            if await self._in_works():
                break
        await self._put_in(sourced=False)
        self.settled = True

    async def _in_works(self) -> bool:
        [source] = (await self._jetstream.info("IN"))["sources"]
        return bool(0 <= source["active"] < HEARD_S_MAX * 1e9 and source["lag"] == 0)

    async def _keep_marking(self) -> None:
        # Spread over the whole of the time, as those of a fleet are that did not start together.
        await asyncio.sleep(self._phase * MARK_S)
        while True:
            await self.append(self.lanes.link_up(self._clock.now_ns()), pushed=True)
            await asyncio.sleep(MARK_S)

    async def _keep_asking(self) -> None:
        """Ask for the time as `Exchange` does."""
        idle_s, pauses = self._phase * CLOCK_S, iter(PAUSES_S)
        while True:
            while self._wanted > 0 or self._untold:
                self._news.clear()
                await self._ask()
                if await self._pause(next(pauses, PAUSES_S[-1])):
                    pauses = iter(PAUSES_S)
            told = await self._pause(idle_s)
            idle_s, pauses = CLOCK_S, iter(PAUSES_S if told else ROUTINE_PAUSES_S)
            self._wanted = 1

    async def _ask(self) -> None:
        push = {"epoch": self._epoch, "lanes": self._word, "terse": True}
        question = {
            "t1": self._clock.now_ns(),
            "push": push | {"in": True} if self._asks_end else push,
            "vehicle": _REPORT,
        }
        await self.client.publish(f"clk.{self.vehicle.id}", msgspec.json.encode(question))

    async def _pause(self, pause_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._news.wait()
                return True
        return False

    def _tell(self) -> None:
        self._untold = True
        self._news.set()

    async def reading(self) -> None:
        """Say a reading, in a bundle: appended, and pushed where its lane is."""
        for message in self.lanes.frame(_NODE, self._clock.now_ns(), _STEP_NS, 1):
            await self.append(message, pushed=message.lane in self._asleep)

    async def append(self, message: Sourced, *, pushed: bool) -> None:
        """Put a message into OUT, and say it beside."""
        await self._request(message.leaf_subject, message.body)
        if pushed:
            device = self.vehicle.config.device
            subject = push_subject(device.id, device.token, message.leaf_subject)
            await self.client.publish(subject, message.body)

    async def fill(self, messages: int) -> None:
        """Put a backlog of telemetry into OUT, at once."""
        for _ in range(messages):
            for message in self.lanes.frame(_NODE, self._clock.now_ns(), _STEP_NS, 1):
                await self.client.publish(message.leaf_subject, message.body)
        await self.client.flush()

    async def tend(self) -> None:
        """Have the durables that nobody reads begin after what the hub has confirmed, as the agent does each five seconds."""
        for lane in self._asleep:
            stream = out_stream(lane)
            last = (await self._jetstream.info(stream))["state"]["last_seq"]
            durable = f"{stream}.{self.vehicle.config.device.token}"
            await self._jetstream.request(f"CONSUMER.RESET.{durable}", {"seq": last + 1})

    async def _on_answer(self, message: Msg) -> None:
        answer = msgspec.json.decode(message.data)
        self._wanted, self._untold = self._wanted - 1, False
        self._answered.set()
        self._asleep = set(answer.get("push") or ())
        self._downs = answer.get("downs", self._downs)

    async def _put_in(self, *, sourced: bool) -> None:
        config = in_stream_config(self.vehicle.config)
        assert config is not None
        await self._jetstream.ensure_stream(config if sourced else config | {"sources": []})

    async def _stop_listening(self) -> None:
        if (listening := self._listening) is not None:
            self._listening = None
            await listening.unsubscribe()


async def _ignore(_: Msg) -> None:
    """Watermarks and other words beside: an agent keeps its ledger by them."""


class StandIns:
    """Speaks for all vehicles of a farm."""

    def __init__(self, farm: LeafFarm, clock: Clock, *, rest: bool) -> None:
        self._farm = farm
        count = len(farm.vehicles)
        self.all = [
            StandIn(vehicle, server, clock, number / count, rests=rest)
            for number, (vehicle, server) in enumerate(
                (vehicle, server) for server in farm.servers for vehicle in server.vehicles
            )
        ]
        self.up_s: dict[str, float] = {}
        """Of each vehicle whose link is up: since when, by the loop's clock."""
        self.links: dict[str, tuple[int, int]] = {}
        """Of each: its number at the leaf server, and the port of the hub's server that it leads to."""
        self.look_s = LOOK_S
        """How often it is looked for links, all of which are up."""
        self.broken: list[BaseException] = []
        self._linked = {each.vehicle.id: asyncio.Event() for each in self.all}
        self._speaking: dict[str, asyncio.Task[None]] = {}

    @property
    def settled(self) -> int:
        """How many are idle."""
        return sum(each.settled for each in self.all)

    async def start(self) -> None:
        """Make all their streams."""
        few = asyncio.Semaphore(_AT_ONCE)

        async def one(each: StandIn) -> None:
            async with few:
                await each.start()

        await asyncio.gather(*map(one, self.all))

    async def stop(self) -> None:
        """Be silent, and close all connections."""
        for task in self._speaking.values():
            task.cancel()
        await asyncio.gather(*self._speaking.values(), return_exceptions=True)
        await asyncio.gather(*(each.stop() for each in self.all))

    async def watch(self) -> None:
        """See whose links are up, and have them speak; for ever (the caller cancels)."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            up = await self._farm.linked()
            now_s = loop.time()
            # One that is another before anybody missed it has not been away, for an agent.
            self.up_s |= dict.fromkeys(
                (id_ for id_ in self.up_s.keys() & up if self.links[id_] != up[id_]), now_s
            )
            self.links = up
            for each in self.all:
                id_ = each.vehicle.id
                if id_ in up and id_ not in self.up_s:
                    self.up_s[id_] = now_s
                    self._linked[id_].set()
                    self._speaking[id_] = asyncio.create_task(self._speak(each))
                elif id_ not in up and id_ in self.up_s:
                    del self.up_s[id_]
                    self._linked[id_].clear()
                    self._speaking.pop(id_).cancel()
                    each.settled = False
            # All links of a server in one answer: it is asked for half of the time at most.
            pause_s = self.look_s if len(up) == len(self.all) else LOOK_DOWN_S
            await asyncio.sleep(max(pause_s, now_s - began_s))

    async def _speak(self, each: StandIn) -> None:
        try:
            await each.run(self._linked[each.vehicle.id])
        except* (JetStreamError, NatsError, TimeoutError) as error:
            self.broken.extend(error.exceptions)


@asynccontextmanager
async def speaking(farm: LeafFarm, clock: Clock, *, rest: bool = True) -> AsyncIterator[StandIns]:
    """Have all vehicles of a farm speak; with `rest` false the hub sources all their lanes for as long as it runs."""
    stand_ins = StandIns(farm, clock, rest=rest)
    try:
        await stand_ins.start()
        watching = asyncio.create_task(stand_ins.watch())
        try:
            yield stand_ins
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    finally:
        await stand_ins.stop()
