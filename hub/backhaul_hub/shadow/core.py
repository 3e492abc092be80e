"""The shadow of each device: the desired values, and the contents of its four documents. Pure.

`desired` is a wish with a time. Each field of it that changes becomes one write of the hub, and from
there on the merge decides like anywhere else: a newer write, of the vehicle or by another way at the
hub, stands. The wish is neither rewritten nor repeated then; the difference is in `delta`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from backhaul_codec import CodecError, Value
from backhaul_codec.rules import require_name
from backhaul_codec.state.merge import Head, HeadKey
from backhaul_hub.db.change import RowChange
from backhaul_hub.device import FLEET
from backhaul_hub.errors import WriteRefusedError
from backhaul_hub.shadow.delta import difference, fulfils, same, stands, writer
from backhaul_hub.shadow.document import (
    CONFIG,
    DESIRED,
    META,
    REPORTED,
    desired_field,
    field_name,
    fitting,
    read_desired,
    shown,
)
from backhaul_hub.shadow.state import DesiredRefusal, DeviceShadow, Edition, shadow_of, shadow_row
from backhaul_hub.sync.core import HubSync, PlannedWrite
from backhaul_hub.sync.heads import HeadChange, hub_origin, is_hub_origin
from backhaul_hub.sync.writes import Put
from backhaul_hub.timestamps import rfc3339
from backhaul_runtime.clock import Clock

WHO = "shadow"
"""In the origin of what nobody in particular has desired: hub:shadow."""
CONFLICTS_MAX = 100
"""Named in `meta`, the newest; `backhaul-hub conflicts` has all."""
_UNKNOWN_MAX = 1000

_encode = msgspec.json.Encoder().encode


class Desired(NamedTuple):
    """One revision of a device's `desired`, as the bucket holds it."""

    device: str
    revision: int
    stored_ns: int
    body: bytes | None
    """None where the key was deleted: then nothing is desired."""
    who: str = ""


class Taken(NamedTuple):
    """A revision of `desired` that can be taken, and all that goes into hub.db for it."""

    device: str
    shadow: DeviceShadow
    write: PlannedWrite | None
    changes: list[RowChange]

    @property
    def points(self) -> int:
        """Count the written documents."""
        return sum(len(each.points) for each in self.write.writes) if self.write else 0


class Document(NamedTuple):
    """One document to be written into the bucket."""

    device: str
    part: str
    body: bytes
    edition: Edition


class Shadows:
    """All shadows, in memory, beside the heads.

    Args:
        core: heads, conflicts, and what devices have said.
        devices: tells which devices there are.
    """

    def __init__(self, clock: Clock, core: HubSync, devices: Callable[[], Collection[str]]) -> None:
        self._clock = clock
        self._core = core
        self._devices = devices
        self._shadows: dict[str, DeviceShadow] = {}

    def restore(self, rows: Iterable[tuple[str, str]]) -> list[str]:
        """Take in rows of table `shadow`; return the devices whose row is damaged."""
        damaged: list[str] = []
        for device, text in rows:
            try:
                self._shadows[device] = shadow_of(text)
            except (msgspec.DecodeError, CodecError, WriteRefusedError):
                damaged.append(device)
        return damaged

    def of(self, device: str) -> DeviceShadow:
        """Return a device's shadow; an empty one where nothing is known."""
        return self._shadows.setdefault(device, DeviceShadow())

    def devices(self) -> list[str]:
        """Return the devices that may have documents."""
        return sorted({*self._devices(), *self._shadows})

    def note(self, change: HeadChange) -> bool:
        """Take in that a head has changed; return whether a document may be another now."""
        device, key, head, before = change
        if device == FLEET or key.parent:
            return False
        held = self.of(device).held
        if self._vehicle_has(device, head):
            held.pop(key, None)
        elif before is not None and self._vehicle_has(device, before):
            held.setdefault(key, before)
        return True

    def take(self, desired: Desired) -> Taken | None:
        """Return the writes for a revision of `desired`, None where it is known already.

        Raises:
            WriteRefusedError: it cannot be done, so nothing of it is.
        """
        device, mine = desired.device, self.of(desired.device)
        if device not in self._devices():
            raise WriteRefusedError(f"there is no device {device}")
        wanted = {} if desired.body is None else read_desired(desired.body)
        origin = hub_origin(desired.who or WHO)
        try:
            require_name(origin, "origin")
        except CodecError as error:
            raise WriteRefusedError(str(error)) from error
        stamp = Head(self._clock.now_ns(), origin, 0.0)
        wishes = {key: _wish(value, stamp) for key, value in wanted.items()}
        # What was desired before keeps its time, and is not written again: else wish and vehicle
        # would overwrite each other for ever.
        wishes |= {
            key: before
            for key, before in mine.wishes.items()
            if key in wishes and same(wishes[key], before)
        }
        new = [
            key for key in wishes if key not in mine.wishes or wishes[key] is not mine.wishes[key]
        ]
        puts = [
            Put(key, wanted[key], wishes[key].deleted)
            for key in new
            if not (wishes[key].deleted and fulfils(self._core.heads.get(device, key), wishes[key]))
        ]
        write = self._core.plan(device, _by_node(puts), origin) if puts else None
        for addressed in (
            addressed for each in (write.writes if write else ()) for addressed in each.points
        ):
            key = HeadKey.of(*addressed)
            wishes[key] = replace(wishes[key], time=addressed.point.time)
        if not new and (mine.revision, mine.wishes) == (desired.revision, wishes):
            return None
        after = replace(
            mine,
            wishes=wishes,
            revision=desired.revision,
            desired_ns=desired.stored_ns,
            refused=None,
        )
        return Taken(
            device, after, write, [*(write.changes if write else ()), shadow_row(device, after)]
        )

    def apply(self, taken: Taken) -> None:
        """Take in the stored rows."""
        self._shadows[taken.device] = taken.shadow
        if taken.write is not None:
            self._core.apply(taken.write)

    def refuse(self, desired: Desired, reason: str) -> RowChange | None:
        """Take in why a revision is not taken; return the rows to store, None where that is known."""
        device = desired.device
        if device not in self._shadows and len(self._shadows) > len(self._devices()) + _UNKNOWN_MAX:
            return None  # anybody may have written keys of devices that there are not
        mine, refusal = self.of(device), DesiredRefusal(desired.revision, desired.stored_ns, reason)
        if mine.refused == refusal:
            return None
        mine.refused = refusal
        return shadow_row(device, mine)

    def documents(self, device: str, *, all_of_them: bool = False) -> list[Document]:
        """Return those of a device's documents that are others now than the bucket's; or all."""
        mine, heads = self.of(device), self._heads(device)
        mine.held = {
            key: held
            for key, held in mine.held.items()
            if key in heads and not self._vehicle_has(device, heads[key])
        }
        has = {
            key: head if self._vehicle_has(device, head) else mine.held.get(key)
            for key, head in heads.items()
        }
        found: dict[str, Document] = {}
        for part, values in ((REPORTED, has), (CONFIG, heads)):
            said = shown({key: head.value for key, head in values.items() if stands(head)})
            if said["fields"] or part in mine.editions:
                found[part] = self._document(device, part, said)
        if found or mine.revision or mine.refused:
            said = {part: _version(document.edition) for part, document in found.items()}
            found[META] = self._document(device, META, said | self._meta(device, has, heads))
        return [
            document
            for part, document in found.items()
            if all_of_them or document.edition != mine.editions.get(part)
        ]

    def published(self, documents: Iterable[Document]) -> list[RowChange]:
        """Take in the bucket's documents; return the rows to store."""
        devices = set()
        for document in documents:
            self.of(document.device).editions[document.part] = document.edition
            devices.add(document.device)
        return [shadow_row(device, self.of(device)) for device in devices]

    def overtaken(self, device: str, part: str, version: int) -> bool:
        """Take in which version of a document the bucket has; return whether ours is an older one.

        Then the next one follows that, whatever it says.
        """
        editions = self.of(device).editions
        if version <= editions.get(part, Edition()).version:
            return False
        editions[part] = Edition(version)
        return True

    def parts_written(self, device: str) -> set[str]:
        """Return which of a device's documents the bucket has, unless it was lost."""
        desired = {DESIRED} if self.desired_body(device) is not None else set()
        return desired | self.of(device).editions.keys()

    def desired_body(self, device: str) -> bytes | None:
        """Return `desired` as it was taken last, for a bucket that was lost; None if nothing was."""
        wishes = self.of(device).wishes
        fields = [
            desired_field(key, None if wish.deleted else wish.value)
            for key, wish in sorted(wishes.items())
        ]
        return _encode(dict(fields)) if fields else None

    def _document(self, device: str, part: str, said: dict[str, Any]) -> Document:
        """Return a document; with another version and time only where it says something else."""
        edition = self.of(device).editions.get(part, Edition())
        digest = blake2b(_encode(said), digest_size=8).hexdigest()
        if digest != edition.digest:
            edition = Edition(edition.version + 1, self._clock.now_ns(), digest)
        body = {"vid": device, **_version(edition), **said}
        return Document(device, part, _encode(body), edition)

    def _meta(
        self, device: str, has: Mapping[HeadKey, Head | None], heads: Mapping[HeadKey, Head]
    ) -> dict[str, Any]:
        mine, peer = self.of(device), self._core.peer(device)
        conflicts = [
            {"id": each.id, "field": field_name(each.key), "noticed": rfc3339(each.noticed_ns)}
            for each in self._core.conflicts.of(device)
            if not each.resolved_ns and not each.key.parent
        ]
        wish = {"revision": mine.revision, "time": rfc3339(mine.desired_ns)}
        fields = {
            field_name(key): {
                "time": rfc3339(head.time),
                "origin": writer(head),
                "confirmed": self._vehicle_has(device, head),
            }
            for key, head in heads.items()
            if stands(head)
        }
        delta = {
            field_name(key): difference(wish, has.get(key), heads.get(key))
            for key, wish in sorted(mine.wishes.items())
            if not (fulfils(heads.get(key), wish) and fulfils(has.get(key), wish))
        }
        refused = mine.refused
        return {
            "desired": wish if mine.revision else None,
            "delta": fitting(delta),
            "refused": refused
            and {
                "revision": refused.revision,
                "time": rfc3339(refused.time_ns),
                "reason": refused.reason,
            },
            "conflicts": conflicts[-CONFLICTS_MAX:],
            "clock": peer.clock.words[-1].said if peer.clock.words else None,
            "in_sync": peer.in_sync,
            "fields": fitting(fields),
        }

    def _heads(self, device: str) -> dict[HeadKey, Head]:
        """Return the heads of a device that are fields: those of its nodes, not of its tree."""
        if device not in self._devices():
            return {}
        return dict(
            sorted((key, head) for key, head in self._core.heads.of(device).heads if not key.parent)
        )

    def _vehicle_has(self, device: str, head: Head) -> bool:
        """Tell whether the vehicle is known to have a head: it wrote it, or has confirmed it."""
        return not is_hub_origin(head.origin) or head.time <= self._core.peer(device).agreed_ns


def _by_node(puts: Iterable[Put]) -> list[list[Put]]:
    nodes: dict[str, list[Put]] = {}
    for put in puts:
        nodes.setdefault(put.key.node, []).append(put)
    return list(nodes.values())


def _wish(value: Value | None, stamp: Head) -> Head:
    return replace(stamp, tombstone=1) if value is None else replace(stamp, value=value)


def _version(edition: Edition) -> dict[str, Any]:
    return {"version": edition.version, "time": rfc3339(edition.time_ns)}
