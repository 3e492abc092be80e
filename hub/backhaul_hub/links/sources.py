"""Which lanes of which devices a shard's relay sources, and how that is changed.

Sources exist only while their device is connected. An absent device's source would keep asking
for it on every other vehicle's link (26-80 kB a minute each, measured), and adding the source
when the leaf connects is what makes it resume at once instead of after 5 to 120 seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from backhaul_hub.lane_names import deliver_subject, lanes_of, out_stream
from backhaul_hub.shards import PUSH, shard_of

_FIRST_BACKOFF_S = 1.0
# The server waits 5 s for the answer to a set-up, also after the source is gone.
SETUP_S = 5.5
# It begins one by itself where it has heard nothing for 10 s, and in its own time after a refusal.
_UNTOUCHED_S, _UNTOUCHED_REFUSED_S = 9.0, 1.0
# On a slow link every set-up puts a window of messages into the socket, and the next waits behind it.
SETUP_S_MAX = 4 * SETUP_S
# Said of a source by servers from 2.15 on while a window takes longer than a few heartbeats to arrive,
# as it does on a slow link: true, and no reason to set anything up again.
_WAITS_FOR_LINK = "stalled on flow control"

# While nothing at all is heard from a device its link is dead, most likely, and what is set up over it
# is lost, and in the way of the next set-up for `SETUP_S` and more. The servers' pings end a dead link
# within 30 s; what stands for longer has another reason to be silent, and so has a link over which the
# vehicle has answered a ping.
SILENT_LINK_S = 5.0
_LOCAL_SILENT_S = 3.0
_DEAD_LINK_S_MAX = 40.0
_GREETING_NS_MAX = 120 * 1_000_000_000

# Adding a source to a stream with 500 takes some 20 ms, to one with 1,000 a quarter of a second.
SOURCES_ADVISED_MAX = 500

from collections.abc import Collection, Iterable, Mapping

from backhaul_codec.kinds import Lane
from backhaul_codec.protocol.push import push_subject
from backhaul_hub.device import Device
from backhaul_hub.nats.jetstream import JetStreamApi, Json

PUSHED: Lane = "push"
"""In the place of a lane: the messages that a device pushes, of all its lanes."""


class Place(NamedTuple):
    """One lane of one device: one source's subject."""

    device: str
    lane: Lane


def places_of(device: Device) -> list[Place]:
    """Return every lane of a device."""
    return [Place(device.id, lane) for lane in lanes_of(device)]


def sources_by_shard(devices: Iterable[Device], shards: int) -> Counter[int]:
    """Count the sources of each UP shard, were all devices connected."""
    counts: Counter[int] = Counter()
    for device in devices:
        counts[shard_of(device.id, shards)] += len(lanes_of(device))
    return counts


def lane_source(device: Device, lane: Lane) -> Json:
    """Declare one source: a lane of one device, under the prefix that names the device.

    The prefix is set here, by the hub, whatever subject the device put on its message.
    """
    return {
        "name": out_stream(lane),
        "external": {"api": f"$JS.{device.id}.API", "deliver": ""},
        "consumer": {
            "name": device.token,
            "deliver_subject": deliver_subject(device.id, device.token, lane),
        },
        "subject_transforms": [{"src": ">", "dest": f"up.{device.id}.>"}],
    }


def push_source(device: Device, source_api: str) -> Json:
    """Declare the source of a device's pushes: of its own subject in PUSH, and as if a lane brought it."""
    return {
        "name": PUSH,
        "external": {"api": source_api, "deliver": ""},
        "subject_transforms": [
            {
                "src": push_subject(device.id, device.token, ">"),
                "dest": f"up.{device.id}.>",
            }
        ],
    }


class SourcePlan:
    """Decides which updates bring a stream's sources in line. Pure; `now_s` is monotonic.

    It is told what may be sourced and what no more; `next_update` gives one set of places after
    another that the stream should source, None once it is in line. What is there again while its
    source still stands gets the source removed and added again: left alone, it would wait.

    Where a set-up may be under way as a source is removed, it is added again `SETUP_S` later only: the
    server waits on after the source is removed, takes the answer for the next one's, and leaves a
    subscription behind with which the source never gets on. The server sets up by itself as well, so
    none is under way only where that is known. Where it is not, a device that is there again is left
    to the server, which is quicker: it is listening, and sets up once it hears.
    """

    def __init__(self) -> None:
        self.applied: frozenset[Place] = frozenset()
        """What the stream sources now."""
        self.wanted: set[Place] = set()
        self._kicked: set[Place] = set()
        self._came: set[Place] = set()
        self._settling: set[Place] = set()
        self._added_s: dict[Place, float] = {}
        self._untouched_until_s: dict[Place, float] = {}
        # When what was removed in the midst of a set-up, for all we know, may be added again.
        self._free_s: dict[Place, float] = {}

    def connected(self, *places: Place) -> None:
        """Take in that a device's leaf has connected (again)."""
        self.wanted.update(places)
        self._came.update(places)

    def kicked(self, place: Place) -> None:
        """Take in that a source is to be set up anew, in any state of the server."""
        self._kicked.add(place)

    def disconnected(self, *places: Place) -> None:
        """Take in that a device's leaf is gone, or that it has a lane no more."""
        self.wanted.difference_update(places)
        self._kicked.difference_update(places)
        self._came.difference_update(places)

    def established(self, place: Place, asked_s: float, until_s: float) -> None:
        """Take in that by the request at `asked_s` no set-up is under way, nor will be until `until_s`."""
        if asked_s >= self._added_s.get(place, float("inf")):
            self._untouched_until_s[place] = until_s

    def doubted(self, place: Place) -> None:
        """Take in that a set-up may be under way: a server that has started begins with one."""
        self._untouched_until_s.pop(place, None)

    def next_update(self, now_s: float) -> frozenset[Place] | None:
        """Return the next lane to source, None where nothing is to be done now.

        Report back with `succeeded` or `failed` before asking again.
        """
        known = {place for place, until_s in self._untouched_until_s.items() if now_s < until_s}
        self._kicked |= self._came & known
        self._came.clear()
        held = {place for place, free_s in self._free_s.items() if now_s < free_s}
        target = frozenset(self.wanted - (self._kicked & self.applied) - (held - self.applied))
        if target == self.applied:
            return None
        # What is kicked while the update is under way is kicked anew, not settled by it.
        self._settling = self._kicked & (self.applied ^ target)
        self._kicked -= self._settling
        return target

    def look_again_s(self) -> float | None:
        """Return when a source that has to wait may be added, None where none waits."""
        waiting = self.wanted - self.applied
        return min((at_s for place, at_s in self._free_s.items() if place in waiting), default=None)

    def succeeded(self, places: frozenset[Place], now_s: float) -> None:
        """Take in that the stream now sources exactly these places."""
        self._free_s = {place: at_s for place, at_s in self._free_s.items() if now_s < at_s}
        for place in self.applied - places:
            del self._added_s[place]
            if self._untouched_until_s.pop(place, -float("inf")) <= now_s and place.lane != PUSHED:
                self._free_s[place] = now_s + SETUP_S
        for place in places - self.applied:
            self._added_s[place] = now_s
        self.applied = places
        self._settling = set()

    def failed(self) -> None:
        """Take in that the update was refused or not answered."""
        self._kicked |= self._settling & self.wanted
        self._settling = set()


@dataclass(slots=True)
class _Watched:
    """The record of one lane's source."""

    kicked_s: float = -float("inf")
    backoff_s: float = _FIRST_BACKOFF_S
    seq: int = -1
    moved_s: float = 0.0
    """When `seq`, the last sequence taken from the leaf, was last seen to change."""


class SourceWatch:
    """Decides when a connected device's source has to be set up again. Pure.

    The server itself waits 5 s for an answer that got lost, 10 s times the failures after a
    refusal, and believes in a source for as long as it hears heartbeats. Here

    - one that was refused (its agent has not made the streams yet: a vehicle's first start) is
      set up again after 1 s, then 2, 4 ...; one that never heard its device, once the server has
      surely given up waiting for the second time
    - one that says itself that it lags, and takes nothing, after `stuck_s`
    - one that has fallen silent after `patience_s`

    - the source of its pushes, which come from this hub, after 3 s in either case

    None of the others while all sources of the device are silent and its link may be dead.
    """

    def __init__(self, patience_s: float, stuck_s: float) -> None:
        self._patience_s = patience_s
        self._stuck_s = stuck_s
        self._lanes: dict[Place, _Watched] = {}

    def complaint(
        self, source: Json, up_s: float, now_s: float, link_idle_s: float = 0.0
    ) -> str | None:
        """Return why this source is to be kicked now, None where it is not.

        Args:
            source: as the server lists it in a stream's info.
            up_s: for how long the device's link has been up.
            now_s: monotonic seconds.
            link_idle_s: for how long nothing was heard over the device's link.
        """
        watched = self._lanes.setdefault(place_of(source), _Watched())
        if source.get("seq", 0) != watched.seq or not source["lag"]:
            watched.seq, watched.moved_s = source.get("seq", 0), now_s
        local = source["name"] == PUSH
        if not local and SILENT_LINK_S <= link_idle_s < _DEAD_LINK_S_MAX:
            watched.moved_s = now_s
            return None
        idle_s = source["active"] / 1e9 if source["active"] >= 0 else up_s
        if (refusal := _refusal(source)) is not None:
            why, wait_s = f"refused: {refusal}", watched.backoff_s
        elif local and not 0 <= source["active"] < _LOCAL_SILENT_S * 1e9:
            # No link is in between. Left alone, the server would look after ten seconds, as where PUSH has another leader.
            why, wait_s = "hears nothing of PUSH", _LOCAL_SILENT_S
        elif source["active"] < 0:
            why = "never heard its device"
            # Not after its first: the server asks again by itself, and on a slow link the answer to that
            # comes 2 to 4 s later. A source that is removed meanwhile stands still for minutes.
            wait_s = min(2 * SETUP_S * watched.backoff_s, SETUP_S_MAX)
        elif idle_s >= self._patience_s:
            why, wait_s = f"silent for {idle_s:.0f} s", self._patience_s
        elif now_s - watched.moved_s >= self._stuck_s:
            why, wait_s = f"stands still at a lag of {source['lag']}", self._stuck_s
        else:
            watched.backoff_s = _FIRST_BACKOFF_S
            return None
        if min(up_s, now_s - watched.kicked_s) < wait_s:
            return None
        watched.kicked_s = now_s
        watched.backoff_s = min(2 * watched.backoff_s, self._patience_s)
        return why

    def kicked(self, place: Place, now_s: float) -> None:
        """Take in that a source is set up again for another reason: it has heard nothing yet."""
        self._lanes.setdefault(place, _Watched()).kicked_s = now_s


@dataclass(slots=True)
class _Owing:
    """The record of a lane that owes something."""

    arrivals: int
    since_s: float
    patience_s: float


class OwedWatch:
    """Decides when a source that reports lag 0 is not believed. Pure; times in monotonic seconds.

    The vehicle has said that it has more, its link is up, and nothing of that lane comes: then its
    source is set up again, less and less often. A durable that stands still says nothing of it.
    """

    def __init__(self, patience_s: float = 10.0) -> None:
        self._patience_s = patience_s
        self._lanes: dict[Place, _Owing] = {}

    def complaint(self, place: Place, arrivals: int | None, now_s: float) -> str | None:
        """Return why a lane's source should be set up again, or None.

        ``arrivals``: messages that ever came of it; None: nothing is owed, or the link is down.
        """
        if arrivals is None:
            self._lanes.pop(place, None)
            return None
        known = self._lanes.get(place)
        if known is None or known.arrivals != arrivals:
            self._lanes[place] = _Owing(arrivals, now_s, self._patience_s)
            return None
        if now_s - known.since_s < known.patience_s:
            return None
        known.since_s, known.patience_s = now_s, min(2 * known.patience_s, 300.0)
        return "the vehicle has more, and nothing comes"


def owes_greeting(newest_ns: int, up_since_ns: int, now_ns: int) -> bool:
    """Say whether a vehicle's first word on ``live`` is due: each link that comes up is marked by one.

    Where it does not come, the source does not work, whatever its lag; and then nothing tells the hub
    that there is more. Not asked for ever: a mark may have come before the hub saw the link.

    Args:
        newest_ns: when UP stored the newest message of the lane.
        up_since_ns: when the link came up.
        now_ns: both of them and this are ns since the Unix epoch.
    """
    return newest_ns < up_since_ns and now_ns - up_since_ns < _GREETING_NS_MAX


def link_idle_s(sources: Iterable[Json]) -> dict[str, float]:
    """Return for how long each device was heard by none of its sources that ever heard it.

    The source of what it pushes hears this hub alone.
    """
    idle_s: dict[str, float] = {}
    for source in sources:
        if source["active"] >= 0 and source["name"] != PUSH:
            device = place_of(source).device
            idle_s[device] = min(source["active"] / 1e9, idle_s.get(device, float("inf")))
    return idle_s


def untouched_s(source: Json, *, kicked: bool) -> float:
    """Return for how long from now the server does not set up a source by itself; below 0: not known.

    One that is `kicked` is not known to be as it looks, but for a refusal: that ends a set-up.
    """
    if _refusal(source) is not None:
        return _UNTOUCHED_REFUSED_S
    if kicked or source["active"] < 0:
        return -1.0
    idle_s: float = source["active"] / 1e9
    return _UNTOUCHED_S - idle_s


def _refusal(source: Json) -> str | None:
    said: str | None = (source.get("error") or {}).get("description")
    return None if said is None or _WAITS_FOR_LINK in said else said


async def apply_sources(
    api: JetStreamApi,
    stream: str,
    devices: Mapping[str, Device],
    wanted: Collection[Place],
    source_api: str = "",
) -> list[Json]:
    """Make `stream` source the `wanted` lanes, and nothing else; return its sources right before.

    `source_api`: `HubKeys.source_api`, where somebody pushes.

    Raises:
        JetStreamError: the server refused.
        HubError: the stream is gone, or nobody answered.
    """
    info = await api.info(stream)
    sources = [
        push_source(devices[place.device], source_api)
        if place.lane == PUSHED
        else lane_source(devices[place.device], place.lane)
        for place in sorted(wanted)
        if place.device in devices
    ]
    await api.update_stream(info["config"] | {"sources": sources})
    before: list[Json] = info.get("sources") or []
    return before


def sourced(info: Json) -> frozenset[Place]:
    """Return a stream's sources now, by its info."""
    return frozenset(place_of(source) for source in info["config"].get("sources") or [])


def place_of(source: Json) -> Place:
    """Return the lane of a source, as the server lists it; of no device ("") where it is none of ours."""
    if source["name"] == PUSH:
        transforms = source.get("subject_transforms") or [{"src": ""}]
        return Place(transforms[0]["src"].split(".")[1], PUSHED)
    _, _, api = (source.get("external") or {}).get("api", "").partition(".")
    return Place(api.partition(".")[0], source["name"].removeprefix(out_stream("")))
