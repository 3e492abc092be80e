"""Telling devices how far the hub holds their lanes, and asking them for missing messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sized
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_hub.continuity.chain import Watermark
from backhaul_hub.continuity.former_epochs import FormerEpochs, Held, Place
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.resend_policy import RepairBook
from backhaul_hub.device import DeviceLink
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.uplink.standing_requests import StandingRequest
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_ASK_INTERVAL_S = 0.5


@dataclass(eq=False)
class WatermarkNotifier:
    """Writes `s.watermark`, `s.held` and `s.resend` of every lane to DOWN.

    Args:
        devices: the ids of the devices that may be written to.
        settled: whether all that UP holds has been read, so that what is missing is missing.
        answerer: which machine of a device may say that something is lost (`Identities.answerer`).
        standing: reads the requests that stand in DOWN already.
    """

    _api: JetStreamApi
    _continuity: Continuity
    _clock: Clock
    _: KW_ONLY
    devices: Callable[[], Collection[str]]
    links: Mapping[str, DeviceLink]
    lags: Mapping[tuple[str, str], int]
    settled: Callable[[], bool]
    answerer: Callable[[str], str | None]
    standing: Callable[[], Awaitable[dict[Place, StandingRequest]]]

    def __post_init__(self) -> None:
        self._asked: dict[Place, StandingRequest] = {}
        """By lane: what stands in DOWN, and which machine it names."""
        self._repair = RepairBook(self._continuity)
        self._told: dict[LaneKey, Watermark] = {}
        self._former = FormerEpochs(self._continuity)
        # Of whom a watermark may be untold, and of whom a word on former epochs: nobody else is looked at.
        self._due: dict[str, None] = {}
        self._due_of_former: dict[str, None] = {}
        self._known: Collection[str] = ()
        self._was_settled = False
        self._up: dict[str, tuple[int, float]] = {}
        self._hurried: set[str] = set()
        self._hurry = asyncio.Event()

    def forget(self) -> None:
        """Tell everything again: DOWN was made anew."""
        self._told.clear()
        self._former.forget()
        self._known = ()

    def tell_again(self, device: str) -> None:
        """Tell a device again how far its lanes are held: it may not have got that."""
        for lane, (epoch, _) in self._continuity.current(device).items():
            self._told.pop(LaneKey(device, lane, epoch), None)
        self._former.tell_again(device)
        self._due[device] = self._due_of_former[device] = None

    async def tell_watermarks(self, interval_s: float) -> None:
        """Tell every device how far the hub holds each lane, whenever that has changed; for ever."""
        # Not at each interval while it lasts.
        trouble = Trouble(log, "watermark_not_told", HubError, NatsError, wait_s=0.0)
        while True:
            async with trouble:
                await self._tell(self._untold())
                # Not before all is read: a watermark that only seems to sink is kept for no purpose.
                if self.settled():
                    await self._tell_former(self._untold_of_former())
            await asyncio.sleep(interval_s)

    def hurry(self, device: str) -> None:
        """Have a device told now how far its lanes are held."""
        self._hurried.add(device)
        self._hurry.set()

    async def tell_hurried(self) -> None:
        """Tell devices that wait for a watermark, each as soon as `hurry` says so; for ever."""
        trouble = Trouble(log, "watermark_not_told", HubError, NatsError, wait_s=0.0)
        while True:
            await self._hurry.wait()
            self._hurry.clear()
            hurried, self._hurried = self._hurried, set()
            async with trouble:
                await self._tell(self._untold(hurried))

    async def _tell(self, untold: Mapping[LaneKey, Watermark]) -> None:
        words = [
            (
                f"in.{key.device}.s.watermark.{key.lane}",
                msgspec.json.encode({"epoch": key.epoch, **watermark.words()}),
            )
            for key, watermark in untold.items()
        ]
        # Before it is told: what is to be told again meanwhile is not told by this.
        before = {key: self._told.get(key) for key in untold}
        self._told |= untold
        left = deque(untold)
        try:
            await self._api.publish_all(words, taken=partial(_take_out, left))
        except (HubError, NatsError):
            for key in left:
                was = before[key]
                if self._told.pop(key, None) is not None and was is not None:
                    self._told[key] = was
                self._due[key.device] = None
            raise

    async def _tell_former(self, untold: Mapping[Place, Held]) -> None:
        words = []
        for (device, lane), held in untold.items():
            self._former.told((device, lane), held)
            epochs = {epoch: each.row() for epoch, each in held.items()}
            words.append((f"in.{device}.s.held.{lane}", msgspec.json.encode({"epochs": epochs})))
        left = deque(untold)
        try:
            await self._api.publish_all(words, taken=partial(_take_out, left))
        except (HubError, NatsError):
            for place in left:
                self._former.not_told(place)
                self._due_of_former[place[0]] = None
            raise

    async def ask_for_gaps(self) -> None:
        """Ask connected devices for the missing messages of their lanes; for ever."""
        await self._look_what_stands()
        while True:
            known = self.devices()
            for (device, lane), request in list(self._asked.items()):
                if device in known and self.answerer(device) != request.machine:
                    # Whoever comes next reads it: it must not name a machine that may not say so now.
                    await self._ask(device, lane, request.epoch, request.ranges)
            if self.settled():
                now_s = self._clock.monotonic_s()
                up_since = partial(self._up_since, now_s)
                for device, lane, ask in self._repair.asks(up_since, self.lags, now_s):
                    # What is not told now is due again by and by.
                    await self._ask(device, lane, ask.epoch, ask.ranges)
            await asyncio.sleep(_ASK_INTERVAL_S)

    async def _look_what_stands(self) -> None:
        trouble = Trouble(log, "requests_not_read", HubError, NatsError)
        known = False
        while not known:
            async with trouble:
                self._asked = await self.standing() | self._asked
                known = True

    async def _ask(
        self, device: str, lane: str, epoch: int, ranges: tuple[tuple[int, int], ...]
    ) -> None:
        id_, machine = f"{self._clock.now_ns():x}", self.answerer(device)
        named = {} if machine is None else {"machine": machine}
        body = msgspec.json.encode({"epoch": epoch, "ranges": ranges, "id": id_, **named})
        try:
            await self._api.publish(f"in.{device}.s.resend.{lane}", body)
            if ranges:
                self._asked[device, lane] = StandingRequest(epoch, ranges, machine)
            else:
                self._asked.pop((device, lane), None)
        except (HubError, NatsError) as error:
            log.warning("resend_not_asked", device=device, lane=lane, error=str(error))
            return
        messages = sum(high - low + 1 for low, high in ranges)
        log.info(
            "resend_asked",
            device=device,
            lane=lane,
            epoch=epoch,
            ranges=len(ranges),
            messages=messages,
            lowest=ranges[0][0] if ranges else None,
        )

    def _untold(self, only: Collection[str] | None = None) -> dict[LaneKey, Watermark]:
        untold: dict[LaneKey, Watermark] = {}
        known, settled = self._look()
        due = [device for device in self._due if only is None or device in only]
        for device in due:
            del self._due[device]
            if device not in known:  # looked at again once it is
                continue
            for key in self._continuity.current_keys(device):
                watermark = self._continuity.told_of(key)
                told = self._told.get(key)
                # What sinks while a stretch of UP is read again may only seem to. What was told before
                # a restart is not known after it: 0, where nothing is left of a lane, is told too.
                if watermark.seq > (told.seq if told else 0) or (watermark != told and settled):
                    untold[key] = watermark
        return untold

    def _untold_of_former(self) -> dict[Place, Held]:
        known, _ = self._look()
        due, self._due_of_former = self._due_of_former, {}
        return self._former.untold(device for device in due if device in known)

    def _look(self) -> tuple[Collection[str], bool]:
        """Note who is due; return the devices, and whether all that UP holds has been read."""
        known, settled = self.devices(), self.settled()
        moved: Iterable[str] = self._continuity.take_moved()
        if settled != self._was_settled:
            moved = known
        before, self._known, self._was_settled = self._known, known, settled
        for device in moved:
            self._due[device] = self._due_of_former[device] = None
        if known is not before:  # which costs as much as there are devices
            for device in known:
                if device not in before:
                    self._due[device] = self._due_of_former[device] = None
        return known, settled

    def _up_since(self, now_s: float, device: str) -> float | None:
        """Return since when a device is connected, the same number for the same link; None where it is not."""
        link = self.links.get(device)
        if link is None or not link.up or device not in self.devices():
            return None
        since_ns, since_s = self._up.get(device, (0, 0.0))
        if since_ns != link.since_ns:
            since_s = now_s - (self._clock.now_ns() - link.since_ns) / 1e9
            self._up[device] = (link.since_ns, since_s)
        return since_s


def _take_out(left: deque[Any], taken: Sized) -> None:
    """Take out the first, as many as were taken."""
    for _ in range(len(taken)):
        left.popleft()
