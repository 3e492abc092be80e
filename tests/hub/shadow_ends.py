"""A shadow at the hub and its vehicle's heads, without I/O."""

from __future__ import annotations

import json
from typing import Any

from backhaul_codec.state.merge import HeadKey
from backhaul_hub.errors import WriteRefusedError
from backhaul_hub.shadow.core import Desired, Shadows
from tests.support.hub_sync import DEVICE, FakeClock, Hub, Link, Vehicle

SECOND_NS = 10**9
RATE = HeadKey("", "gps", "rate", "")


class Both:
    """A hub with shadows, its vehicle, and the bucket as a dict: `<part>` to document."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.hub = Hub(self.clock)
        self.vehicle = Vehicle(self.clock)
        self.link = Link(self.hub, self.vehicle)
        self.shadows = self._new_shadows()
        self.bucket: dict[str, dict[str, Any]] = {}
        self.revision = 0
        self.puts: list[str] = []

    def _new_shadows(self) -> Shadows:
        shadows = Shadows(self.clock, self.hub.core, lambda: self.hub.devices)
        rows = self.hub.db.rows("SELECT device, state FROM shadow")
        assert shadows.restore((row[0], row[1]) for row in rows) == []
        return shadows

    def crash(self) -> None:
        self.hub.crash()
        self.shadows = self._new_shadows()

    def desire(self, document: object, *, who: str = "", delivered: bool = True) -> Desired:
        self.clock.ns += SECOND_NS
        self.revision += 1
        body = document if isinstance(document, bytes | None) else json.dumps(document).encode()
        desired = Desired(DEVICE, self.revision, self.clock.ns, body, who)
        if delivered:
            self.deliver(desired)
        return desired

    def deliver(self, desired: Desired) -> int:
        """Take in a revision; return how many points were written."""
        try:
            taken = self.shadows.take(desired)
        except WriteRefusedError as error:
            refusal = self.shadows.refuse(desired, str(error))
            self.hub.db.write([refusal] if refusal else [])
            return 0
        if taken is None:
            return 0
        self.hub.db.write(taken.changes)
        self.shadows.apply(taken)
        self.hub.publish()
        return taken.points

    def publish(self) -> list[str]:
        """Write documents; return which."""
        for announcement in self.hub.core.announcements:
            self.shadows.note(announcement.change)
        self.hub.core.announcements.clear()
        documents = self.shadows.documents(DEVICE)
        for document in documents:
            self.bucket[document.part] = json.loads(document.body)
        self.hub.db.write(self.shadows.published(documents))
        return [document.part for document in documents]

    def sync(self) -> None:
        """Let both ends meet."""
        self.publish()
        self.clock.ns += SECOND_NS
        self.link.settle()
        self.publish()

    @property
    def reported(self) -> dict[str, Any]:
        found: dict[str, Any] = self.bucket["reported"]["fields"]
        return found

    @property
    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = self.bucket["config"]["fields"]
        return found

    @property
    def meta(self) -> dict[str, Any]:
        return self.bucket["meta"]

    @property
    def delta(self) -> dict[str, Any]:
        found: dict[str, Any] = self.meta["delta"]
        return found

    def vehicle_has(self, key: HeadKey = RATE) -> object:
        head = self.vehicle.heads.get(key)
        return None if head is None or head.deleted else head.value
