"""A hub.db with alerts in it, a clock that a test moves, and what channels were given."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from backhaul_hub.alerts.plan import places_of
from backhaul_hub.alerts.senders import Delivered, DeliveryError
from backhaul_hub.alerts.service import AlertService, HealthLook
from backhaul_hub.db.store import Registry
from tests.support.alerting import T0, S, settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from backhaul_hub.alerts.outbox import NoticeMessage

ROUTE = {"channels": ["a"], "hold_s": 0.0}


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.s = 0.0

    def now_ns(self) -> int:
        return T0 + int(self.s * S)

    def monotonic_s(self) -> float:
        return self.s


class Wire:
    """What channels were given, and how they answer."""

    def __init__(self) -> None:
        self.taken: list[NoticeMessage] = []
        self.error = ""
        self.odd: Exception | None = None
        self.refused = ""
        self.answer: Callable[[], Any] = lambda: None

    def sender(self, *_: Any) -> Any:
        return self

    async def send(self, message: NoticeMessage) -> Delivered:
        if self.odd is not None:
            raise self.odd
        if self.error:
            raise DeliveryError(self.error, hint="mend it")
        self.taken.append(message)
        self.answer()
        await asyncio.sleep(0)
        return Delivered(self.refused)

    def told(self) -> list[str]:
        return [
            f"{message.channel} {each.kind} {each.alert.key.device}"
            for message in self.taken
            for each in message.notices
        ]


class AlertHub:
    """A hub.db, a clock, and the control planes that come and go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.time, self.wire = Time(), Wire()
        self.shown: list[Any] = []
        self.live: list[str] = []
        self.routes: list[dict[str, Any]] = [ROUTE]
        self._looks = 0

    def _look(self) -> HealthLook:
        self._looks += 1
        found = {(each.code, each.device, each.about) for each in self.shown}
        return HealthLook(self._looks, self.shown, lambda: found, lambda _: 0.0)

    @asynccontextmanager
    async def up(self, *, deliver: bool = True) -> AsyncIterator[AlertService]:
        service = AlertService(
            *(settings(*self.routes, hold_s=0.0), Path("/nowhere"), "prod", self.time),
            is_place=lambda place: place in ("plant-7", "VID-001", "VID-002", "depot"),
            places=lambda device: places_of(device, lambda _: {"plant-7"}),
            health=self._look,
            tell=lambda alert: self.live.append(alert.id),
            chance=lambda: 0.0,
            sender=self.wire.sender,
        )
        async with await Registry.open(self.path) as registry:
            await service.start(cast("Any", None), cast("Any", None), registry)
            work = service.delivery.tasks() if deliver else []
            tasks = [asyncio.create_task(each) for each in work]
            try:
                yield service
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def hear(service: AlertService, hub: AlertHub, *words: Any) -> None:
    for word in words:
        service.book.hear(word, hub.time.now_ns())
    await service.look()
