"""Keeping the relays' sources as the devices' links are: when each is added, removed, set up again."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog
from nats.errors import Error as NatsError

from backhaul_codec.kinds import LIVE, Lane
from backhaul_hub.config import HubConfig
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.device import Device, DeviceLink
from backhaul_hub.errors import HubError
from backhaul_hub.links.deaf_links import DeafLinks
from backhaul_hub.links.leaf_connections import LEAFS_INTERVAL_S
from backhaul_hub.links.pushes import Pushes, Pushing
from backhaul_hub.links.sources import (
    PUSHED,
    SILENT_LINK_S,
    SOURCES_ADVISED_MAX,
    OwedWatch,
    Place,
    SourcePlan,
    SourceWatch,
    apply_sources,
    link_idle_s,
    owes_greeting,
    place_of,
    places_of,
    sourced,
    sources_by_shard,
    untouched_s,
)
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.shards import relay_name, shard_of
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_RETRY_S = 1.0
KICKED_MAX = 50
"""Sources that are set up again at one look, so many at most. Where hundreds hear nothing, as while a whole fleet dials a
server that has just started, that server is busy, and each set-up makes it busier. It sets them up by itself, too."""


class SourceKeeper:
    """Has the relay of each shard source the lanes of the devices that are connected.

    Args:
        devices: as hub.db has them now.
    """

    def __init__(
        self,
        config: HubConfig,
        clock: Clock,
        continuity: Continuity,
        devices: Callable[[], Mapping[str, Device]],
    ) -> None:
        self._clock = clock
        self._continuity = continuity
        self._devices = devices
        self._source_api = ""
        self._plans = [SourcePlan() for _ in range(config.fleet.shards)]
        self._watch = SourceWatch(config.link.stalled_after_s, config.link.stuck_after_s)
        self._owed = OwedWatch()
        self._deaf = DeafLinks()
        self._due = asyncio.Event()
        # Connected, and not in hub.db as we know it.
        self._strangers: set[str] = set()
        # Of lanes that stand still: what the vehicle said of each beside the stream, and when.
        self._still: dict[Place, tuple[LaneKey, int]] = {}
        self._made: dict[int, str] = {}
        # Of each shard when it was last told what to source; infinite while it is being told.
        self._told_s = [-math.inf] * len(self._plans)
        self.pushes = Pushes(self._holds)
        self.lags: dict[tuple[str, str], int] = {}
        """Messages that wait at a device, by (device, lane), where its link is up."""

    async def start(self, api: JetStreamApi, source_api: str = "") -> None:
        """Take stock of the streams' sources now; `source_api`: `HubKeys.source_api`.

        Raises:
            HubError: the server refused, or nobody answered.
        """
        self._source_api = source_api
        for shard, plan in enumerate(self._plans):
            info = await api.info(relay_name(shard))
            plan.succeeded(sourced(info), self._clock.monotonic_s())

    def connected(self, device: str) -> None:
        """Take in that a device's leaf has connected (again)."""
        known = self._devices().get(device)
        if known is None:
            self._strangers.add(device)
        elif not known.revoked_ns:
            # The source of its pushes may have been made with another token.
            self._plan(device).disconnected(Place(device, PUSHED))
            self._plan(device).connected(*places_of(known))
        self.pushes.gone(device)
        self._due.set()

    def disconnected(self, device: str) -> None:
        """Take in that a device's leaf is gone."""
        self._strangers.discard(device)
        known = self._devices().get(device)
        places = places_of(known) if known else []
        self._plan(device).disconnected(*places, Place(device, PUSHED))
        self.pushes.gone(device)
        self._due.set()
        for place in places:
            self.lags.pop(place, None)  # nobody knows how far it is ahead now

    def push(self, device: str, epoch: int, lanes: Mapping[Lane, int]) -> list[Lane]:
        """Take in which lanes a vehicle would push, all others being sourced; return those that it may.

        Args:
            device: the vehicle's id.
            epoch: its current one.
            lanes: the last seq of each that is not pushed.
        """
        known, plan = self._devices().get(device), self._plan(device)
        if known is None or known.revoked_ns or device in self._strangers:
            return []
        change = self.pushes.ask(Pushing(device, epoch, lanes), places_of(known), plan)
        plan.disconnected(*change.asleep)
        self._wake(plan, *change.awake)
        self.lags.update(dict.fromkeys(change.asleep, 0))
        if change:
            self._due.set()
        return self.pushes.lanes(device)

    def _wake(self, plan: SourcePlan, *places: Place) -> None:
        """Have lanes sourced that were not, in the midst of a link's time."""
        plan.connected(*places)
        for place in places:
            # It is set up now, not since the link is up: on a slow link it takes a while to hear its device.
            self._watch.kicked(place, self._clock.monotonic_s())

    def _holds(self, key: LaneKey, seq: int) -> bool:
        """Tell whether the hub has everything of a vehicle's current epoch of a lane, up to a seq at least."""
        if seq == 0:
            # The lane carried nothing before its first push, so the hub need not know it: nothing is owed.
            known = self._continuity.lanes.get(key)
            return known is None or known.whole
        epoch, state = self._continuity.current(key.device).get(key.lane, (0, None))
        return epoch == key.epoch and state is not None and state.whole and state.watermark >= seq

    def stands_still(self, key: LaneKey, seq: int) -> None:
        """Take in a vehicle's word, beside the stream, that its lane goes as far as `seq`."""
        if woken := self.pushes.wake(Place(key.device, key.lane)):
            self._wake(self._plan(key.device), woken)
            self._due.set()
        self._continuity.say(key, seq)
        self._still[Place(key.device, key.lane)] = key, self._clock.now_ns()

    def change(self, before: Mapping[str, Device]) -> None:
        """Take in that the devices are others than before."""
        for device in self._devices().values():
            if device.id in before:
                self._change_lanes(before[device.id], device)
        for id_ in sorted(self._strangers & self._devices().keys()):
            self._strangers.discard(id_)
            self.connected(id_)
        counts = sources_by_shard(self._devices().values(), len(self._plans))
        for shard, count in sorted(counts.items()):
            if count > SOURCES_ADVISED_MAX:
                log.warning("shard_has_many_sources", stream=relay_name(shard), sources=count)

    async def keep(self, api: JetStreamApi, learn: Callable[[], Awaitable[None]]) -> None:
        """Apply the plans whenever something changed, and again where that failed; for ever.

        ``learn`` reads hub.db again, and is called where somebody connects whom nobody knows.
        """
        strangers = Trouble(log, "strangers_not_looked_up", HubError, NatsError)
        while True:
            await self._wait()
            self._due.clear()
            for shard, plan in enumerate(self._plans):
                try:
                    while (target := plan.next_update(self._clock.monotonic_s())) is not None:
                        self._told_s[shard] = math.inf
                        before = await apply_sources(
                            *(api, relay_name(shard), self._devices(), target, self._source_api)
                        )
                        for source in before:
                            if untouched_s(source, kicked=False) < 0:
                                plan.doubted(place_of(source))
                        plan.succeeded(target, self._clock.monotonic_s())
                except (HubError, NatsError) as error:
                    plan.failed()
                    log.warning("sources_not_applied", stream=relay_name(shard), error=str(error))
                    await asyncio.sleep(_RETRY_S)
                    self._due.set()
                finally:
                    self._told_s[shard] = self._clock.monotonic_s()
            # Last: while nobody can be looked up, those that are known are seen to.
            if self._strangers:
                async with strangers:
                    await learn()
                if strangers.now:
                    self._due.set()

    def look(
        self, infos: Sequence[Json | None], asked_s: float, links: Mapping[str, DeviceLink]
    ) -> list[str]:
        """Take in the state of the shards; set up again a source that is not there, or that a connected device does not feed.

        Returns the devices whose link is to be cut: none of their lanes was ever heard over it.

        ``infos``: of all shards' relays, asked for at ``asked_s`` (monotonic seconds); None: not answered.
        """
        now_s = self._clock.monotonic_s()
        for shard, info in enumerate(infos):
            if info is not None:
                self._note_sources(shard, info, asked_s, now_s)
        sources = [each for info in infos if info is not None for each in info.get("sources") or []]
        idle_s = link_idle_s(sources)
        kicked = 0
        for source in sources:
            place = place_of(source)
            plan = self._plan(place.device)
            if place.lane == PUSHED:
                self.pushes.heard(place.device, source)
            elif place in plan.wanted:  # of who has gone since it was asked nothing is known
                self.lags[place] = source["lag"]
            why = None
            if kicked < KICKED_MAX:  # else it has its turn at the next look
                why = self._complaint(source, links.get(place.device), idle_s, now_s)
            plan.established(place, asked_s, asked_s + untouched_s(source, kicked=why is not None))
            if why is not None and place in plan.wanted:
                log.warning("source_kicked", device=place.device, lane=place.lane, why=why)
                plan.kicked(place)
                kicked += 1
                self._due.set()
        return self._deaf.look(sources, links, now_s)

    def _complaint(
        self, source: Json, leaf: DeviceLink | None, idle_s: Mapping[str, float], now_s: float
    ) -> str | None:
        """Return why a source should be set up again, or None."""
        place = place_of(source)
        if leaf is None or not leaf.up:
            self._owed.complaint(place, None, now_s)
            return None
        up_s = (self._clock.now_ns() - leaf.since_ns) / 1e9
        silent_s = idle_s.get(place.device, 0.0)
        # A ping that was answered since; the list that says so is taken now and then.
        answered_s = (self._clock.now_ns() - leaf.answered_ns) / 1e9
        if answered_s + LEAFS_INTERVAL_S < silent_s:
            silent_s = 0.0
        owes = None
        # One that never heard its device has a patience of its own.
        if silent_s < SILENT_LINK_S and source["active"] >= 0:
            owes = self._owed_arrivals(place, leaf.since_ns)
        why = self._watch.complaint(source, up_s, now_s, silent_s)
        if why is None and (why := self._owed.complaint(place, owes, now_s)) is not None:
            self._watch.kicked(place, now_s)
        return why

    def _change_lanes(self, before: Device, device: Device) -> None:
        """Source the lanes that a connected device has now, and no others; of a revoked one none."""
        plan, was = self._plan(device.id), set(places_of(before))
        now = set() if device.revoked_ns else set(places_of(device))
        linked = plan.wanted | self.pushes.asleep(device.id)
        if was != now and linked & was:
            plan.disconnected(*(was - now))
            plan.connected(*(now - was), *(self.pushes.asleep(device.id) & now))
            if not now:
                plan.disconnected(Place(device.id, PUSHED))
            self.pushes.gone(device.id)
            self._due.set()
            for place in was - now:
                self.lags.pop(place, None)

    def _note_sources(self, shard: int, info: Json, asked_s: float, now_s: float) -> None:
        """See whether a relay has the sources that we gave it, and is the one that we gave them.

        Another one has other sources, or none; and somebody may have changed those of this one.
        """
        plan, known, there = self._plans[shard], self._made.get(shard), sourced(info)
        self._made[shard] = info["created"]
        # What was asked while it was told shows either.
        changed = there != plan.applied and self._told_s[shard] < asked_s
        if changed:
            log.warning(
                "sources_changed_by_others",
                stream=relay_name(shard),
                gone=len(plan.applied - there),
                new=len(there - plan.applied),
            )
        if changed or known not in (None, info["created"]):
            plan.succeeded(there, now_s)
            self._due.set()

    def _plan(self, device: str) -> SourcePlan:
        return self._plans[shard_of(device, len(self._plans))]

    async def _wait(self) -> None:
        """Wait until a plan may have something to do: a change, or a set-up's time is over."""
        times = [time for plan in self._plans if (time := plan.look_again_s()) is not None]
        wait_s = max(0.0, min(times) - self._clock.monotonic_s()) if times else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._due.wait()

    def _owed_arrivals(self, place: Place, up_since_ns: int) -> int | None:
        """Return how many messages ever came of a lane that owes some, None where it owes none."""
        known = self._continuity.current(place.device).get(place.lane)
        state = known[1] if known else None
        key, told_ns = self._still.get(place, (None, 0))
        unheard = state is None or state.last_seen_ns < told_ns
        if unheard and key is not None and not self._continuity.is_over(key):
            # Nothing of the lane has come since: of its epoch, when that is new, nothing ever has.
            state = self._continuity.lanes.get(key, state)
        if state is None:
            return None
        owes = not state.whole or (
            place.lane == LIVE
            and owes_greeting(state.last_seen_ns, up_since_ns, self._clock.now_ns())
        )
        return self._arrivals(place) if owes else None

    def _arrivals(self, place: Place) -> int:
        """Count the messages that ever came of a lane, of all epochs: a slow link carries the former ones first."""
        states = (
            self._continuity.lanes[key]
            for key in self._continuity.of_device(place.device)
            if key.lane == place.lane
        )
        return sum(state.messages + state.repeats for state in states)
