"""A vehicle's words on its own lanes and clock: the system events that continuity is told.

`e.receipt` what will never come, `e.mark` how far each lane was at a time, `e.epoch` that a ledger
took another's place, `e.clock` how good the stamps are, `e.key` how far the change of its key is; and the
hub's word of what was imported, `e.import`. Pure: bytes in, words out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from backhaul_codec import Opaque, decode
from backhaul_codec.kinds import LIVE, SYSTEM
from backhaul_codec.points import JSON
from backhaul_codec.strict.json import JsonError, read_typed
from backhaul_codec.subjects import IMPORT, SubjectError, Uplink, node_of_lane
from backhaul_codec.wire.envelope import HASH_BYTES

FORKED = "the hub holds another history of this epoch: another machine has written in it"
"""Why an epoch is over, in `e.epoch`: the vehicle found another message at the hub than its own."""
SPARE = "a spare epoch: it has what was moved, and nothing more"
"""Why a spare epoch is over, in `e.epoch`: the vehicle moved messages there whose places others had."""
_PERSON = b"backhaul spare"
# Text of a vehicle that goes into hub.db and onto screens.
_TEXT_CHARACTERS_MAX = 200
_LANES_MAX = 1024

Epoch = Annotated[int, Meta(ge=1, lt=1 << 32)]
Seq = Annotated[int, Meta(ge=1, lt=1 << 62)]
LastSeq = Annotated[int, Meta(ge=0, lt=1 << 62)]
Hash = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{{2 * HASH_BYTES}}})?$")]
_INT64_MAX = (1 << 63) - 1
Nanoseconds = Annotated[int, Meta(ge=-_INT64_MAX, le=_INT64_MAX)]
Quality = Literal["synced", "holdover", "unset"]
Hour = Annotated[int, Meta(ge=-_INT64_MAX // 3_600_000_000_000, le=_INT64_MAX // 3_600_000_000_000)]
KeyState = Literal["made", "written", "failed"]


def spare_of(epoch: int) -> int:
    """Return the epoch to which messages go whose places in this one another's messages have."""
    digest = blake2b(epoch.to_bytes(4, "little"), digest_size=4, person=_PERSON).digest()
    return int.from_bytes(digest, "little") or 1


def forked_by(old: int, why: str, known: Iterable[int]) -> set[int]:
    """Return the epochs of which a vehicle's `e.epoch` says that another machine wrote in them.

    It says so of the epoch itself (`FORKED`), or names the spare epoch to which it moved the messages whose
    places were taken (`SPARE`).

    Args:
        old: the epoch that is over.
        why: the vehicle's reason.
        known: epochs in which the vehicle wrote.
    """
    if why == FORKED:
        return {old}
    return {each for each in known if spare_of(each) == old} if why == SPARE else set()


class WordError(ValueError):
    """A system event with other contents than its kind must have; `kind` is the event's."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Receipt:
    """Some seqs of a lane will never come."""

    lane: str
    epoch: int
    low: int
    high: int
    reason: str
    chain: bytes = b""
    """The hash that the message behind them has for its link; empty where it is not said."""


@dataclass(frozen=True, slots=True)
class MarkWord:
    """All that was acknowledged before `time_ns` stands in seqs up to those of `lanes`."""

    time_ns: int
    epoch: int
    lanes: Mapping[str, int]
    why: str
    chain: Mapping[str, str] = field(default_factory=dict)
    """By lane: the hash of its message at that seq, in hex, where it is known."""


@dataclass(frozen=True, slots=True)
class EpochWord:
    """The ledger of epoch `old` is no more; `lanes`: the last seqs that its copy knew."""

    time_ns: int
    old: int
    new: int
    why: str
    lanes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClockWord:
    """How good the stamps are that follow on the lane.

    `offset_ns`: hub's time minus the clock's. `error_ns`: of the stamps at most, None where the
    vehicle cannot tell. `step_ns`: by how much what the hub says contradicts what it said before,
    where the vehicle does not follow it (yet).
    """

    time_ns: int
    quality: Quality
    offset_ns: int
    error_ns: int | None
    boot: int | str
    step_ns: int | None = None


@dataclass(frozen=True, slots=True)
class KeyWord:
    """How far the vehicle is with a rotation (protocol/rotation.py): a key made, its login written, or neither.

    `proof`: of a key that was made; to be checked. `why`: it failed.
    """

    id: str
    state: KeyState
    public_key: str
    proof: str
    why: str


@dataclass(frozen=True, slots=True)
class ImportWord:
    """The hub's word: rows of a recording stand in the seqs of this epoch up to the message that says so.

    `hours`: (hours since 1970, readings), of the readings' own times.
    """

    source: str
    first_row: int
    last_row: int
    hours: tuple[tuple[int, int], ...]


Word = Receipt | MarkWord | EpochWord | ClockWord | KeyWord | ImportWord


class _ReceiptBody(msgspec.Struct, frozen=True):
    lane: str
    epoch: Epoch
    lo: Seq
    hi: Seq
    reason: str
    chain: Hash = ""


class _MarkBody(msgspec.Struct, frozen=True):
    epoch: Epoch
    lanes: Annotated[dict[str, LastSeq], Meta(max_length=_LANES_MAX)]
    why: str = ""
    chain: Annotated[dict[str, Hash], Meta(max_length=_LANES_MAX)] = {}


class _EpochBody(msgspec.Struct, frozen=True):
    old: Epoch
    new: Epoch
    why: str = ""
    lanes: Annotated[dict[str, LastSeq], Meta(max_length=_LANES_MAX)] = {}


class _ClockBody(msgspec.Struct, frozen=True):
    quality: Quality
    offset_ns: Nanoseconds = 0
    error_ns: Nanoseconds | None = None
    boot: int | str = 0
    step_ns: Nanoseconds | None = None


class _KeyBody(msgspec.Struct, frozen=True):
    id: Annotated[str, Meta(max_length=64)]
    state: KeyState
    public_key: Annotated[str, Meta(max_length=64)] = ""
    proof: Annotated[str, Meta(max_length=128)] = ""
    why: str = ""


class _ImportBody(msgspec.Struct, frozen=True):
    source: Annotated[str, Meta(max_length=64)]
    rows: tuple[LastSeq, LastSeq]  # the second one not included
    hours: list[tuple[Hour, Seq]]


_Body = TypeVar("_Body", _ReceiptBody, _MarkBody, _EpochBody, _ClockBody, _KeyBody, _ImportBody)


def read_word(uplink: Uplink, epoch: int, body: bytes) -> Word | None:
    """Return the words of a system event, None where the message is none of those kinds.

    Args:
        uplink: its subject.
        epoch: that of its envelope: a vehicle marks the lanes of the ledger that speaks.
        body: its envelope, checked.

    Raises:
        WordError: it is of one of the kinds and says something else.
    """
    if uplink.kind is not SYSTEM:
        return None
    match uplink.type:
        case "receipt":
            return _receipt(body)
        # The others speak for the whole device, in the lane that is the device's.
        case "mark" if uplink.lane == LIVE:
            return _mark(epoch, body)
        case "epoch" if uplink.lane == LIVE:
            return _epoch(body)
        case "clock" if uplink.lane == LIVE:
            time_ns, said = _read("clock", body, _ClockBody)
            return ClockWord(
                time_ns, said.quality, said.offset_ns, said.error_ns, said.boot, said.step_ns
            )
        case "key" if uplink.lane == LIVE:
            _, key = _read("key", body, _KeyBody)
            why = key.why[:_TEXT_CHARACTERS_MAX]
            return KeyWord(key.id, key.state, key.public_key, key.proof, why)
        case "import" if uplink.lane == IMPORT:
            _, rows = _read("import", body, _ImportBody)
            return ImportWord(rows.source, *rows.rows, tuple(rows.hours))
    return None


def _receipt(body: bytes) -> Receipt:
    _, said = _read("receipt", body, _ReceiptBody)
    _require_lanes("receipt", [said.lane])
    if said.lo > said.hi:
        raise WordError("receipt", f"a receipt for no range: {said.lo}..{said.hi}")
    reason, chain = said.reason[:_TEXT_CHARACTERS_MAX], bytes.fromhex(said.chain)
    return Receipt(said.lane, said.epoch, said.lo, said.hi, reason, chain)


def _mark(epoch: int, body: bytes) -> MarkWord:
    time_ns, said = _read("mark", body, _MarkBody)
    _require_lanes("mark", said.lanes)
    if said.epoch != epoch:
        raise WordError("mark", f"a mark of epoch {said.epoch} in a message of epoch {epoch}")
    return MarkWord(time_ns, epoch, said.lanes, said.why[:_TEXT_CHARACTERS_MAX], said.chain)


def _epoch(body: bytes) -> EpochWord:
    time_ns, said = _read("epoch", body, _EpochBody)
    _require_lanes("epoch", said.lanes)
    if said.old == said.new:
        raise WordError("epoch", f"epoch {said.new} in its own place")
    return EpochWord(time_ns, said.old, said.new, said.why[:_TEXT_CHARACTERS_MAX], said.lanes)


def _read(kind: str, body: bytes, type_: type[_Body]) -> tuple[int, _Body]:
    point = decode(body, node="-", type="-", key="").points[0]
    value = point.value
    if not isinstance(value, Opaque) or value.dtype != JSON:
        raise WordError(kind, f"a {kind} whose value is no JSON")
    try:
        return point.time, read_typed(value.data, type_)
    except JsonError as error:
        raise WordError(kind, f"a {kind} that is none: {error}") from error


def _require_lanes(kind: str, lanes: Mapping[str, int] | list[str]) -> None:
    for lane in lanes:
        try:
            node_of_lane(lane)
        except SubjectError as error:
            raise WordError(kind, f"a {kind} of no lane: {error}") from error
