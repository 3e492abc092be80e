"""Keeping TWIN_SHADOW: taking in desired values, and writing the hub's documents.

`desired` may be written by any client of the bucket at any time, also while the control plane is
down. So the last revision of each device is read at every start, and whenever the reading had to
begin anew; what was taken before is known by what it asks for, and changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.config import Twin
from backhaul_hub.db.store import Registry
from backhaul_hub.db.write_turn import WriteTurn
from backhaul_hub.errors import HubError, JetStreamError, WriteRefusedError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.shadow.core import Desired, Document, Shadows
from backhaul_hub.shadow.document import DESIRED, shadow_key, version_of
from backhaul_hub.streams.twin_streams import SHADOW, SHADOW_BUCKET
from backhaul_hub.sync.core import Announcement, HubSync
from backhaul_runtime.clock import Clock
from backhaul_runtime.jetstream import WRONG_LAST_SEQUENCE
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

WHO_HEADER = "Backhaul-Who"
"""Of a message that writes `desired`: stands in the points' origin as hub:<who>."""
IF_LAST_HEADER = "Nats-Expected-Last-Subject-Sequence"

_AT_ONCE = 32
_LOOK_S = 1.0
_TIMEOUT_S = 10.0


class ShadowKeeper:
    """The shell around `Shadows`.

    Args:
        devices: tells which devices there are.
        on_document: hears of each revision of a document: device, part, number, body.
        on_desired: hears of each that somebody has written: device, number, who.
    """

    def __init__(
        self,
        twin: Twin,
        clock: Clock,
        client: Client,
        api: JetStreamApi,
        core: HubSync,
        registry: Registry,
        devices: Callable[[], Collection[str]],
        on_document: Callable[[str, str, int, bytes | None], None] = lambda *_: None,
        on_desired: Callable[[str, int, str], None] = lambda *_: None,
    ) -> None:
        self._on_document = on_document
        self._on_desired = on_desired
        self.shadows = Shadows(clock, core, devices)
        self._twin = twin
        self._client = client
        self._api = api
        self._registry = registry
        self._touched: set[str] = set()
        self._lost: set[str] = set()
        """Devices whose documents the bucket has lost."""
        self._noted: set[tuple[str, str]] = set()
        """Device and part of documents of which the bucket's version is known to be in hub.db."""
        self._due = asyncio.Event()
        self._anew = False

    async def start(self) -> None:
        """Read hub.db; a shadow that is damaged there begins anew.

        Raises:
            HubError: hub.db or the bucket cannot be read.
        """
        rows = await self._registry.fetch("SELECT device, state FROM shadow")
        for device in self.shadows.restore((row[0], row[1]) for row in rows):
            log.warning("shadow_damaged", device=device)
        self._touch(self.shadows.devices())
        # Lost while nobody was there, or who wrote them again was killed at it.
        there = await self._subjects()
        for device in self.shadows.devices():
            parts = self.shadows.parts_written(device)
            if any(self._subject(device, part) not in there for part in parts):
                self._lost.add(device)

    def tell(self, announcements: Iterable[Announcement], news: Iterable[str]) -> None:
        """Take in heads that have changed, and devices of which something else is new."""
        self._touch(
            announcement.change.device
            for announcement in announcements
            if self.shadows.note(announcement.change)
        )
        self._touch(news)

    def lost(self) -> None:
        """Take in that the bucket was made anew: write everything again."""
        self._lost |= set(self.shadows.devices())
        self._touch(self._lost)
        self.look_again()

    def look_again(self) -> None:
        """Read the last `desired` of every device once more."""
        self._anew = True

    def _touch(self, devices: Iterable[str]) -> None:
        self._touched |= set(devices)
        if self._touched:
            self._due.set()

    async def publish(self) -> None:
        """Write documents until cancelled; trouble is logged once and waited out.

        What changes within `shadow_interval_s` of the last round is written together; and a large
        fleet takes no more than a fifth of the control plane's time.
        """
        trouble = Trouble(log, "shadow_not_written", HubError, NatsError, OSError)
        loop = asyncio.get_running_loop()
        while True:
            await self._due.wait()
            self._due.clear()
            devices, self._touched = sorted(self._touched), set()
            began_s = loop.time()
            for number, device in enumerate(devices):
                async with trouble:
                    await self._publish(device)
                if trouble.now:
                    self._touch(devices[number:])
                    break
                await asyncio.sleep(0)  # nobody else would get a turn where nothing is new
            await asyncio.sleep(max(self._twin.shadow_interval_s, 4 * (loop.time() - began_s)))

    async def _publish(self, device: str) -> None:
        lost = device in self._lost
        self._lost.discard(device)  # what is lost from here on is another loss
        try:
            await self._write(device, lost=lost)
        except BaseException:
            if lost:
                self._lost.add(device)
            raise

    async def _write(self, device: str, *, lost: bool) -> None:
        documents = self.shadows.documents(device, all_of_them=lost)
        while await self._overtaken(documents):
            documents = self.shadows.documents(device, all_of_them=lost)
        for document in documents:
            self._noted.discard((device, document.part))
            stored = await self._api.publish(self._subject(device, document.part), document.body)
            self._on_document(device, document.part, stored["seq"], document.body)
        if documents:
            async with WriteTurn(self._registry):
                await self._registry.write(self.shadows.published(documents))
            self._noted.update((device, document.part) for document in documents)
        if lost:
            await self._put_back(device)

    async def _overtaken(self, documents: Iterable[Document]) -> bool:
        """Tell whether the bucket has a newer version of one of these documents than hub.db.

        It has where somebody was killed between the two, was not answered, or hub.db was put back; to
        count on from hub.db would give two documents one version.
        """
        overtaken = False
        for device, part, *_ in documents:
            if (device, part) not in self._noted:
                version = await self._version_there(self._subject(device, part))
                overtaken |= self.shadows.overtaken(device, part, version)
        return overtaken

    async def _version_there(self, subject: str) -> int:
        message = await self._api.message(SHADOW, last_by_subj=subject)
        return version_of(message.data) if message else 0

    async def _put_back(self, device: str) -> None:
        """Write the desired values into a bucket that has none of them."""
        if (body := self.shadows.desired_body(device)) is None:
            return
        try:
            await self._api.publish(self._subject(device, DESIRED), body, {IF_LAST_HEADER: "0"})
        except JetStreamError as error:
            if error.err_code != WRONG_LAST_SEQUENCE:
                raise  # somebody was faster

    async def _subjects(self) -> set[str]:
        """Return the subjects of all documents that are there."""
        return set(await self._api.subjects(SHADOW, ">"))

    def _subject(self, device: str, part: str) -> str:
        return f"$KV.{SHADOW_BUCKET}.{shadow_key(self._twin.env, device, part)}"

    async def read_desired(self) -> None:
        """Take in desired values until cancelled; trouble is logged once and waited out."""
        trouble = Trouble(log, "desired_not_read", HubError, NatsError, OSError)
        js = self._client.jetstream(timeout=_TIMEOUT_S)
        while True:
            self._anew = False
            async with trouble:
                await self._follow(js)

    async def _follow(self, js: JetStreamContext) -> None:
        """Take the last `desired` of every device, then each as it is written."""
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
            filter_subject=f"$KV.{SHADOW_BUCKET}.fleet.{self._twin.env}.veh.*.{DESIRED}",
            ack_policy=AckPolicy.NONE,
            inactive_threshold=60.0,
            mem_storage=True,
        )
        info = await js.add_consumer(SHADOW, config)
        subscription = await js.pull_subscribe_bind(info.name, SHADOW)
        connection = self._client.stats["reconnects"]
        try:
            # What the server sent into a connection that broke does not come a second time.
            while not self._anew and self._client.stats["reconnects"] == connection:
                for desired in (await _next(subscription)).values():
                    await self._take(desired)
        finally:
            with contextlib.suppress(NatsError):
                await subscription.unsubscribe()
                await js.delete_consumer(SHADOW, info.name)

    async def _take(self, desired: Desired) -> None:
        trouble = Trouble(log, "desired_waits", HubError, device=desired.device)
        while True:
            async with trouble, WriteTurn(self._registry):
                await self._take_in_turn(desired)
                break
        self._touch([desired.device])

    async def _take_in_turn(self, desired: Desired) -> None:
        known = {"device": desired.device, "revision": desired.revision}
        try:
            taken = self.shadows.take(desired)
        except WriteRefusedError as error:
            refusal = self.shadows.refuse(desired, str(error))
            if refusal is not None:
                log.warning("desired_refused", **known, reason=str(error))
                await self._registry.write([refusal])
                self._on_document(desired.device, DESIRED, desired.revision, desired.body)
                self._on_desired(desired.device, desired.revision, desired.who)
            return
        if taken is not None:
            await self._registry.write(taken.changes)
            self.shadows.apply(taken)
            self._on_document(desired.device, DESIRED, desired.revision, desired.body)
            self._on_desired(desired.device, desired.revision, desired.who)
            log.info("desired_taken", **known, points=taken.points)


async def _next(subscription: JetStreamContext.PullSubscription) -> dict[str, Desired]:
    """Return the newest revisions of a few devices; none where nothing was written for a while."""
    found: dict[str, Desired] = {}
    for _ in range(_AT_ONCE):
        try:
            [message] = await subscription.fetch(1, timeout=_LOOK_S)
        except NatsTimeoutError:
            break
        if (desired := _desired(message)) is not None:
            found[desired.device] = desired
        if not message.metadata.num_pending:
            break
    return found


def _desired(message: Msg) -> Desired | None:
    device = message.subject.split(".")[-2]
    if not DEVICE_ID.match(device):
        log.warning("desired_of_no_device", subject=message.subject)
        return None
    headers = message.headers or {}
    gone = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
    stored_us = int(message.metadata.timestamp.timestamp() * 1_000_000)
    return Desired(
        device,
        message.metadata.sequence.stream,
        stored_us * 1000,
        None if gone else message.data,
        headers.get(WHO_HEADER, ""),
    )
