"""The documents of TWIN_SHADOW: names of fields, the meaning of `desired`, how values are shown. Pure.

A field is one series of a device and is named as on the command line: `<node>.<type>[.<key>]`, each
part percent-encoded outside `A-Z a-z 0-9 _ -`. In `desired` a dtype may follow after a colon.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from backhaul_codec import CodecError, Value
from backhaul_codec.state.json_values import parse_path, value_from_json, value_to_json
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.strict.json import JsonError, read_json
from backhaul_codec.subjects import DEVICE_ID, encode_token
from backhaul_hub.errors import HubError, WriteRefusedError
from backhaul_hub.questions import FIELDS_MAX
from backhaul_hub.streams.twin_streams import device_prefix

DESIRED, REPORTED, CONFIG, META = PARTS = ("desired", "reported", "config", "meta")

DESIRED_BYTES_MAX = 512 << 10
"""Of a document `desired`; as much as one write may hold on the vehicle."""
SHOWN_BYTES_MAX = 1 << 20
"""Of the fields in one document that the hub writes."""
VERSION_END = 1 << 53
"""Beyond it JSON's numbers are not exact everywhere; no hub counts as far."""

_encode = msgspec.json.Encoder().encode


def shadow_key(env: str, device: str, part: str) -> str:
    """Return the key of one of a device's four documents."""
    return f"{device_prefix(env, device)}.{part}"


def parse_key(text: str, env: str) -> tuple[str, str | None]:
    """Read a device's id, or a key of the bucket with dots or slashes: the device, the document.

    `env` is the hub's environment; "" where it is not known.

    Raises:
        HubError: it is neither, or of another environment.
    """
    tokens = text.replace("/", ".").split(".")
    if len(tokens) == 1 and DEVICE_ID.match(text):
        return text, None
    match tokens:
        case ["fleet", its, "veh", device, part] if part in PARTS and DEVICE_ID.match(device):
            if env and its != env:
                raise HubError(f"{text} is of another environment; this hub's is {env}")
            return device, part
    raise HubError(
        f"{text!r} is no device, and no key of a shadow",
        hint=f"VID-001, or fleet/{env}/veh/VID-001/ and one of {', '.join(PARTS)}",
    )


@lru_cache(16_384)
def field_name(key: HeadKey) -> str:
    """Return the name of a series in a document."""
    return ".".join(encode_token(name) for name in key[1:] if name)


def read_desired(body: bytes) -> dict[HeadKey, Value | None]:
    """Return the wish of a document `desired`: a value, or None to have the point deleted.

    Raises:
        WriteRefusedError: it cannot be taken, for the reason given.
    """
    if len(body) > DESIRED_BYTES_MAX:
        raise WriteRefusedError(f"{len(body)} bytes; at most {DESIRED_BYTES_MAX} are taken")
    document = read_object(body)
    if len(document) > FIELDS_MAX:
        raise WriteRefusedError(f"{len(document)} fields; at most {FIELDS_MAX} are taken")
    found: dict[HeadKey, Value | None] = {}
    for name, said in document.items():
        key = field_key(name)
        if key in found:
            raise WriteRefusedError(f"{field_name(key)} is in it twice")
        try:
            found[key] = _value(said, name.partition(":")[2])
        except CodecError as error:
            raise WriteRefusedError(f"{name[:80]}: {error.reason}") from error
    return found


def read_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object. Raises: WriteRefusedError, for anything else, and for a name twice."""
    try:
        document = read_json(body)
    except JsonError as error:
        raise WriteRefusedError(f"no JSON to be taken: {error.reason}") from error
    if not isinstance(document, dict):
        raise WriteRefusedError('no JSON object: {"gps.rate": 5} is one')
    return document


def version_of(body: bytes) -> int:
    """Return the version of a document that the hub wrote; 0 where somebody else has written there."""
    try:
        version = read_object(body).get("version")
    except WriteRefusedError:
        return 0
    # True would be a number, too.
    return version if type(version) is int and 0 < version < VERSION_END else 0


def field_key(name: str) -> HeadKey:
    """Return the series that a field of `desired` names. Raises: WriteRefusedError."""
    try:
        return HeadKey("", *parse_path(name.partition(":")[0]))
    except CodecError as error:
        raise WriteRefusedError(error.reason) from error


def desired_field(key: HeadKey, value: Value | None) -> tuple[str, Any]:
    """Return name and content of a field of `desired` that asks for a value, or for deletion."""
    if value is None:
        return field_name(key), None
    said, dtype = value_to_json(value)
    return field_name(key) + ("" if _evident(said, dtype) else f":{dtype}"), said


def edited(
    document: Mapping[str, Any], changed: Mapping[HeadKey, Value | None], forgotten: set[HeadKey]
) -> dict[str, Any]:
    """Return `desired` with some fields changed and some left out, however they were spelled."""
    touched = {*changed, *forgotten}
    kept = {name: said for name, said in document.items() if field_key(name) not in touched}
    return kept | dict(desired_field(key, value) for key, value in changed.items())


def shown(values: Mapping[HeadKey, Value]) -> dict[str, Any]:
    """Return values as they stand in a document: `fields`, and `dtypes` where JSON does not tell.

    What does not fit in SHOWN_BYTES_MAX is left out, the largest first, and counted in `left_out`.
    """
    fields: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    for key in sorted(values):
        name = field_name(key)
        fields[name], dtype = value_to_json(values[key])
        if not _evident(fields[name], dtype):
            dtypes[name] = dtype
    kept = fitting(fields)
    left_out = len(fields) - len(kept)
    return {
        "fields": kept,
        **({"dtypes": {name: dtypes[name] for name in kept if name in dtypes}} if dtypes else {}),
        **({"left_out": left_out} if left_out else {}),
    }


def fitting(fields: dict[str, Any], bytes_max: int = SHOWN_BYTES_MAX) -> dict[str, Any]:
    """Return the fields that fit into so many bytes of JSON, in their order; the largest go first."""
    if len(_encode(fields)) <= bytes_max:  # nearly always, and quickly told
        return fields
    sizes = {name: len(_encode(name)) + len(_encode(said)) + 2 for name, said in fields.items()}
    left = bytes_max - sum(sizes.values())
    gone: set[str] = set()
    for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
        if left >= 0:
            break
        gone.add(name)
        left += sizes[name]
    return {name: said for name, said in fields.items() if name not in gone}


def _value(said: Any, dtype: str) -> Value | None:
    if dtype:
        return value_from_json(said, dtype)
    if said is None:
        return None
    if isinstance(said, bool):
        raise CodecError("true and false are no value of a point: 0, 1, or :json after it", "value")
    return value_from_json(said, "json" if isinstance(said, dict | list) else None)


def _evident(said: Any, dtype: str) -> bool:
    """Tell whether a field without a dtype would be read as this one."""
    match dtype:
        case "float64":
            return not isinstance(said, str)
        case "json":
            return isinstance(said, dict | list)
    return dtype == "text"
