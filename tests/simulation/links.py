"""The hub's end of pushing: the real `SourceKeeper` over modelled servers, and stream PUSH."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.device import Device, DeviceLink
from backhaul_hub.links.sources import PUSHED, Place, lane_source, push_source
from tests.simulation.lane_parts import LANES
from tests.simulation.models import Source, at_once
from tests.simulation.pushing import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from backhaul_hub.links.source_keeper import SourceKeeper
    from tests.simulation.hub import Hub
    from tests.simulation.models import Message, OutModel
    from tests.simulation.pushing import Question

DEVICE = Device("VID-001", TOKEN, "", 0)
CONFIG: Any = SimpleNamespace(
    fleet=SimpleNamespace(shards=1), link=SimpleNamespace(stalled_after_s=15.0, stuck_after_s=10.0)
)
DECLARED = {
    **{Place(DEVICE.id, lane): lane_source(DEVICE, lane) for lane in LANES},
    Place(DEVICE.id, PUSHED): push_source(DEVICE, ""),
}
SERVER_TRIES_S = 10.0
"""A server that has heard nothing of a source for so long sets it up again by itself."""


class PushModel:
    """Stream PUSH, in memory, and where the source of the vehicle's pushes is in it."""

    def __init__(self) -> None:
        self.last_seq = 0
        self.messages: dict[int, Message] = {}
        self.position = 0
        self.heard_from_s = float("inf")

    def capture(self, message: Message) -> None:
        """Take in a push."""
        self.last_seq += 1
        self.messages[self.last_seq] = message

    def wipe(self) -> None:
        """Go with the server, and begin anew."""
        self.last_seq, self.messages = 0, {}

    def set_up(self, now_s: float) -> None:
        """Be sourced from now on: from where UP has got to, as far as there is such a message."""
        self.position = min(self.position, self.last_seq)
        self.heard_from_s = now_s


class Links:
    """The hub's sources: as its control plane would have them, and as its server does.

    Args:
        now_ns: returns the time.
        out: returns the stream of a lane on the vehicle at the link.
    """

    def __init__(
        self, hub: Hub, random: Random, now_ns: Callable[[], int], out: Callable[[str], OutModel]
    ) -> None:
        self.faulty = True
        self.loses = False
        """Whether all pushes are lost."""
        self.up = self.half_open = False
        self.push = PushModel()
        self._hub, self._random, self._now_ns, self._out = hub, random, now_ns, out
        self._server: frozenset[Place] = frozenset()
        self._sources = hub.sources
        self._link = 0
        self._since_ns = 0
        self._look_at_s = 0.0
        self.pushes_were_heard = False
        """Whether the source of the pushes was heard since the link came up and the control plane began."""
        self.begin()

    def begin(self) -> None:
        """Start the control plane: it takes stock of the sources, and of who is connected."""
        clock: Any = SimpleNamespace(monotonic_s=lambda: self.now_s, now_ns=self._now_ns)
        self.keeper: SourceKeeper = self._hub.cores.keeper(
            CONFIG, clock, self._hub.continuity, lambda: {DEVICE.id: DEVICE}
        )
        server: Any = self
        at_once(self.keeper.start(server))
        self.pushes_were_heard = False
        if self.up:
            self.keeper.connected(DEVICE.id)

    @property
    def now_s(self) -> float:
        """Return the monotonic time."""
        return self._now_ns() / 1e9

    @property
    def sound(self) -> bool:
        """Whether anything passes the link."""
        return self.up and not self.half_open

    def comes(self) -> None:
        """Have the link come up, as a new one."""
        self.up, self.half_open = True, False
        self._link += 1
        self._since_ns = self._now_ns()
        self.pushes_were_heard = False
        self.keeper.connected(DEVICE.id)

    def goes(self) -> None:
        """Have the link end, seen by the hub."""
        self.up = self.half_open = False
        self.keeper.disconnected(DEVICE.id)

    def restart_server(self) -> None:
        """Kill the hub's server: PUSH is gone, and each source has to be set up."""
        self.push.wipe()
        for source in self._sources.values():
            source.link = 0
        if self._pushed in self._server:
            self.push.set_up(self.now_s)

    def reads(self, lane: str) -> bool:
        """Tell whether somebody reads the durable of a lane, as far as its leaf server knows."""
        return (
            self.up
            and Place(DEVICE.id, lane) in self._server
            and self._sources[lane].link == self._link
        )

    def wants(self, lane: str) -> bool:
        """Tell whether the control plane would have a lane sourced."""
        return Place(DEVICE.id, lane) in self.keeper._plan(DEVICE.id).wanted

    @property
    def takes_pushes(self) -> bool:
        """Whether the source of the pushes is there and was heard."""
        return self._pushed in self._server and self.now_s >= self.push.heard_from_s

    def lags(self) -> dict[str, int]:
        """Return the lags of the lanes as the control plane knows them."""
        return {lane: lag for (_, lane), lag in self.keeper.lags.items()}

    def answer(self, question: Question) -> list[str]:
        """Take in what a vehicle says with its question; return the lanes that it may push."""
        for lane, seq in question.still.items():
            self.keeper.stands_still(LaneKey(DEVICE.id, lane, question.still_epoch), seq)
        return self.keeper.push(DEVICE.id, question.epoch, question.pushed)

    def keep(self) -> list[str]:
        """Let server and control plane work; return the lanes of which the vehicle is not to be heard by a source."""
        now_s = self.now_s
        for place in sorted(self._server):
            if place.lane != PUSHED:
                self._serve(place.lane, now_s)
        plan, before = self.keeper._plan(DEVICE.id), self._server
        while (target := plan.next_update(now_s)) is not None:
            if self.faulty and self._random.random() < 0.05:
                plan.failed()
                break
            self._update(target, now_s)
            plan.succeeded(target, now_s)
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + 1
            link = DeviceLink(self.up, self._since_ns, answered_ns=self._since_ns)
            self.keeper.look([self._info()], now_s, {DEVICE.id: link})
        self.pushes_were_heard |= self.takes_pushes
        asleep = self.keeper.pushes.asleep(DEVICE.id)
        return [place.lane for place in sorted((before - self._server) & asleep)]

    def carry(self, pushed: list[Message], messages_max: int) -> list[Message]:
        """Bring pushes over the link into PUSH, and on; return what comes into UP."""
        if not self.sound:
            pushed.clear()
        for message in pushed[:messages_max]:
            if not (self.loses or (self.faulty and self._random.random() < 0.03)):
                self.push.capture(message)
        del pushed[:messages_max]
        push = self.push
        if not self.takes_pushes:
            return []
        found = [push.messages[seq] for seq in sorted(push.messages) if seq > push.position]
        push.position = push.last_seq
        if not self.faulty:
            push.messages.clear()
        return found

    async def info(self, stream: str) -> dict[str, Any]:
        """Answer as the hub's server does."""
        return self._info()

    _pushed = Place(DEVICE.id, PUSHED)

    def _info(self) -> dict[str, Any]:
        declared = [DECLARED[place] for place in sorted(self._server)]
        sources = [DECLARED[place] | self._state(place.lane) for place in sorted(self._server)]
        return {"config": {"sources": declared}, "created": "", "sources": sources}

    def _state(self, lane: str) -> dict[str, int]:
        if lane == PUSHED:
            return {"active": 0 if self.now_s >= self.push.heard_from_s else -1, "lag": 0}
        source, out = self._sources[lane], self._out(lane)
        active = -1 if source.heard_s is None else int((self.now_s - source.heard_s) * 1e9)
        lag = sum(1 for seq in out.messages if seq > max(out.floor, source.seq))
        return {"active": active, "lag": lag, "seq": source.seq}

    def _serve(self, lane: str, now_s: float) -> None:
        source = self._sources[lane]
        if self.sound and source.link == self._link:
            source.heard_s = now_s
        elif now_s - source.tried_s >= SERVER_TRIES_S:
            self._set_up(source, lane, now_s)

    def _update(self, target: frozenset[Place], now_s: float) -> None:
        for place in sorted(target - self._server):
            if place.lane == PUSHED:
                self.push.set_up(now_s + (self._random.randint(0, 6) if self.faulty else 1))
            else:
                source = self._sources[place.lane]
                source.heard_s = None
                self._set_up(source, place.lane, now_s)
        for place in sorted(self._server - target):
            if place.lane != PUSHED:
                self._sources[place.lane].link = 0
        self._server = target

    def _set_up(self, source: Source, lane: str, now_s: float) -> None:
        source.tried_s = now_s
        if self.sound and not (self.faulty and self._random.random() < 0.1):
            source.reset(self._out(lane), self._random, faulty=self.faulty)
            source.link, source.heard_s = self._link, now_s
