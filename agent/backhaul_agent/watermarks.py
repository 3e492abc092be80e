"""How the hub's watermarks reach the lanes: they stand in IN, one message a lane."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_agent.errors import JetStreamError
from backhaul_agent.link_config import IN_STREAM, in_stream_config, watermark_subject

if TYPE_CHECKING:
    from backhaul_agent.config import Config
    from backhaul_agent.jetstream import JetStream
    from backhaul_agent.lane import Lane

POLL_S = 1.0  # while the hub owes confirmations
POLL_S_IDLE = 5.0
log = structlog.get_logger("watermarks")


class Watermark(msgspec.Struct, frozen=True):
    """What the hub says: of this epoch, it holds every seq up to here."""

    epoch: int
    seq: int


_decode = msgspec.json.Decoder(Watermark).decode


def read_watermark(data: bytes, epoch: int) -> int:
    """Return the seq of a watermark, 0 where it speaks of another epoch.

    Raises:
        ValueError: it is no watermark.
    """
    try:
        watermark = _decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"no watermark: {error}") from error
    if watermark.seq < 0 or not 0 < watermark.epoch < 1 << 32:
        raise ValueError(f"no watermark: epoch {watermark.epoch}, seq {watermark.seq}")
    return watermark.seq if watermark.epoch == epoch else 0


class Watermarks:
    """Keeps IN set up and reads the watermarks from it.

    Polling a local stream once a second costs nothing on the link, needs no consumer that a
    restarted server would forget, and is the same after any kind of interruption.
    """

    def __init__(self, config: Config, epoch: int, lanes: list[Lane]) -> None:
        self.garbage = 0
        self.last_error = ""
        self._config = config
        self._epoch = epoch
        self._lanes = lanes
        self._seen: dict[str, tuple[int, bytes]] = {}

    async def run(self, jetstream: JetStream) -> None:
        """Read for as long as the connection lives (the caller cancels)."""
        stream = in_stream_config(self._config)
        prepared = stream is None
        while True:
            try:
                if stream is not None and not prepared:
                    await jetstream.ensure_stream(stream)
                    prepared = True
                for lane in self._lanes:
                    await self._poll(jetstream, lane)
                self.last_error = ""
            except (JetStreamError, NatsError, OSError) as error:
                prepared = stream is None
                self._trouble(str(error) or type(error).__name__)
            owed = any(not self._confirmed(lane) for lane in self._lanes)
            await asyncio.sleep(POLL_S if owed else POLL_S_IDLE)

    async def _poll(self, jetstream: JetStream, lane: Lane) -> None:
        subject = watermark_subject(lane.name)
        message = await jetstream.message(IN_STREAM, last_by_subj=subject)
        if message is None or self._seen.get(subject) == (message.stream_seq, message.data):
            return
        self._seen[subject] = (message.stream_seq, message.data)
        try:
            if seq := read_watermark(message.data, self._epoch):
                lane.on_watermark(seq)
        except ValueError as error:
            self.garbage += 1
            log.warning("garbage where a watermark should be", subject=subject, error=str(error))

    @staticmethod
    def _confirmed(lane: Lane) -> bool:
        return lane.appender.watermark >= lane.appender.last_seq

    def _trouble(self, error: str) -> None:
        if error != self.last_error:
            log.warning("IN cannot be read", error=error)
        self.last_error = error
