"""TWIN_EVENTS: events that programs on vehicles reported, and alerts about vehicles, each read once.

The stream is sourced from UP, so the body of a message is the one that the vehicle sealed
(docs/wire-format.md), and a message that was sent again stands there again. It is known by its device,
epoch and seq, which are in the body; what is missing, continuity knows (`hiding`). An alert is the
twin job's word, JSON, and stands there once by its subject (docs/twin.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import DeliverPolicy

from backhaul_codec import CodecError, Message, Opaque, decode
from backhaul_codec.assurance.completeness import ALSO_IMPORTED, HourReport, HourState
from backhaul_codec.kinds import LIVE
from backhaul_codec.points import JSON
from backhaul_codec.ranges import RangeSet
from backhaul_codec.state.json_values import read_sayable
from backhaul_codec.strict.json import JsonError, read_json
from backhaul_codec.subjects import DEVICE_ID, SubjectError, decode_token, encode_token
from backhaul_hub.errors import HubError
from backhaul_hub.nats.ephemeral_reader import pending
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.streams.twin_streams import EVENTS, device_prefix
from backhaul_hub.timestamps import rfc3339

SAID = ("previous", "reason", "data")
# A vehicle's clock may be ahead by as much before the hub refuses its stamps many times over.
ALERT = "alert"
"""The kind of all alerts; `….evt.alert.<rule>.<kind>.<digest>` are their subjects."""
_ALERT_TOKENS = 9
_CLOCK_AHEAD_NS = 600 * 1_000_000_000
_SECOND_NS = 1_000_000_000
_SILENT_NS = 4 * _SECOND_NS


class VehicleEvent(NamedTuple):
    """One event. `said` holds its previous, reason and data, as far as there are any.

    An alert has neither epoch nor seq, but an id; its data say which rule, how bad, and the figures.
    """

    time: int
    device: str
    epoch: int
    seq: int
    kind: str
    id: str
    said: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        stamp = {"vid": self.device, "timestamp": rfc3339(self.time), "time": self.time}
        named = {"id": self.id} if self.id else {"epoch": self.epoch, "seq": self.seq}
        return stamp | {"kind": self.kind} | self.said | named


class FoundEvents(NamedTuple):
    """Events by their time, the newest last, and all other messages between them."""

    events: list[VehicleEvent]
    earlier: int
    """Events that fit too, and are older than those."""
    repeats: int
    unreadable: int
    behind: int = 0
    """Events of UP that the stream has not taken in yet."""
    unheard: tuple[str, ...] = ()
    """UP streams that it has heard nothing of for a while, as one that was made anew: 15 s."""


def read_event(subject: str, body: bytes) -> VehicleEvent | None:
    """Read one message of TWIN_EVENTS; None where it is neither event nor alert."""
    if subject.count(".") == _ALERT_TOKENS - 1:
        return read_alert(subject, body)
    try:
        _, _, _, device, _, token = subject.split(".")
        return event_of(device, decode_token(token), decode(body))
    except (ValueError, CodecError, SubjectError):
        return None


def read_alert(subject: str, body: bytes) -> VehicleEvent | None:
    """Read one alert, which its subject says the device of; None where it is none."""
    try:
        said = read_json(body)
        time, id_, text = said.pop("time"), said.pop("id"), said.pop("text")
        del said["vid"]
    except (JsonError, KeyError, AttributeError, TypeError):
        return None
    device = subject.split(".")[3]
    typed = isinstance(time, int) and isinstance(id_, str) and id_ and isinstance(text, str)
    # As far as times go in 64 bits: beyond, no date can be made of one.
    if not typed or not 0 <= time < 1 << 63 or not DEVICE_ID.match(device):
        return None
    return VehicleEvent(time, device, 0, 0, ALERT, id_, {"reason": text, "data": said})


def event_of(device: str, kind: str, message: Message) -> VehicleEvent | None:
    """Return a device's message as an event of a kind; None where it is none."""
    try:
        [point] = message.points
        if not isinstance(point.value, Opaque) or point.value.dtype != JSON:
            return None
        said = read_sayable(point.value.data)
    except ValueError:
        return None
    if not isinstance(said, dict) or not DEVICE_ID.match(device) or not message.seq:
        return None
    said = {name: said[name] for name in SAID if name in said}
    return VehicleEvent(point.time, device, message.epoch, message.seq, kind, "", said)


class EventLog:
    """Collects events of a stretch of time, each once, and keeps the newest `count_max`."""

    def __init__(self, since_ns: int, count_max: int) -> None:
        self._since_ns = since_ns
        self._count_max = count_max
        self._seen: dict[tuple[str, int], RangeSet] = {}
        # With the order in which they came: two alerts may say the same of themselves.
        self._newest: list[tuple[tuple[Any, ...], int, VehicleEvent]] = []
        self._added = 0
        self._earlier = 0
        self._repeats = 0
        self._unreadable = 0

    def add(self, subject: str, body: bytes) -> None:
        """Take in one message of TWIN_EVENTS."""
        event = read_event(subject, body)
        if event is None:
            self._unreadable += 1
            return
        if event.time < self._since_ns:
            return
        if not event.id and not self._is_new(event):
            self._repeats += 1
            return
        self._added += 1
        entry = event[:-1], self._added, event
        if len(self._newest) < self._count_max:
            heapq.heappush(self._newest, entry)
        else:
            heapq.heappushpop(self._newest, entry)
            self._earlier += 1

    def _is_new(self, event: VehicleEvent) -> bool:
        seen = self._seen.setdefault((event.device, event.epoch), RangeSet())
        return seen.add(event.seq) > 0

    def found(self) -> FoundEvents:
        """Return the log's events."""
        newest = [event for _, _, event in sorted(self._newest)]
        return FoundEvents(newest, self._earlier, self._repeats, self._unreadable)


async def find_events(
    client: Client,
    env: str,
    log: EventLog,
    *,
    devices: Collection[str] | None = None,
    kind: str | None = None,
    since_ns: int,
) -> FoundEvents:
    """Fill a log with the events of TWIN_EVENTS, of all devices or of these.

    Raises:
        HubError: the server did not answer.
    """
    if devices is not None and not devices:
        return log.found()  # no filter at all would be every device
    prefixes = [f"fleet.{env}.veh.*"]
    if devices is not None:
        prefixes = [device_prefix(env, device) for device in devices]
    which = ["*" if kind is None else encode_token(kind)]
    if kind in (None, ALERT):
        which.append(f"{ALERT}.>")
    # Nothing is stored before it happened.
    start_s = max(0, since_ns - _CLOCK_AHEAD_NS) // _SECOND_NS
    messages = pending(
        client,
        EVENTS,
        DeliverPolicy.BY_START_TIME,
        filter_subjects=[f"{prefix}.evt.{each}" for prefix in prefixes for each in which],
        opt_start_time=datetime.fromtimestamp(start_s, UTC),
    )
    info = await JetStreamApi(client).info(EVENTS)
    try:
        async for message in messages:
            log.add(message.subject, message.data)
    except NatsError as error:
        raise HubError(f"{EVENTS} cannot be read: {error}") from error
    behind, unheard = standing(info)
    return log.found()._replace(behind=behind, unheard=unheard)


def standing(info: Json) -> tuple[int, tuple[str, ...]]:
    """Return how far TWIN_EVENTS is behind UP, and which UP streams it does not hear.

    A source hears its stream once a second; what it says of its lag is as old as that.
    """
    sources = info.get("sources") or []
    silent = [each["name"] for each in sources if not 0 <= each["active"] < _SILENT_NS]
    return sum(each["lag"] for each in sources), tuple(sorted(silent))


def hiding(report: HourReport) -> HourState:
    """Return how an hour stands as far as events go: those travel on the live lane alone."""
    if report.why not in ("", ALSO_IMPORTED) or any(each.lane == LIVE for each in report.missing):
        return "waiting"
    if any(each.lane == LIVE for each in report.explained):
        return "explained"
    return "complete"
