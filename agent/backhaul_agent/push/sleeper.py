"""Having IN sleep while the hub speaks beside it: the shell around `in_sleep.InSleep`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.errors import JetStreamError
from backhaul_agent.leaf.streams import in_stream_config
from backhaul_agent.push.in_sleep import InSleep, SleepPhase, SleepStep
from backhaul_codec.protocol.push import beside_subject, is_passing, told
from backhaul_runtime.jetstream import StreamMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from backhaul_agent.config import Config
    from backhaul_agent.downlink.downlink import Downlink
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.leaf.link_state import UplinkState
    from backhaul_codec.kinds import Lane
    from backhaul_runtime.clock import Clock

LOOK_S = 1.0
CHECK_LOOKS = 10
"""Each so many looks it is seen whether IN is what it is thought to be: others may have changed it."""
WAITING_MAX = 256
"""Messages that wait to be taken in; what comes beside those comes by IN."""
log = structlog.get_logger("push")


class Sleeper:
    """Knows whether IN sleeps; lives as long as the daemon.

    Args:
        enabled: whether it ever does (`Pusher.enabled`).
        tell: has the hub asked now; it reads `asks`.
        own: the lanes of the nodes that have streams of their own.
        in_doubt: counts what gives reason to think that a word beside was lost.
    """

    def __init__(
        self,
        config: Config,
        downlink: Downlink,
        uplink: UplinkState,
        clock: Clock,
        tell: Callable[[], None],
        own: Collection[Lane],
        in_doubt: Callable[[], int],
        *,
        enabled: bool,
    ) -> None:
        self.sleep = InSleep()
        configs = [in_stream_config(config, lane) for lane in ("", *own)]
        self._configs = [each for each in configs if each is not None]
        self._enabled = enabled and bool(self._configs)
        device = config.device
        self._subject = beside_subject(device.id, device.token, ">")
        self._downlink = downlink
        self._uplink = uplink
        self._clock = clock
        self._tell = tell
        self._in_doubt = in_doubt
        self._due = asyncio.Event()
        self._waiting: list[StreamMessage] = []
        self._came = asyncio.Event()
        self._listening: Subscription | None = None
        if self._enabled:
            uplink.on_look.append(self._on_look)
            uplink.on_up.append(self._on_up)

    def status(self) -> dict[str, Any]:
        """Return the part of ``agent.status`` about the link."""
        asleep = self.sleep.phase is SleepPhase.ASLEEP
        return {"in_asleep": asleep, "in_wakes": self.sleep.wakes} if self._enabled else {}

    async def run(self, client: Client, jetstream: JetStream) -> None:
        """Look about once a second, for as long as this connection lives (the caller cancels)."""
        if not self._enabled:
            return
        self._listening = None
        self._waiting.clear()
        self.sleep.begin_anew()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take_in())
            group.create_task(self._look(client, jetstream))

    async def _look(self, client: Client, jetstream: JetStream) -> None:
        looks = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._due.wait()
            self._due.clear()
            looks += 1
            try:
                if self._uplink.up:
                    await self._step(jetstream, check=looks % CHECK_LOOKS == 0)
                await self._listen(client)
            except (JetStreamError, NatsError, TimeoutError) as error:
                log.info("in_not_seen_to", error=str(error) or repr(error))

    async def _step(self, jetstream: JetStream, *, check: bool) -> None:
        sleep, downlink = self.sleep, self._downlink
        step = sleep.step(
            self._clock.monotonic_s(), downlink.news, self._in_doubt(), downlink.hub_seqs
        )
        if step is SleepStep.WAKE:
            await self._put(jetstream, sourced=True)
            sleep.woken(self._clock.monotonic_s())
        elif step is SleepStep.ASK:
            self._tell()
        elif step is SleepStep.LOOK:
            sources = [(each.get("sources") or [{}])[0] for each in await self._infos(jetstream)]
            active = [each.get("active", -1) for each in sources]
            heard_s = -1.0 if min(active) < 0 else max(active) / 1e9
            if sleep.looked(heard_s, max(each.get("lag", 0) for each in sources)):
                await self._fall_asleep(jetstream)
        elif check and sleep.phase is SleepPhase.ASLEEP:
            infos = await self._infos(jetstream)
            if any(info["config"].get("sources") for info in infos):
                sleep.begin_anew()

    async def _infos(self, jetstream: JetStream) -> list[dict[str, Any]]:
        return [await jetstream.request(f"STREAM.INFO.{each['name']}") for each in self._configs]

    async def _fall_asleep(self, jetstream: JetStream) -> None:
        try:
            await self._put(jetstream, sourced=False)
        except (JetStreamError, NatsError, TimeoutError):
            self.sleep.begin_anew()  # nobody knows whether the server has done it
            raise
        self.sleep.slept(self._clock.monotonic_s())
        log.info("in_sleeps")

    async def _put(self, jetstream: JetStream, *, sourced: bool) -> None:
        changed = False
        for config in self._configs:
            changed |= await jetstream.ensure_stream(
                config if sourced else config | {"sources": []}
            )
        if changed and sourced:
            log.info("in_sourced")

    async def _listen(self, client: Client) -> None:
        """Begin or cease to listen to the hub beside IN."""
        if self.sleep.listens and self._listening is None:
            self._listening = await client.subscribe(self._subject, cb=self._on_message)
        elif not self.sleep.listens and (listening := self._listening) is not None:
            self._listening = None
            await listening.unsubscribe()

    async def _on_message(self, message: Msg) -> None:
        leaf_subject = message.subject.split(".", 3)[3]
        leaf_subject, body = told(leaf_subject, message.data) or (leaf_subject, message.data)
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(StreamMessage(0, leaf_subject, body))
            self._came.set()
        if not is_passing(leaf_subject):
            self.sleep.wake(self._clock.monotonic_s())
            self._due.set()

    async def _take_in(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            messages, self._waiting = self._waiting, []
            await self._downlink.take_beside(messages)

    def _on_up(self) -> None:
        self.sleep.begin_anew()
        self._due.set()

    def _on_look(self, up: bool | None) -> None:
        if not up:
            self.sleep.begin_anew()
