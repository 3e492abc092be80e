"""The hub and the history behind it: the real continuity, repair and merge over modelled streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_agent.uplink.resend import ResendAsk
from backhaul_codec import Point
from backhaul_codec.assurance.completeness import (
    LaneId,
    LaneRecord,
    Mark,
    lane_records,
    report_hours,
)
from backhaul_codec.protocol.vehicle_report import VehicleReport
from backhaul_codec.ranges import RangeSet
from backhaul_codec.state.merge import HeadKey, Heads
from backhaul_hub.continuity.former_epochs import FormerEpochs
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.repeats import forks_from
from backhaul_hub.continuity.resend_policy import RepairBook
from backhaul_hub.links.source_keeper import SourceKeeper
from backhaul_hub.vehicles.identities import Identities
from tests.simulation.lane_parts import LANES
from tests.simulation.models import DownModel, Source, UpModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backhaul_agent.uplink.epoch_sync import Ends, Known
    from backhaul_codec.assurance.completeness import HourReport
    from backhaul_hub.continuity.chain import Watermark
    from tests.simulation.models import Message

DEVICE = "VID-001"


class HubCores:
    """The classes under test; a mutation puts another in place of one."""

    continuity: type[Continuity] = Continuity
    repair: type[RepairBook] = RepairBook
    heads: type[Heads] = Heads
    former: type[FormerEpochs] = FormerEpochs
    identities: type[Identities] = Identities
    keeper: type[SourceKeeper] = SourceKeeper
    notices_losses = True
    reads_anew = True


class Hub:
    """One hub with one vehicle. What it keeps in hub.db survives `restart`."""

    def __init__(self, cores: HubCores) -> None:
        self.cores = cores
        self.up = UpModel()
        self.down = DownModel()
        self.sources = {name: Source() for name in LANES}
        self.up_since_s: float | None = None
        self._asks = 0
        self._asked: dict[str, ResendAsk] = {}
        self.knows_requests = False
        """Whether it knows which requests stand in DOWN though hub.db was lost."""
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin with an empty hub.db: what streams hold is read again, the rest is gone."""
        self.continuity = self.cores.continuity()
        self.heads = self.cores.heads()
        self._repair = self.cores.repair(self.continuity)
        self._former = self.cores.former(self.continuity)
        self.identities = self.cores.identities()
        if not self.knows_requests:
            self._asked = {}
        self.marks: list[Mark] = []
        self.said: list[tuple[int, Mapping[str, int]]] = []
        self._read_seq = 0 if self.cores.reads_anew else self.up.last_seq
        self._read_loss = self.up.loss
        self._told: dict[LaneKey, Watermark] = {}
        self._newest_stamp = 0
        self._judged: tuple[object, list[HourReport]] = (None, [])

    def restart(self) -> None:
        """Kill -9 of the control plane: what it had not stored is gone."""
        self._repair = self.cores.repair(self.continuity)
        self._told.clear()
        self._former.forget()
        for key in self.continuity.lanes:
            self.continuity._stirred[key] = None

    def read(self, messages_max: int) -> None:
        """Read on in UP; what it has lost since is noticed first."""
        if self._read_loss != self.up.loss:
            self._read_loss = self.up.loss
            self._read_seq = 0
            if self.cores.notices_losses:
                self._restate()
            else:
                self._read_seq = self.up.last_seq
        for stored in self.up.messages:
            if stored.seq > self._read_seq and messages_max > 0:
                self._read_seq = stored.seq
                messages_max -= 1
                self._take(stored.message, stored.stored_ns)
        for key, runs in self.continuity.take_repeats().items():
            for run in runs:
                hashes = [self.hashes(key, seq, seq)[0] for seq in (run.first - 1, run.last)]
                if since := forks_from(run, hashes):
                    self.continuity.fork(key, since)

    def tell(self, lags: Mapping[str, int], now_s: float) -> None:
        """Write watermarks and requests to DOWN."""
        for lane, (epoch, _) in self.continuity.current(DEVICE).items():
            key = LaneKey(DEVICE, lane, epoch)
            watermark, told = self.continuity.told_of(key), self._told.get(key)
            more = watermark.seq > (told.seq if told else 0)
            if more or (watermark != told and self._has_read_all()):
                self._told[key] = watermark
                self.down.publish(f"s.watermark.{lane}", (epoch, watermark))
        if self._has_read_all():
            for place, held in self._former.untold([DEVICE]).items():
                self._former.told(place, held)
                self.down.publish(f"s.held.{place[1]}", held)
        up = {} if self.up_since_s is None else {DEVICE: self.up_since_s}
        places = {(DEVICE, lane): lag for lane, lag in lags.items()}
        for _, lane, ask in self._repair.asks(up.get, places, now_s):
            self._ask(lane, ask.epoch, ask.ranges)

    def _ask(self, lane: str, epoch: int, ranges: tuple[tuple[int, int], ...]) -> None:
        self._asks += 1
        machine = self.identities.answerer(DEVICE)
        self._asked[lane] = ResendAsk(epoch, ranges, str(self._asks), machine)
        self.down.publish(f"s.resend.{lane}", self._asked[lane])

    def hear(self, machine: str, now_ns: int) -> None:
        """Take in what a machine says of itself with its question; what is asked names it, or nobody."""
        report = VehicleReport(machine, machine, machine, "1.0")
        self.identities.saw(DEVICE, report, "", now_ns)
        self._name_anew()

    def settle(self, now_ns: int) -> None:
        """Take in the operator's word that one machine alone is left."""
        self.identities.settle(DEVICE, now_ns)
        self._name_anew()

    def _name_anew(self) -> None:
        for lane, ask in self._asked.items():
            if ask.machine != self.identities.answerer(DEVICE):
                self._ask(lane, ask.epoch, ask.ranges)

    def write_head(self, key: HeadKey, value: float, now_ns: int) -> None:
        """Write a config point for the vehicle."""
        self._newest_stamp = max(now_ns, self._newest_stamp + 1)
        point = Point(key.node, key.type, self._newest_stamp, value, key.key, origin="hub")
        self.offer(point)
        self.send_head(key)

    def send_head(self, key: HeadKey) -> None:
        """Write a head to DOWN."""
        head = self.heads.get(key)
        if head is not None:
            self.down.publish(f"p.{key.node}.{key.type}", head.to_point(key))

    def offer(self, point: Point) -> None:
        """Merge a point."""
        self._newest_stamp = max(self._newest_stamp, point.time)
        self.heads.offer("", point)

    def known(self, epoch: int) -> tuple[Known, Ends] | None:
        """Answer a vehicle that asks what is known of an epoch; None: read on first."""
        if not self._has_read_all():
            return None
        known: Known = {}
        ends: Ends = {}
        for lane, highest in self.continuity.known(DEVICE, epoch).items():
            key = LaneKey(DEVICE, lane, epoch)
            seq, hash_ = self.continuity.lanes[key].proven
            text = hash_.hex()
            if seq and not hash_:
                text = self.hashes(key, seq, seq)[0] or ""
            known[lane] = highest, seq
            ends[lane] = text, int(self.continuity.fork_of(key))
        return known, ends

    def hashes_of(self, lane: str, epoch: int, low: int, high: int) -> list[str | None] | None:
        """Answer a vehicle that asks for the hashes of messages; None: read on first."""
        if not self._has_read_all():
            return None
        return self.hashes(LaneKey(DEVICE, lane, epoch), low, high)

    def hashes(self, key: LaneKey, low: int, high: int) -> list[str | None]:
        """Return the hash of each seq, by the first message of it that UP holds."""
        state = self.continuity.lanes.get(key)
        held = state.held if state else RangeSet()
        found: dict[int, str] = {}
        for each in self.up.messages:
            message = each.message
            if (message.lane, message.epoch) == (key.lane, key.epoch):
                found.setdefault(message.seq, message.own.hex())
        return [found.get(seq, "" if seq in held else None) for seq in range(low, high + 1)]

    def _has_read_all(self) -> bool:
        return self._read_loss == self.up.loss and self._read_seq >= self.up.last_seq

    def reports(self, hours: range) -> list[HourReport]:
        """Judge some hours; again only where something was read since."""
        basis = (self._read_seq, self._read_loss, hours)
        if self._judged[0] != basis:
            self._judged = (basis, report_hours(self.marks, self._records(), hours))
        return self._judged[1]

    def _records(self) -> dict[LaneId, LaneRecord]:
        lanes = {LaneId(key.lane, key.epoch): state for key, state in self.continuity.lanes.items()}
        held = {id_: state.held for id_, state in lanes.items()}
        receipts = {id_: [tuple(each) for each in state.receipts] for id_, state in lanes.items()}
        return lane_records(held, receipts, self.said)  # type: ignore[arg-type]

    def _restate(self) -> None:
        stored: dict[LaneKey, RangeSet] = {}
        for each in self.up.messages:
            message = each.message
            key = LaneKey(DEVICE, message.lane, message.epoch)
            stored.setdefault(key, RangeSet()).add(message.seq)
        for key in self.continuity.of_device(DEVICE):
            self.continuity.restate(key, stored.get(key, RangeSet()))

    def _take(self, message: Message, stored_ns: int) -> None:
        key = LaneKey(DEVICE, message.lane, message.epoch)
        size = len(message.data)
        self.continuity.arrived(
            key, message.seq, size, stored_ns, link=message.link, own=message.own
        )
        body: Any = message.body
        if message.kind == "head":
            self.offer(body)
        elif message.kind == "mark":
            lanes, why = body
            self.marks.append(Mark(message.time_ns, message.epoch, message.seq, lanes, why))
            self._say(message.epoch, lanes)
        elif message.kind == "receipt":
            lane, epoch, low, high, reason, behind = body
            self.continuity.explain(LaneKey(DEVICE, lane, epoch), low, high, reason, behind)
        elif message.kind == "epoch":
            old, lanes = body
            self.continuity.end(DEVICE, old)
            self._say(old, lanes)

    def _say(self, epoch: int, lanes: Mapping[str, int]) -> None:
        self.said.append((epoch, lanes))
        for lane, last in lanes.items():
            self.continuity.say(LaneKey(DEVICE, lane, epoch), last)


class History:
    """What Spark has written: each message once, by its place in its lane."""

    def __init__(self) -> None:
        self.points: dict[int, int] = {}
        """Point id to how many times it stands there."""
        self.places: dict[tuple[str, int, int], Message] = {}
        self._read_seq = 0
        self._loss = 0

    def ingest(self, up: UpModel, messages_max: int) -> None:
        """Append what is new in UP."""
        if self._loss != up.loss:
            self._loss, self._read_seq = up.loss, 0
        for stored in up.messages:
            if stored.seq <= self._read_seq or messages_max <= 0:
                continue
            self._read_seq = stored.seq
            messages_max -= 1
            message = stored.message
            place = (message.lane, message.epoch, message.seq)
            if place in self.places:
                continue
            self.places[place] = message
            if message.kind == "points":
                assert isinstance(message.body, tuple)
                for id_ in message.body:
                    self.points[id_] = self.points.get(id_, 0) + 1
