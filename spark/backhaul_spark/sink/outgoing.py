"""Alerts as messages for the hub: contents, subject, and the name by which each is known. Pure.

An alert stands in TWIN_EVENTS under a subject that holds a digest of its id, and is published on the
condition that nothing stands there yet: so it is stored once, for as long as the stream keeps it,
however often it is published. Its command has the same digest as its id; the hub's command book
starts each id once.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from backhaul_codec.subjects import DEVICE_ID, encode_token
from backhaul_spark.errors import AlertUnfitError

COMMAND_AGE_S_MAX = 300.0
"""Nothing is asked of a vehicle by what it was like longer ago; TWIN_CMD keeps messages as long."""
_SECOND_NS = 1_000_000_000
_COMMAND = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}")
_SAID = ("id", "rule", "kind", "severity", "late", "node", "type", "key", "unit", "text")


class Outgoing(NamedTuple):
    """One message to be published."""

    subject: str
    header: bytes
    body: bytes


def digest_of(alert_id: str) -> str:
    """Return the name of an alert and its command: 32 hexadecimal digits of its id."""
    return hashlib.sha256(alert_id.encode()).hexdigest()[:32]


def alert_message(env: str, alert: Mapping[str, Any]) -> Outgoing:
    """Return the message of one row of ALERTS, for TWIN_EVENTS.

    Raises:
        AlertUnfitError: no subject can be made of its device.
    """
    rule, kind = encode_token(alert["rule"]), encode_token(alert["kind"])
    subject = f"{_prefix(env, alert)}.evt.alert.{rule}.{kind}.{digest_of(alert['id'])}"
    said = {"vid": alert["device"], "time": alert["time_ns"]}
    said |= {name: alert[name] for name in _SAID}
    said |= {"value": _finite(alert["value"]), "limit": _finite(alert["limit"])}
    if alert["command"]:
        said["command"] = {"name": alert["command"], "params": json.loads(alert["params"])}
    header = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"
    return Outgoing(subject, header, _json(said))


def command_message(env: str, alert: Mapping[str, Any], now_ns: int) -> Outgoing | None:
    """Return the message of an alert's command, for TWIN_CMD; None where it has none, or none any more.

    ``now_ns``: wall clock. A batch that is done again after a long stop must not have a vehicle do what
    was right then.

    Raises:
        AlertUnfitError: device, name or parameters are not as the hub takes them.
    """
    left_s = COMMAND_AGE_S_MAX - (now_ns - alert["time_ns"]) / _SECOND_NS
    if not alert["command"] or left_s <= 0:
        return None
    if not _COMMAND.fullmatch(alert["command"]):
        raise AlertUnfitError(alert["id"], f"{alert['command']!r} is no name of a command")
    id_ = digest_of(alert["id"])
    body = {
        "id": id_,
        "params": json.loads(alert["params"]),
        "deadline_s": round(min(left_s, COMMAND_AGE_S_MAX), 3) or 0.001,
        "who": f"twin:{alert['rule']}"[:64],
    }
    # Within two minutes a repeat does not even reach the queue.
    header = b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n" % id_.encode()
    return Outgoing(f"{_prefix(env, alert)}.cmd.{alert['command']}", header, _json(body))


def _prefix(env: str, alert: Mapping[str, Any]) -> str:
    if not DEVICE_ID.fullmatch(alert["device"]):
        raise AlertUnfitError(alert["id"], f"{alert['device']!r} is no device id")
    return f"fleet.{env}.veh.{alert['device']}"


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
