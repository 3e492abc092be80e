"""The durables through which devices source their parts of DOWN: one a stream that they have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import structlog

from backhaul_codec.device_token import DEVICE_TOKEN
from backhaul_codec.kinds import Lane
from backhaul_codec.subjects import DEVICE_ID, SubjectError, decode_token
from backhaul_hub.device import Device
from backhaul_hub.errors import JetStreamError
from backhaul_hub.lane_names import (
    DOWN,
    down_deliver_subject,
    down_durable,
    down_filters,
    node_lanes,
)
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.streams.streams import differences, names

_SECOND_NS = 1_000_000_000
log = structlog.get_logger(__name__)
# As `down_durable` names them.
_WHOLE_TOKEN = re.compile(rf"(?P<device>.+?)-(?P<token>{DEVICE_TOKEN})(?:_n_(?P<node>.+))?")
_DURABLE = re.compile(_WHOLE_TOKEN.pattern.replace(DEVICE_TOKEN, rf"[0-9a-f]+|{DEVICE_TOKEN}"))
_FILTERS = frozenset({"filter_subject", "filter_subjects"})


def down_consumers(device: Device) -> list[Json]:
    """Declare the durables through which a device's streams source their parts of DOWN."""
    return [_down_consumer(device, lane) for lane in ("", *node_lanes(device))]


def _down_consumer(device: Device, lane: Lane) -> Json:
    filters = down_filters(device, lane)
    return {
        "stream_name": DOWN,
        "action": "",
        "config": durable_source(
            name=down_durable(device.id, device.token, lane),
            deliver_subject=down_deliver_subject(device.id, device.token, lane),
        )
        | ({"filter_subjects": filters} if filters[1:] else {"filter_subject": filters[0]}),
    }


def durable_source(*, name: str, deliver_subject: str) -> Json:
    """Declare a consumer that a stream may source through (nats-server 2.14 and later)."""
    return {
        "name": name,
        "durable_name": name,
        "deliver_subject": deliver_subject,
        "deliver_policy": "all",
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": _SECOND_NS,
        "max_ack_pending": 64,
    }


async def ensure_down_consumers(api: JetStreamApi, device: Device) -> list[str]:
    """Bring a device's durables on DOWN into being and in line; return the changes, in words.

    Raises:
        JetStreamError: the server refused.
    """
    done = [await _ensure_consumer(api, declared) for declared in down_consumers(device)]
    return [words for words in done if words]


async def _ensure_consumer(api: JetStreamApi, declared: Json) -> str:
    stream, name = declared["stream_name"], declared["config"]["name"]
    info = await api.consumer_info(stream, name)
    if info is None:
        await api.request(f"CONSUMER.CREATE.{stream}.{name}", declared)
        return f"created {name}"
    updatable, _ = differences(declared["config"], info["config"])
    if not updatable:
        return ""
    # One filter and several are two keys, and a server takes either.
    lasting = {key: value for key, value in info["config"].items() if key not in _FILTERS}
    # What a server lets nobody change in place, it refuses by itself.
    request = declared | {"action": "update", "config": lasting | declared["config"]}
    await api.request(f"CONSUMER.CREATE.{stream}.{name}", request)
    return f"updated {name}: {'; '.join(updatable)}"


def device_of_durable(name: str) -> tuple[str, str, str] | None:
    """Return whose durable on DOWN it is: device, token, node ("" for none); None where it is no device's."""
    # Of a whole token: the id of a device may look like a shorter one with a node.
    found = _WHOLE_TOKEN.fullmatch(name)
    if found is None or not DEVICE_ID.match(found["device"]):
        return None
    try:
        node = decode_token(found["node"]) if found["node"] else ""
    except SubjectError:
        return None
    return found["device"], found["token"], node


class Stale(NamedTuple):
    """The durables on DOWN that no device sources through, as found."""

    dropped: list[str]
    """Their names."""
    unknown: set[str]
    """Devices that are not known: theirs stay, since they may be all that is left of them."""


async def drop_stale_consumers(api: JetStreamApi, devices: Iterable[Device]) -> Stale:
    """Delete the durables on DOWN that their devices source through no more; return their names.

    Of nodes that have no streams of their own any more: what waits for them in DOWN goes as well,
    heads that differ for it are sent the shared way when device and hub compare. Of tokens that a
    device had before it was revoked: what waits for it stays, for when it is enrolled anew.

    Raises:
        HubError: the server refused, or nobody answered.
    """
    known = {device.id: device for device in devices}
    declared = {
        each["config"]["name"]
        for device in known.values()
        if not device.revoked_ns
        for each in down_consumers(device)
    }
    gone: list[str] = []
    unknown: set[str] = set()
    for name in sorted(await names(api, f"CONSUMER.NAMES.{DOWN}", "consumers") - declared):
        found = _DURABLE.fullmatch(name)
        device = known.get(found["device"]) if found else None
        if found is None or device is None:
            stranger = device_of_durable(name)
            unknown |= {stranger[0]} - known.keys() if stranger else set()
            continue
        await api.delete_consumer(DOWN, name)
        if found["node"] and found["token"] == device.token:
            part = f"in.{device.id}.n.{found['node']}.>"
            await api.purge(DOWN, filter=part)
        gone.append(name)
    return Stale(gone, unknown)


async def make_writable(api: JetStreamApi, device: Device) -> bool:
    """See to a device's durable on DOWN; return whether it is there: if not, the others are served all the same."""
    try:
        done = await ensure_down_consumers(api, device)
    except JetStreamError as error:
        log.warning("device_cannot_be_written_to", device=device.id, error=str(error))
        return False
    if done:
        log.info("device_added", device=device.id, consumers=done)
    return True
