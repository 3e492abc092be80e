"""What a short sound run asked, was told and left behind: tests plant violations in it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_codec.assurance.completeness import HOUR_NS
from tests.chaos.checker import check
from tests.chaos.diary import Entry, Told
from tests.chaos.evidence import (
    EVENT,
    Found,
    LaneName,
    Place,
    heads_of,
    twin_event,
)

if TYPE_CHECKING:
    from tests.chaos.diary import Word


VID = "VID-001"
EPOCH = 5
HOUR = 500_000 * HOUR_NS
LIVE, BULK = LaneName(VID, "live", EPOCH), LaneName(VID, "bulk", EPOCH)
CONFIG: list[tuple[float, Word]] = [(1.0, "kept"), (2.0, "kept"), (3.0, "unknown")]
COMMANDS = {"c1": "done", "c2": "interrupted", "c3": "expired"}
SECOND_NS = 1_000_000_000
TIMES = {
    "queued_ns": HOUR, "accepted_ns": HOUR + SECOND_NS, "deadline_ns": HOUR + 5 * SECOND_NS,
    "ended_ns": HOUR + 6 * SECOND_NS,
}  # fmt: skip
CUT = {"device": VID, "name": "once", "state": "interrupted", "code": "cut-short"}


def frame(seq: int, *numbers: int, epoch: int = EPOCH) -> bytes:
    points = [Point("imu", "value", HOUR + number * 1_000_000, float(number)) for number in numbers]
    return encode_frame(points, epoch=epoch, seq=seq)


def happening(seq: int, number: int, time_ns: int = HOUR) -> bytes:
    said = json.dumps({"kind": EVENT, "data": {"number": number}}).encode()
    return encode_point(Point("", EVENT, time_ns, Opaque(6, said)), epoch=EPOCH, seq=seq)


def stamped(
    node: str, number: int, time_ns: int, *, seq: int, epoch: int = EPOCH, clock: int = 0
) -> bytes:
    points = [Point(node, "value", time_ns, float(number))]
    return encode_frame(points, epoch=epoch, seq=seq, clock=clock)


def untimed(node: str, number: int, word: Any = "kept") -> Entry:
    body = {"node": node, "time_ns": 0, "first": number, "many": 1}
    answered_ns = HOUR + SECOND_NS if word == "kept" else 0
    return Entry("readings", VID, HOUR, body, word, answered_ns)


def readings(first: int, many: int, word: Any = "kept") -> Entry:
    body = {"node": "imu", "time_ns": HOUR + first * 1_000_000, "first": first, "many": many}
    return Entry("readings", VID, HOUR + first, body, word, HOUR + first + 1)


def head(value: float) -> dict[str, Any]:
    return {
        "node": "cfg", "type": "number", "key": "", "value": value,
        "time": HOUR, "origin": "", "tombstone": 0,
    }  # fmt: skip


class Case:
    """A run in which everything is as it should be, until something is planted."""

    def __init__(self) -> None:
        events = [Entry("event", VID, HOUR, {"event": number}, "kept", HOUR) for number in (1, 2)]
        commands = [Entry("command", VID, HOUR, {"id": id_}, "kept", HOUR) for id_ in COMMANDS]
        config = [
            Entry("config", VID, HOUR, {"node": "cfg", "value": value}, word, HOUR)
            for value, word in CONFIG
        ]
        commands.append(
            Entry("command", VID, HOUR, {"id": "c4"})
        )  # nobody knows, and it never came
        told = [readings(1, 4), readings(5, 2, "unknown"), readings(7, 2, "refused")]
        self.told = Told([*told, *events, *commands, *config])
        self.found = Found()
        for seq, numbers in enumerate([(1, 2), (3, 4), (5,)], 1):
            self.bulk(frame(seq, *numbers))
        for number in (1, 2):
            self.event(happening(number, number))
        self.say(LIVE)
        self.say(BULK)
        self.found.expanding[VID] = self.found.up.expanding[VID] = 3
        self.found.report["streams"] = [{"stream": "UP_00", "quarantined": 0}]
        self.found.heads = {VID: (heads_of([head(2.0)]), heads_of([head(2.0)]))}
        self.found.commands = {
            id_: {"id": id_, "device": VID, "name": "once", "state": state, **TIMES}
            for id_, state in COMMANDS.items()
        }
        self.found.commands["c2"] |= CUT
        self.found.deaths[VID] = 1
        self.found.starts = Counter({"c1": 1})
        self.found.complete_hours = {VID: [HOUR]}
        self.found.span = HOUR, HOUR + HOUR_NS
        self.found.epochs = {VID: EPOCH}
        self.table()

    def bulk(self, body: bytes, node: str = "imu") -> None:
        self.found.up.add(f"up.{VID}.f.{node}", body)

    def event(self, body: bytes) -> None:
        self.found.up.add(f"up.{VID}.e.app.{EVENT}", body)
        place = twin_event(f"fleet.prod.veh.{VID}.evt.{EVENT}", body)
        assert place is not None
        self.found.twin_events[place] += 1

    def table(self) -> None:
        """Make the history what UP holds."""
        up = self.found.up.readings
        self.found.history = Counter({reading: len(places) for reading, places in up.items()})
        self.found.history_expanding = Counter(self.found.up.expanding)

    def say(self, lane: LaneName, **more: Any) -> dict[str, Any]:
        """Have the hub say what is so of a lane, but for `more`; return all that it says."""
        seqs = self.found.up.seqs(lane)
        top = max(seqs, default=0)
        bodies = [body for place, body in self.found.up.bodies.items() if place.lane == lane]
        devices = self.found.report["devices"]
        if not devices:
            devices.append({"device": VID, "lanes": {}, "former": []})
        said = {"epoch": EPOCH, "watermark": top, "highest_seq": top, "gaps": [], "explained": []}
        said["explained"] = [[each.low, each.high] for each in self.found.up.receipts.get(lane, ())]
        said |= {"messages": len(bodies), "repeats": 0, "bytes": sum(map(len, bodies))}
        devices[0]["lanes"][lane.lane] = said | more
        return devices[0]["lanes"][lane.lane]  # type: ignore[no-any-return]

    def replace_ledger(self) -> None:
        """Have a new ledger go on: the hub speaks of its lanes, and no more of the former ones."""
        new = LaneName(VID, "live", EPOCH + 1), LaneName(VID, "bulk", EPOCH + 1)
        for lane in new:
            self.say(lane, epoch=lane.epoch)

    def forget(self, seq: int) -> None:
        """Have a frame be nowhere, and the hub say so."""
        del self.found.up.bodies[Place(BULK, seq)]
        for reading, places in list(self.found.up.readings.items()):
            if places == [Place(BULK, seq)]:
                del self.found.up.readings[reading]
        self.table()
        said = self.say(BULK)
        said |= {"watermark": seq - 1, "gaps": [[seq, seq]]}

    def broken(self) -> list[str]:
        """Return the names of the rules that are broken."""
        return sorted({what.partition(":")[0] for what in check(self.told, self.found)})
