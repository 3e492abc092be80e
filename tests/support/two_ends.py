"""Both ends' real heads with clocks that are wrong: messages are handed over when a test says so.

Real are the vehicle's keeper, writes, restamps and digests, and the hub's `HubSync` with a hub.db.
Modelled: the lanes as one list in order, DOWN and IN as one message a subject, the link as a switch.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from backhaul_agent.commit.heads import HeadKeeper, on_points
from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_agent.sync.digests import Digests
from backhaul_agent.sync.requests import PointRequest, SetRequest
from backhaul_agent.sync.restamp import Restamps
from backhaul_agent.sync.writes import ConfigWrites, message_of
from backhaul_codec import Point
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.wire.addressed import Addressed
from backhaul_hub.sync.writes import Put
from tests.support.agent_clock import FakeClock
from tests.support.hub_sync import DEVICE, START_NS, Hub
from tests.support.hub_sync import FakeClock as HubClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_agent.ledger.rows import Outgoing
    from backhaul_codec.state.merge import Head

S = 10**9
SERIES = [HeadKey("", "gps", "rate"), HeadKey("", "gps", "mode"), HeadKey("", "imu", "rate")]


class TwoEnds:
    """A hub and a vehicle. `hub_off_ns`, `vehicle_off_ns`: by how much their clocks are wrong."""

    def __init__(self) -> None:
        self.hub_off_ns = 0
        self.vehicle_off_ns = 0
        self.hub = Hub(HubClock())
        self.clock = FakeClock(START_NS)
        self.keeper = HeadKeeper(DEVICE, self._vehicle_ns)
        self.writes = ConfigWrites(self.keeper, value_bytes_max=1000)
        self.restamps = Restamps(self.keeper, self._vehicle_ns, lambda: self.digests.link_up())
        self.digests = Digests(self.keeper, self.clock)
        self.up: list[tuple[str, int, bytes]] = []
        self._seq = 0
        self._taken: dict[str, bytes] = {}
        self.wait(0)

    def _vehicle_ns(self) -> int:
        return self.clock.now_ns() + self.vehicle_off_ns

    def wait(self, seconds: float) -> None:
        """Let time pass at both ends."""
        self.clock.advance(seconds)
        self.hub.clock.ns = self.clock.now_ns() + self.hub_off_ns

    def set_hub(self, off_ns: int) -> None:
        """Set the hub's clock."""
        self.hub_off_ns = off_ns
        self.wait(0)

    def hub_writes(self, value: float, *keys: HeadKey) -> None:
        """Write series of one node at the hub."""
        self.hub.set(*(Put(key, value) for key in keys))

    def vehicle_writes(self, value: float, *keys: HeadKey) -> None:
        """Write series of one node on the vehicle, as `agent.set` does."""
        points = [PointRequest(key.type, key.key, value) for key in keys]
        write = self.writes.set(SetRequest(keys[0].node, points))
        self._commit(write.addressed, write.messages)

    def vehicle_states(self, value: float, key: HeadKey) -> None:
        """Publish a state on the vehicle's live lane: its time is the clock's."""
        addressed = [Addressed("", Point(key.node, key.type, self._vehicle_ns(), value, key.key))]
        self._commit(addressed, [message_of("", addressed)])

    def _commit(self, addressed: Iterable[Addressed], messages: Iterable[Outgoing]) -> None:
        changes = self.keeper.begin()
        changes.write(addressed)
        self._send([*changes.seen(self._vehicle_ns()), *messages])
        self.digests.changed(changes.apply())

    def _send(self, messages: Iterable[Outgoing]) -> None:
        for message in messages:
            self._seq += 1
            self.up.append((message.subject, self._seq, message.body))

    def goes_up(self, count: int | None = None) -> None:
        """Hand the vehicle's first messages to the hub."""
        batch, self.up = self.up[:count], self.up[len(self.up[:count]) :]
        if batch:
            self.hub.take(batch)
        self.hub.publish()

    def comes_down(self) -> None:
        """Hand what is new in DOWN to the vehicle, each message a commit of its own."""
        for subject, body in list(self.hub.down.items()):
            if self._taken.get(subject) is not body:
                self._taken[subject] = body
                self._take(subject, body)

    def reads_in_again(self) -> None:
        """Have the vehicle read all of IN: its leaf server was started anew."""
        for subject, body in list(self._taken.items()):
            self._take(subject, body, fresh=False)

    def _take(self, subject: str, body: bytes, *, fresh: bool = True) -> None:
        tokens = subject.split(".")[2:]
        inward = Inward()
        message = Inbound(tokens, body, fresh)
        on = {"digest": self.digests.on_message, "restamp": self.restamps.on_message}
        with suppress(ValueError):  # a refusal of what was refused for another's sake
            (on_points if tokens[0] == "p" else on[tokens[1]])(message, inward)
        changes = self.keeper.begin()
        changes.receive(inward)
        self._send(inward.messages)
        self.digests.changed(changes.apply())
        for tell in inward.on_durable:
            tell()

    def link_comes(self) -> None:
        """Note on the vehicle that the link is there."""
        self.digests.link_up()

    def rest(self, rounds: int = 30) -> int:
        """Exchange until nothing is under way; return how many messages that took."""
        sent = 0
        self.link_comes()
        for _ in range(rounds):
            self.wait(2)
            if self.digests.due_s is not None and self.digests.due_s <= self.clock.monotonic_s():
                self._send([self.digests.root()])
            if not self.up and self.digests.due_s is None:
                return sent
            sent += len(self.up)
            self.goes_up()
            self.comes_down()
        raise AssertionError(f"never at rest: {self.split()}")

    def split(self) -> dict[HeadKey, tuple[Head | None, Head | None]]:
        """Return the series of which the ends hold different heads: (hub's, vehicle's)."""
        hub, vehicle = self.hub.core.heads.of(DEVICE).heads, self.keeper.heads
        keys = {key for heads in (hub, vehicle) for key, _ in heads}
        return {
            key: (hub.get(key), vehicle.get(key))
            for key in keys
            if hub.get(key) != vehicle.get(key)
        }

    def value(self, key: HeadKey) -> object:
        """Return the value that both ends hold."""
        assert self.split() == {}
        head = self.keeper.heads.get(key)
        return head.value if head else None
