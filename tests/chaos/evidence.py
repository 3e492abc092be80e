"""What is found afterwards, at both ends and in the history: as the checker wants it, without I/O."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from backhaul_codec import CodecError, Opaque, decode
from backhaul_codec.kinds import BULK, LIVE
from backhaul_codec.subjects import SubjectError, parse_uplink
from backhaul_codec.wire.messages import is_said_again
from backhaul_codec.wire.plain_reader import PlainReader
from tests.chaos.diary import Happening, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_codec import Message
    from tests.chaos.clone import Clone
    from tests.chaos.damage import Damage

EVENT = "drill"
"""The kind of all events that a run reports."""
BY_AGENT, BY_CLIENT = "stamped", "walled"
UNTIMED = (BY_AGENT, BY_CLIENT)
"""Nodes of readings without a time of their own: told apart by their values alone."""
LIVE_NODES = ("cargo",)
"""Nodes of readings that go on the live lane; all others go on the other."""
EXPANDING = "expanding"
"""The node of frames that come to thousands of times their size: no readings, and counted only."""
Span = tuple[int, int]
"""Between which two times something was, in ns since the Unix epoch, by this machine's clock."""
Heads = dict[tuple[str, str, str, str], tuple[Any, int, str, int]]
"""By (parent, node, type, key): value, time, origin, tombstone."""


class LaneName(NamedTuple):
    """One lane of a device in one incarnation of its ledger."""

    device: str
    lane: str
    epoch: int


class Place(NamedTuple):
    """Where a message stands: what identifies it for ever."""

    lane: LaneName
    seq: int


class Receipt(NamedTuple):
    """A vehicle's word that these seqs of a lane will never come; `corrupt`: they were no good."""

    low: int
    high: int
    corrupt: bool


class Stamp(NamedTuple):
    """A time that the vehicle gave; `synced`: it says that it knows the time."""

    time_ns: int
    epoch: int
    synced: bool


@dataclass(slots=True)
class Uplinks:
    """All that stands in UP."""

    bodies: dict[Place, bytes] = field(default_factory=dict)
    repeats: Counter[LaneName] = field(default_factory=Counter)
    changed: list[Place] = field(default_factory=list)
    """Places under which two different messages came."""
    unreadable: list[str] = field(default_factory=list)
    readings: dict[Reading, list[Place]] = field(default_factory=dict)
    happenings: dict[Happening, list[Place]] = field(default_factory=dict)
    expanding: Counter[str] = field(default_factory=Counter)
    """By device: points of the node EXPANDING."""
    set_aside: Counter[str] = field(default_factory=Counter)
    """By device: how many points it says it has acknowledged, and set aside without a seq."""
    event_copies: Counter[Place] = field(default_factory=Counter)
    """How often each place of an event came."""
    stamps: dict[Reading | Happening, list[Stamp]] = field(default_factory=dict)
    """What a vehicle stamped, readings of `UNTIMED` and events."""
    evicted: Counter[str] = field(default_factory=Counter)
    """By device: how many messages it says that it gave up for want of room."""
    renewed: set[str] = field(default_factory=set)
    """Devices that said that a new epoch of their ledger began."""
    receipts: dict[LaneName, list[Receipt]] = field(default_factory=dict)
    """By lane: what vehicles say of it will never come."""
    clock_errors: dict[tuple[str, int], int] = field(default_factory=dict)
    """By device and epoch: by how many ns a vehicle said that it may be wrong, at the most."""
    words: list[tuple[Place, str, int]] = field(default_factory=list)
    """What vehicles said of themselves: where, what, and its time."""
    said_again: set[Place] = field(default_factory=set)
    """Where frames stand that say that all their points were sent before (docs/adr/0031)."""
    dictionaries: PlainReader = field(default_factory=PlainReader)
    _compared: dict[LaneName, list[tuple[int, set[str]]]] = field(default_factory=dict)
    """By lane: the seqs at which a vehicle had told its heads of some nodes again."""
    _others: dict[LaneName, set[int]] = field(default_factory=dict)
    """By lane: the seqs of what is neither a head nor such a word."""

    def add_dictionary(self, subject: str, body: bytes) -> None:
        """Take in a dictionary of the stream DICT."""
        _, device, digest = subject.split(".")
        self.dictionaries.keep(device, bytes.fromhex(digest), body)

    def add(self, subject: str, body: bytes) -> None:
        """Take in one message."""
        try:
            uplink = parse_uplink(subject)
            message = decode(
                self.dictionaries.take(uplink, body),
                node=uplink.node,
                type=uplink.type,
                key=uplink.key,
            )
        except (CodecError, SubjectError):
            self.unreadable.append(subject)
            return
        lane = LaneName(uplink.device, uplink.lane, message.epoch)
        place = Place(lane, message.seq)
        if uplink.letter == "p" and is_said_again(body):
            self.said_again.add(place)
        number = event_number(subject, message) if uplink.letter == "a" else None
        if number is not None:
            self.event_copies[place] += 1
        if (known := self.bodies.setdefault(place, body)) is not body:
            self.repeats[lane] += 1
            if known != body:
                self.changed.append(place)
            return
        if number is not None:
            happening = Happening(uplink.device, number)
            self.happenings.setdefault(happening, []).append(place)
            # An event does not say how good its time is.
            stamp = Stamp(message.points[0].time, message.epoch, synced=False)
            self.stamps.setdefault(happening, []).append(stamp)
        if uplink.letter == "e":
            self._take_word(place, str(uplink.type), message)
        if uplink.letter == "e" and uplink.type == "digest":
            said = json.loads(_opaque(message))
            self._compared.setdefault(lane, []).append((place.seq, set(said.get("want", ()))))
        elif uplink.letter == "e" and uplink.type == "quarantined":
            self.set_aside[uplink.device] += json.loads(_opaque(message)).get("points", 0)
        elif uplink.letter != "p":
            self._others.setdefault(lane, set()).add(place.seq)
        if uplink.node == EXPANDING:
            self.expanding[uplink.device] += len(message.points)
        elif uplink.letter in "fp":  # what `e.heads` says comes in its frame as well
            for point in message.points:
                if point.type == "value" and isinstance(point.value, float):
                    reading = reading_of(uplink.device, point.node, point.time, point.value)
                    self.readings.setdefault(reading, []).append(place)
                    if point.node in UNTIMED:
                        stamp = Stamp(point.time, message.epoch, synced=message.clock == 0)
                        self.stamps.setdefault(reading, []).append(stamp)

    def _take_word(self, place: Place, what: str, message: Message) -> None:
        """Take in what a vehicle says of itself."""
        self.words.append((place, what, message.points[0].time))
        mine = place.lane.device, place.lane.epoch
        if what == "clock":
            error_ns = json.loads(_opaque(message))["error_ns"] or 0
            self.clock_errors[mine] = max(self.clock_errors.get(mine, 0), error_ns)
        elif what == "epoch":
            self.renewed.add(place.lane.device)
        elif what == "receipt":
            said = json.loads(_opaque(message))
            receipt = Receipt(said["lo"], said["hi"], said["reason"].startswith("corrupt"))
            lane = LaneName(place.lane.device, said["lane"], said["epoch"])
            self.receipts.setdefault(lane, []).append(receipt)
            if said["reason"].startswith("evicted"):
                self.evicted[place.lane.device] += said["hi"] - said["lo"] + 1

    def told_again(self, place: Place, node: str) -> bool:
        """Whether a vehicle told a node's heads here because they were not the hub's (docs/sync.md).

        It does that right before it asks for the hub's, with nothing but heads between; such a head is
        no second reading.
        """
        wants = [want for want in self._compared.get(place.lane, ()) if want[0] > place.seq]
        if not wants:
            return False
        seq, nodes = min(wants, key=itemgetter(0))
        others = self._others.get(place.lane, set())
        return node in nodes and others.isdisjoint(range(place.seq, seq))

    def twice(self) -> list[tuple[Reading | Happening, list[Place]]]:
        """Return the readings and events with more than one place, but for heads told again."""
        readings = (
            (reading, places)
            for reading, places in self.readings.items()
            if len(places) > 1  # the next question is one to ask of few
            and sum(not self.told_again(place, reading.node) for place in places) > 1
        )
        return [*readings, *(each for each in self.happenings.items() if len(each[1]) > 1)]

    def seqs(self, lane: LaneName) -> set[int]:
        """Return the seqs of a lane that are there."""
        return {place.seq for place in self.bodies if place.lane == lane}

    def receipted(self, lane: LaneName) -> set[int]:
        """Return the seqs of a lane that a receipt stands for."""
        said = self.receipts.get(lane, ())
        return {seq for each in said for seq in range(each.low, each.high + 1)}


@dataclass(slots=True)
class Found:
    """All that is found. What a run does not look at stays empty, and `history` None."""

    up: Uplinks = field(default_factory=Uplinks)
    twin_events: Counter[Place] = field(default_factory=Counter)
    """How often each place of an event stands in TWIN_EVENTS."""
    report: dict[str, Any] = field(default_factory=lambda: {"devices": [], "streams": []})
    """What the control plane says of devices and streams."""
    heads: dict[str, tuple[Heads, Heads]] = field(default_factory=dict)
    """By device: at the hub, and on the vehicle."""
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    """How often a command was started, by what its handler has written down."""
    deaths: Counter[str] = field(default_factory=Counter)
    """By device: how often its agent was killed or ended by itself."""
    rolled_back: list[tuple[int, int]] = field(default_factory=list)
    """From when to when (ns) what the hub's server had stored was lost, but for hub.db."""
    clones: list[Clone] = field(default_factory=list)
    """Of disks, in the order in which they were made."""
    told_two: set[str] = field(default_factory=set)
    """Devices of which the hub said at some look that two machines use their identity."""
    machines: dict[str, dict[str, str]] = field(default_factory=dict)
    """By device: what its agent says of the machine that it runs on."""
    store_losses: list[tuple[str, int]] = field(default_factory=list)
    """Devices whose leaf lost its store, or some of it, and when (ns)."""
    lost_registries: list[Span] = field(default_factory=list)
    """From when to when (ns) there was no hub.db, until it was rebuilt from what is left."""
    not_refused: list[str] = field(default_factory=list)
    """Second agents that did not refuse a ledger, in words."""
    damages: list[Damage] = field(default_factory=list)
    """Of ledgers, in the order in which they were done."""
    copies: Counter[str] = field(default_factory=Counter)
    """How many messages were delivered once more, by the kind of fault."""
    complete_hours: dict[str, list[int]] = field(default_factory=dict)
    """By device: the beginnings (ns) of the hours that the hub says are complete."""
    span: Span = (0, 0)
    """From when on all this was, and when it was looked at."""
    healed_ns: int = 0
    """When all faults were over, and something of everything was asked once more."""
    epochs: dict[str, int] = field(default_factory=dict)
    """By device: the epoch of the ledger that it began with, and with which it learned the time."""
    filled: set[str] = field(default_factory=set)
    """Devices under whose ledger the disk was full."""
    jumps: dict[str, list[Span]] = field(default_factory=dict)
    """By device: when its wall clock jumped."""
    restless: list[str] = field(default_factory=list)
    """What a vehicle still has to do: in words."""
    history: Counter[Reading] | None = None
    history_expanding: Counter[str] = field(default_factory=Counter)
    """By device: rows of the node EXPANDING."""
    expanding: Counter[str] = field(default_factory=Counter)
    """By device: points of that node that were acknowledged."""

    def forked(self) -> set[str]:
        """Return the devices of which two machines wrote messages that differ in one place.

        Both are in UP there, or one of them in the spare epoch to which its machine has moved it.
        """
        lanes = {place.lane for place in self.up.bodies}
        return {
            clone.device
            for clone in self.clones
            if any(map(clone.may_differ, self.up.changed)) or not lanes.isdisjoint(clone.spares())
        }

    def lanes(self) -> Iterable[tuple[LaneName, dict[str, Any]]]:
        """Yield what the hub says of each current lane."""
        for device in self.report["devices"]:
            for name, said in device["lanes"].items():
                yield LaneName(device["device"], name, said["epoch"]), said


def lane_of(node: str) -> str:
    """Return the lane that readings of a node go on."""
    return LIVE if node in LIVE_NODES else BULK


def reading_of(device: str, node: str, time_ns: int, value: float) -> Reading:
    """Return a reading as the diary has it: what nobody gave a time has none."""
    return Reading(device, node, 0 if node in UNTIMED else time_ns, value)


def event_number(subject: str, message: Message) -> int | None:
    """Return the number of an event of ours; None where it is another's."""
    if not subject.endswith(f".{EVENT}"):
        return None
    return int(json.loads(_opaque(message))["data"]["number"])


def twin_event(subject: str, body: bytes) -> Place | None:
    """Return where a message of TWIN_EVENTS stands in its lane; None where it is none of ours."""
    message = decode(body)
    if event_number(subject, message) is None:
        return None
    return Place(LaneName(subject.split(".")[3], LIVE, message.epoch), message.seq)


def heads_of(points: Iterable[dict[str, Any]]) -> Heads:
    """Return heads as either end answers them."""
    return {
        (point.get("parent") or "", point["node"], point["type"], point["key"]): (
            point["value"],
            point["time"],
            point["origin"],
            point["tombstone"],
        )
        for point in points
    }


def _opaque(message: Message) -> bytes:
    value = message.points[0].value
    assert isinstance(value, Opaque)
    return value.data
