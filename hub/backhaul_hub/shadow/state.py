"""The state of one device's shadow besides its heads, and its row in hub.db. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from backhaul_codec.state.merge import Head, HeadKey
from backhaul_hub.db.change import RowChange
from backhaul_hub.shadow.document import field_key, field_name
from backhaul_hub.sync.heads import head_body, head_of


class Edition(msgspec.Struct, frozen=True):
    """The newest version of a document that the hub has written."""

    version: int = 0
    time_ns: int = 0
    digest: str = ""


class DesiredRefusal(msgspec.Struct, frozen=True):
    """Why a revision of `desired` was not taken."""

    revision: int
    time_ns: int
    reason: str


@dataclass(slots=True)
class DeviceShadow:
    """The state of one device's shadow besides its heads."""

    wishes: dict[HeadKey, Head] = field(default_factory=dict)
    """What `desired` asked for when it was taken last, with the stamps it was written with. One that
    is deleted asks for deletion."""
    revision: int = 0
    """Of `desired`: the last that was taken."""
    desired_ns: int = 0
    refused: DesiredRefusal | None = None
    held: dict[HeadKey, Head] = field(default_factory=dict)
    """What the vehicle last had of series that the hub has written since."""
    editions: dict[str, Edition] = field(default_factory=dict)


class _Stored(msgspec.Struct):
    """A shadow as it stands in table `shadow`; heads as point messages."""

    wishes: dict[str, bytes]
    held: dict[str, bytes]
    revision: int
    desired_ns: int
    refused: DesiredRefusal | None
    editions: dict[str, Edition]


def shadow_row(device: str, shadow: DeviceShadow) -> RowChange:
    """Return the statement that stores a shadow."""
    stored = _Stored(
        _bodies(shadow.wishes),
        _bodies(shadow.held),
        shadow.revision,
        shadow.desired_ns,
        shadow.refused,
        shadow.editions,
    )
    row = (device, msgspec.json.encode(stored).decode())
    return RowChange("INSERT OR REPLACE INTO shadow VALUES (?, ?)", [row])


def shadow_of(text: str) -> DeviceShadow:
    """Read column `state`. Raises: msgspec.DecodeError, CodecError, WriteRefusedError."""
    stored = msgspec.json.decode(text, type=_Stored)
    return DeviceShadow(
        _heads_of(stored.wishes),
        stored.revision,
        stored.desired_ns,
        stored.refused,
        _heads_of(stored.held),
        stored.editions,
    )


def _bodies(heads: Mapping[HeadKey, Head]) -> dict[str, bytes]:
    return {field_name(key): head_body(key, head) for key, head in heads.items()}


def _heads_of(bodies: Mapping[str, bytes]) -> dict[HeadKey, Head]:
    return {field_key(name): head_of(body) for name, body in bodies.items()}
