"""Keeps the lanes' windows right: the shell around `leaf.link_window.LinkWindow`, all of it on the leaf."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.errors import JetStreamError
from backhaul_agent.leaf.link_window import LinkSample
from backhaul_agent.leaf.streams import out_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.config import Config
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.leaf.link_window import LinkWindow
    from backhaul_runtime.clock import Clock

BUSY_LOOK_S, IDLE_LOOK_S = 0.25, 2.0
LANES_A_LOOK = 8  # where there are more, the leaf server is asked less often
log = structlog.get_logger("flow")


class Flow:
    """Looks at the durables and sets their `max_ack_pending`."""

    def __init__(self, window: LinkWindow, config: Config, clock: Clock) -> None:
        self.window = window
        self.updates = 0
        self.on_rate: list[Callable[[float], None]] = []  # told of each measurement, bytes/s
        self.on_ahead: dict[str, Callable[[int], None]] = {}  # by lane: see `_look_ahead`
        self.unread: Callable[[str], bool] = lambda _: False
        """Says of a lane whether nobody reads its durable, which then says nothing about the link."""
        self._ahead: dict[str, int] = {}
        self._durable = config.device.token
        self._clock = clock

    async def run(self, jetstream: JetStream) -> None:
        """Look for as long as this connection lives (the caller cancels).

        A durable that is not there (yet) is the lane's to make, and is looked for again.
        """
        while True:
            for lane in self.window.lanes():
                if self.unread(lane):
                    continue
                try:
                    await self._look(jetstream, lane)
                except (JetStreamError, NatsError, TimeoutError) as error:
                    log.debug("durable_not_seen", lane=lane, error=repr(error))
            lanes = list(self.window.lanes())
            pause_s = BUSY_LOOK_S if any(map(self.window.busy, lanes)) else IDLE_LOOK_S
            await asyncio.sleep(pause_s * max(1.0, len(lanes) / LANES_A_LOOK))

    async def _look(self, jetstream: JetStream, lane: str) -> None:
        stream = out_stream(lane)
        info = await jetstream.request(f"CONSUMER.INFO.{stream}.{self._durable}")
        _, state = await jetstream.created_and_state(stream)
        self._look_ahead(lane, int(info["delivered"]["stream_seq"]), int(state["last_seq"]))
        before = self.window.rate_bytes_s
        window = self.window.sample(lane, sample(info, state, self._clock.monotonic_s()))
        if self.window.rate_bytes_s is not None and self.window.rate_bytes_s != before:
            for tell in self.on_rate:
                tell(self.window.rate_bytes_s)
        if info["config"]["max_ack_pending"] == window:
            return
        config = info["config"] | {"max_ack_pending": window}
        await jetstream.set_consumer(stream, config, "update")
        self.updates += 1
        log.info(
            "window", lane=lane, messages=window, before=info["config"]["max_ack_pending"],
            rate_kbit_s=rate_kbit_s(self.window),
        )  # fmt: skip

    def _look_ahead(self, lane: str, delivered: int, last_seq: int) -> None:
        """Tell the lane of a durable that is beyond its stream, twice in a row.

        A reset that the hub's server sent for the stream before this one, wiped since, leaves the
        new durable at the old one's position: it delivers nothing, and reports lag 0, until the
        stream has come as far (random faults, seed 3).
        """
        ahead = delivered if delivered > last_seq else 0
        if ahead and self._ahead.get(lane) == ahead and lane in self.on_ahead:
            self.on_ahead[lane](ahead)
            ahead = 0
        self._ahead[lane] = ahead

    def status(self) -> dict[str, Any]:
        """Return the part of ``agent.status`` with the link's capacity."""
        return {
            "rate_kbit_s": rate_kbit_s(self.window),
            "windows": {lane: self.window.window(lane) for lane in self.window.lanes()},
            "window_updates": self.updates,
        }


def sample(info: dict[str, Any], state: dict[str, Any], now_s: float) -> LinkSample:
    """Return the sample in the server's answers about a durable and its stream."""
    messages = int(state["messages"])
    return LinkSample(
        now_s,
        acked=int(info["ack_floor"]["stream_seq"]),
        under_way=int(info["num_ack_pending"]),
        waiting=int(info["num_pending"]),
        message_bytes=int(state["bytes"]) / messages if messages else 0.0,
    )


def rate_kbit_s(window: LinkWindow) -> float | None:
    """Return the link's measured capacity, None before it was measured."""
    return None if window.rate_bytes_s is None else round(window.rate_bytes_s * 8 / 1000, 1)
