"""TWIN_STATE: the contents of its messages, and which are still to be published. Pure.

One message is the newest value of one series, as JSON that people and dashboards read:

    fleet.prod.veh.VID-001.state.battery.soc
    {"vid": "VID-001", "timestamp": "2026-05-01T12:00:00.25Z",
     "data": {"node": "battery", "type": "soc", "key": "", "value": 81.2, "dtype": "float64",
              "time": 1777636800250000000, "quality": "synced"}}

Every value is published that is newer than the one before, as long as publishing keeps pace; behind
that, the newest of each series. An older one never is.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from backhaul_codec import CodecError, Value
from backhaul_codec.rules import require_name, require_time
from backhaul_codec.state.json_values import value_from_json, value_to_json
from backhaul_codec.strict.json import Reader
from backhaul_codec.subjects import DEVICE_ID, encode_token
from backhaul_hub.streams.twin_streams import device_prefix
from backhaul_hub.timestamps import rfc3339

VALUE_JSON_BYTES_MAX = 256 << 10
"""Of one value. The server takes no message over 4 MB; a larger value is read in the history."""

_encode = msgspec.json.Encoder().encode


class StateKey(NamedTuple):
    """A series of one device."""

    device: str
    node: str
    type: str
    key: str


class StateValue(NamedTuple):
    """A value of a series. `time` in ns since the Unix epoch."""

    time: int
    value: Value
    quality: str | None = None
    """How good the vehicle's clock was: synced, holdover or unset; None where it is not known."""
    deleted: bool = False


class Waiting:
    """The values still to be published: of each series the newest, the longest waiting first."""

    def __init__(self) -> None:
        self._values: dict[StateKey, StateValue] = {}

    def __len__(self) -> int:
        return len(self._values)

    def add(self, key: StateKey, value: StateValue) -> None:
        """Take in a value, unless a newer one waits; one of the same time is a correction."""
        known = self._values.get(key)
        if known is None or known.time <= value.time:
            self._values[key] = value

    def take(self, count: int) -> list[tuple[StateKey, StateValue]]:
        """Return and forget up to `count` values."""
        keys = [key for key, _ in zip(self._values, range(count), strict=False)]
        return [(key, self._values.pop(key)) for key in keys]

    def put_back(self, taken: Iterable[tuple[StateKey, StateValue]]) -> None:
        """Take back the values that could not be published, but for those no longer the newest."""
        newer, self._values = self._values, dict(taken)
        for key, value in newer.items():
            self.add(key, value)


def state_subject(env: str, key: StateKey) -> str:
    """Return where a series' newest value is published."""
    return f"{device_prefix(env, key.device)}.state.{_series_tokens(key.node, key.type, key.key)}"


@lru_cache(16_384)
def _series_tokens(node: str, type_: str, key: str) -> str:
    return ".".join(map(encode_token, (node, type_, key) if key else (node, type_)))


def state_body(key: StateKey, value: StateValue) -> bytes:
    """Return the JSON of a value; one that is too large is left out, and said to be."""
    shown, dtype = value_to_json(value.value)
    body = _body(key, value, {"value": shown, "dtype": dtype})
    if len(body) <= VALUE_JSON_BYTES_MAX:
        return body
    return _body(key, value, {"value": None, "dtype": dtype, "too_large": True})


def _body(key: StateKey, value: StateValue, said: dict[str, Any]) -> bytes:
    data = {
        "node": key.node,
        "type": key.type,
        "key": key.key,
        **said,
        "time": value.time,
        "quality": value.quality,
    }
    if value.deleted:
        data["deleted"] = True
    return _encode({"vid": key.device, "timestamp": rfc3339(value.time), "data": data})


class _Data(msgspec.Struct, frozen=True):
    node: str
    type: str
    key: str
    value: Any
    dtype: str
    time: int
    quality: str | None = None
    deleted: bool = False
    too_large: bool = False


class _Message(msgspec.Struct, frozen=True):
    vid: str
    data: _Data


_read = Reader(_Message).read


def read_state(body: bytes) -> tuple[StateKey, StateValue] | None:
    """Read a body that `state_body` wrote; None for anything else, and for a value that was left out."""
    try:
        message = _read(body)
        data = message.data
        for name, what in ((data.node, "node"), (data.type, "type"), (data.key, "key")):
            require_name(name, what)
        if data.too_large or not DEVICE_ID.match(message.vid):
            return None
        value = value_from_json(data.value, data.dtype)
        stated = StateValue(require_time(data.time), value, data.quality, data.deleted)
    except CodecError:
        return None
    return StateKey(message.vid, data.node, data.type, data.key), stated
