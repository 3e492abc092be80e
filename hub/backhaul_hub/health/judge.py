"""The conditions of the hub, judged from one look at streams, readers and devices. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from backhaul_codec.assurance.conditions import Conditions, Finding, Growth, Place
from backhaul_codec.assurance.vehicle_conditions import DISK_FULL, LEDGER_FILLING
from backhaul_codec.protocol.history import Alive
from backhaul_hub.config import Health
from backhaul_hub.health import conditions as kinds
from backhaul_hub.links.feeds import unfed
from backhaul_hub.nats.jetstream import Json
from backhaul_hub.shards import is_shard
from backhaul_hub.streams.replicas import Damage
from backhaul_hub.streams.streams import JOURNAL
from backhaul_hub.uplink.awaited import Awaited
from backhaul_hub.vehicles.core import Told
from backhaul_hub.vehicles.identities import Evidence, told

_DAY_S = 86_400
_SAID = {kind.code for kind in kinds.OF_VEHICLES}
_SEEN = {kind.code for kind in kinds.KINDS}


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """One lane of a device."""

    owes: bool
    """Whether the vehicle has said that it has more, or its source lags."""
    gap_ranges: int
    arrivals: int
    """Messages that ever came of it."""
    lag: int | None
    """Of its source, by the server's account; None where it is not known."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device."""

    up: bool
    """Whether its link is."""
    clock_unset: bool = False
    lanes: Mapping[str, LaneFacts] = field(default_factory=dict)
    identity: Evidence | None = None
    """What is known of two machines that use it, or of one that was replaced."""
    shared: bool = False
    """Whether another machine may have what this one does not know (`Identities.answerer`)."""
    clock_step_ns: int | None = None
    """By how much the vehicle says that the hub's clock is not where it was."""
    heads_differ: bool = False
    heads_ahead_ns: int = 0
    """By how much the newest of its heads is stamped too far in the future."""
    agent: bool | None = None
    """Whether an agent is connected to its leaf server; None: not known."""
    told: Told | None = None
    """What its agent said last of itself."""


class FleetCounts(NamedTuple):
    """The numbers of devices, of all there are."""

    devices: int = 0
    up: int = 0
    agents: int = 0
    """With an agent that is connected to their leaf server."""
    agents_down: int = 0
    """With a link, and no agent."""
    clock_unset: int = 0
    arrivals: int = 0
    """Messages of theirs that ever came, repeats included."""


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """The findings of one look."""

    streams: list[Json] | None
    """Each stream's info; None where the server does not answer."""
    consumers: list[Json] = field(default_factory=list)
    read: Mapping[str, int] = field(default_factory=dict)
    """The last sequence that was read of each UP stream."""
    quarantined: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, DeviceFacts] = field(default_factory=dict)
    """All of which something may be found."""
    fleet: FleetCounts = field(default_factory=FleetCounts)
    certificates: Mapping[str, datetime] = field(default_factory=dict)
    """Until when each lasts, by what it belongs to."""
    flooding: Mapping[str, str] = field(default_factory=dict)
    """What devices that are kept out have sent too much of."""
    expanding: Mapping[str, str] = field(default_factory=dict)
    """What was in the messages of other devices that are kept out."""
    awaited: Collection[Awaited] = ()
    """Dictionaries that messages of UP wait for."""
    crowded: Mapping[str, str] = field(default_factory=dict)
    """Devices that have more dictionaries in use than the hub keeps."""
    not_told: Mapping[str, str] = field(default_factory=dict)
    """Why channels to people do not take their messages, by channel."""
    audit: str = ""
    """What is wrong with the audit log; empty: nothing is."""
    erasing: Mapping[str, str] = field(default_factory=dict)
    """What of erasures is not done, by device."""
    imports: str = ""
    """Which imports were ended before all was kept; empty: none."""
    history: str = ""
    """Why the server of history does not answer; empty: it does, or is not expected to."""
    alive: Alive = field(default_factory=Alive)
    """The jobs beside the server of history, as that server told of them."""
    unknown: Collection[str] = ()
    """Devices that durables on DOWN are of, and hub.db does not know."""
    older: str = ""
    """In what hub.db is older than the accounts that the servers hold; empty: it is not."""
    damages: Collection[Damage] = ()
    """Servers that lack messages which another one has."""
    off: Collection[str] = ()
    """Servers whose JetStream is off."""
    server_clocks: Mapping[str, float] = field(default_factory=dict)
    """By how many seconds the clocks of servers are off the others'."""
    standby: Collection[Finding] = ()
    """What is wrong with the machines that would take the control plane over."""
    clock_step: str = ""
    """What the machine's clock did that the hub does not follow, in words."""


class HubHealth:
    """The hub's conditions, by looks in a row."""

    def __init__(self, config: Health) -> None:
        after_s = {
            kinds.LINK_DOWN: config.link_down_after_s,
            kinds.AGENT_DOWN: config.agent_down_after_s,
        }
        table = [
            replace(kind, after_s=after_s.get(kind.code, kind.after_s))
            for kind in (*kinds.KINDS, *kinds.OF_VEHICLES)
        ]
        self.conditions = Conditions(table, config.patience)
        self._config = config
        self._quarantine = Growth(config.quarantine_shown_s)
        self._arrivals: dict[Place, int] = {}

    def look(self, facts: HealthFacts, now_s: float, now_ns: int) -> None:
        """Take in one look; `now_s` is monotonic, `now_ns` since the Unix epoch."""
        self.conditions.note(list(self._findings(facts, now_s, now_ns)), now_s, now_ns)

    def _findings(self, facts: HealthFacts, now_s: float, now_ns: int) -> Iterator[Finding]:
        if facts.streams is None:
            yield Finding(kinds.JETSTREAM_SILENT)
        if facts.older:
            yield Finding(kinds.REGISTRY_OLDER, detail=facts.older)
        yield from _of_servers(facts)
        yield from facts.standby
        for channel, why in facts.not_told.items():
            yield Finding(kinds.PEOPLE_NOT_TOLD, Place(about=channel), why)
        if facts.audit:
            yield Finding(kinds.AUDIT_BROKEN, detail=facts.audit)
        for device, what in facts.erasing.items():
            yield Finding(kinds.ERASURE_OWED, Place(device), what)
        if facts.imports:
            yield Finding(kinds.IMPORT_UNFINISHED, detail=facts.imports)
        if facts.history:
            yield Finding(kinds.HISTORY_SILENT, detail=facts.history)
        for stand in facts.alive.jobs:
            if stand.behind and stand.still_s > self._config.job_still_s:
                detail = f"{stand.behind:,} behind for {stand.still_s / 60:.0f} min"
                yield Finding(kinds.JOB_STILL, Place(about=stand.job), detail)
        for info in facts.streams or []:
            yield from self._of_stream(info, facts.read)
        for info in facts.consumers:
            yield from self._of_consumer(info)
        for stream, more in self._quarantine.lately(facts.quarantined, now_s).items():
            yield Finding(kinds.QUARANTINE_GREW, Place("", stream), f"{more} more")
        if facts.clock_step:
            yield Finding(kinds.HUB_CLOCK_STEP, detail=facts.clock_step)
        for device in facts.unknown:
            yield Finding(kinds.DEVICE_UNKNOWN, Place(device))
        for device, seen in facts.devices.items():
            yield from self._of_device(device, seen)
        for device, why in facts.flooding.items():
            yield Finding(kinds.DEVICE_FLOODING, Place(device), why)
        for device, why in facts.expanding.items():
            yield Finding(kinds.FRAMES_EXPAND, Place(device), why)
        for row in facts.awaited:
            detail = f"{row.messages} messages wait in {row.stream}"
            yield Finding(kinds.DICTIONARY_MISSING, Place(row.device, row.digest.hex()), detail)
        for device, why in facts.crowded.items():
            yield Finding(kinds.DICTIONARIES_FULL, Place(device), why)
        for name, until in facts.certificates.items():
            days = until.timestamp() / _DAY_S - now_ns / 1e9 / _DAY_S
            if days < self._config.certificate_days_min:
                detail = f"on {until:%Y-%m-%d}, {days:.0f} days from now"
                yield Finding(kinds.CERTIFICATE_EXPIRES, Place("", name), detail)
        self._arrivals = {
            Place(device, lane): known.arrivals
            for device, seen in facts.devices.items()
            for lane, known in seen.lanes.items()
        }

    def _of_stream(self, info: Json, read: Mapping[str, int]) -> Iterator[Finding]:
        name, bytes_max = info["config"]["name"], info["config"].get("max_bytes", -1)
        held, place = info["state"]["bytes"], Place("", info["config"]["name"])
        if bytes_max > 0 and name != JOURNAL and held > self._config.stream_full_part * bytes_max:
            part = f"{100 * held / bytes_max:.0f}% of {bytes_max} bytes"
            yield Finding(kinds.STREAM_FULL, place, part)
        if is_shard(name) and (why := unfed(info)):
            yield Finding(kinds.SHARD_UNFED, place, why)
        if late := _late_replicas(info, self._config.replica_lag_max):
            yield Finding(kinds.REPLICA_BEHIND, place, ", ".join(late))
        behind = info["state"]["last_seq"] - read.get(name, info["state"]["last_seq"])
        if behind > self._config.reader_lag_max:
            yield Finding(kinds.READER_BEHIND, place, f"{behind} messages")

    def _of_consumer(self, info: Json) -> Iterator[Finding]:
        place = Place("", f"{info['stream_name']}/{info['name']}")
        if (lag := info["num_pending"]) > self._config.consumer_lag_max:
            yield Finding(kinds.CONSUMER_LAG, place, f"{lag} messages")
        if (pending := info["num_ack_pending"]) > self._config.ack_pending_max:
            yield Finding(kinds.ACK_PENDING, place, f"{pending} messages")

    def _of_device(self, device: str, seen: DeviceFacts) -> Iterator[Finding]:
        if not seen.up:
            yield Finding(kinds.LINK_DOWN, Place(device))
        if seen.clock_unset:
            yield Finding(kinds.CLOCK_UNSET, Place(device))
        if seen.up and seen.agent is False:
            version = f"version {seen.told.report.version}" if seen.told else "it was never heard"
            yield Finding(kinds.AGENT_DOWN, Place(device), version)
        if seen.told is not None:
            yield from _of_vehicle(device, seen.told, up=seen.up and seen.agent is not False)
        if seen.identity is not None:
            code = kinds.TWO_MACHINES if seen.identity.two else kinds.MACHINE_CHANGED
            yield Finding(code, Place(device), told(device, seen.identity))
        if seen.clock_step_ns is not None:
            detail = f"by {seen.clock_step_ns / 1e9:+.1f} s"
            yield Finding(kinds.HUB_CLOCK_DOUBTED, Place(device), detail)
        if seen.heads_differ:
            yield Finding(kinds.HEADS_DIFFER, Place(device))
        if seen.heads_ahead_ns:
            detail = f"by {seen.heads_ahead_ns / 1e9:.0f} s"
            yield Finding(kinds.HEADS_AHEAD, Place(device), detail)
        for lane, known in seen.lanes.items():
            place = Place(device, lane)
            if known.gap_ranges:
                code = kinds.GAP_OF_ANOTHER if seen.shared else kinds.GAP_OPEN
                yield Finding(code, place, f"{known.gap_ranges} stretches")
            if known.owes and known.arrivals == self._arrivals.get(place):
                stalled = kinds.LANE_STALLED if known.lag else kinds.SOURCE_STALLED
                lag = "of a lag not known" if known.lag is None else f"at a lag of {known.lag}"
                yield Finding(stalled, place, lag)


def _of_servers(facts: HealthFacts) -> Iterator[Finding]:
    for server in sorted({each.server for each in facts.damages}):
        lacks = (
            f"{each.missing:,} messages of {each.stream} that {each.held_by} has"
            for each in facts.damages
            if each.server == server
        )
        yield Finding(kinds.REPLICA_DAMAGED, Place(about=server), ", ".join(lacks))
    for server in sorted(facts.off):
        yield Finding(kinds.SERVER_OFF, Place(about=server))
    for server, off_s in facts.server_clocks.items():
        yield Finding(kinds.SERVER_CLOCK, Place(about=server), f"by {off_s:+.0f} s")


def _of_vehicle(device: str, told: Told, *, up: bool) -> Iterator[Finding]:
    """Pass on a vehicle's report on itself; with its link or its agent down, its last report."""
    report = told.report
    figures = {
        DISK_FULL: f"{report.disk_pct}% of its disk",
        LEDGER_FILLING: f"{report.ledger_pct}% of its ledger",
    }
    when = (
        ""
        if up
        else f"said {datetime.fromtimestamp(told.told_ns // 10**9, UTC):%Y-%m-%d %H:%M} UTC"
    )
    for code, about in report.conditions:
        if code in _SAID:
            detail = ", ".join(filter(None, (figures.get(code, ""), when)))
            yield Finding(code, Place(device, about), detail)
        elif code not in _SEEN:
            yield Finding(kinds.VEHICLE_CONDITION, Place(device, f"{code} {about}".strip()), when)


def _late_replicas(info: Json, lag_max: int) -> list[str]:
    replicas = (info.get("cluster") or {}).get("replicas") or []
    return [
        f"{each.get('name', '?')} is {'away' if each.get('offline') else 'behind'}"
        for each in replicas
        if each.get("offline") or not each.get("current", True) or each.get("lag", 0) > lag_max
    ]
