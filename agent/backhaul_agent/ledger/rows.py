"""Rows that go into the ledger and come out of it, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.wire.addressed import Addressed

if TYPE_CHECKING:
    from backhaul_agent.hub_time.hub_clock import Boot
    from backhaul_agent.ledger.sequence_offsets import OffsetStep


ROW_BYTES = 128  # what a message costs besides subject and body, here and in a stream: at most
STAGED = "staged"  # stands where a lane's name would, for a row that has no seq yet


def number_of(meta: Mapping[str, str | int], name: str) -> int:
    """Return a number of the meta table, 0 where there is none: no checksum covers it."""
    found = meta.get(name, 0)
    return found if isinstance(found, int) else 0


class Outgoing(NamedTuple):
    """A message to be committed: its envelope is stamped with epoch and seq on the way in.

    ``value_class``: what it is worth when room runs out (ledger/eviction_policy.py); None: as its subject says.
    ``times``: the earliest and latest time of its points, None where it holds none to look up.
    ``boot`` above 0: the agent made its stamps while it did not know the time. Such a message
    stays in the ledger until it is settled (see `CorrectedMessage`).
    """

    lane: str
    subject: str
    body: bytes
    value_class: int | None = None
    times: tuple[int, int] | None = None
    boot: int = 0


class Staged(NamedTuple):
    """Acknowledged points of one node that no frame holds yet (``body``: see framer.pack).

    ``boot`` as of `Outgoing`; ``clock`` is the quality their frame will carry.
    """

    node: str
    points: int
    body: bytes
    boot: int = 0
    clock: int = 0


class CorrectedMessage(NamedTuple):
    """A message that may leave from now on, by its row's id; ``body`` None: as it stands.

    ``shift_ns`` was added to its times.
    """

    id: int
    body: bytes | None
    shift_ns: int = 0


class Pending(NamedTuple):
    """A message that waits to be settled, as read back."""

    id: int
    subject: str
    body: bytes
    boot: int


class Quarantine(NamedTuple):
    """A row to set aside: a message of a lane, or (``lane`` STAGED) a staged row by its id.

    ``epoch`` 0: the current one.
    """

    lane: str
    seq: int
    reason: str
    epoch: int = 0


class HeadRow(NamedTuple):
    """A head as the ledger stores it. ``body`` is a point message; ``crc`` covers everything."""

    parent: str
    node: str
    type: str
    key: str
    crc: int
    body: bytes


class LaneStep(NamedTuple):
    """A step to record for a lane: ``created`` says of which stream (see `steps`).

    ``fresh``: no sequence beyond was ever used in this stream; what was recorded is void.
    ``epoch`` 0: the current one.
    """

    lane: str
    created: str
    step: OffsetStep
    fresh: bool = False
    epoch: int = 0


class Evicted(NamedTuple):
    """Seqs of a lane (its id) that are given up; the receipt that says so goes with them."""

    lane: int
    lo: int
    hi: int
    reason: str


class Adopted(NamedTuple):
    """Messages found in OUT, of an epoch that the ledger does not know or goes further; or moved there.

    They become rows of a former epoch, which is entered where it is not known. ``confirmed``: at most the seq
    before the first of them.
    """

    lane: str
    epoch: int
    rows: Sequence[LedgerRow | OwnRow]


class DictionaryRow(NamedTuple):
    """A dictionary, and where the message that last brought it to the hub stands in lane bulk.

    ``confirmed``: the hub has said that it holds that message. ``used_ns``: when a message was last packed
    against it, a day more or less.
    """

    body: bytes
    epoch: int
    seq: int
    confirmed: bool
    used_ns: int


class Statement(NamedTuple):
    """The writes of a part with tables of its own: SQL and its values."""

    sql: str
    values: tuple[object, ...]


class Opening(NamedTuple):
    """A new epoch that begins with a transaction, the messages of which are its first.

    ``word`` makes the very first, once the old epoch and the last seqs of its lanes are known.
    """

    epoch: int
    word: Callable[[int, dict[str, int]], Outgoing]


@dataclass(slots=True)
class LedgerChanges:
    """The writes of one transaction. Messages of a lane get consecutive seqs in list order.

    ``meta``: facts by name, each replaces what stood there. ``expected``: what must stand there until then.
    """

    messages: list[Outgoing] = field(default_factory=list)
    staged: list[Staged] = field(default_factory=list)
    unstage: list[int] = field(default_factory=list)
    opening: Opening | None = None
    watermarks: dict[str, int] = field(default_factory=dict)  # of the current epoch
    former: dict[tuple[str, int], int] = field(default_factory=dict)  # of (lane, epoch)
    steps: list[LaneStep] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)  # no later seq is sent before it is raised
    quarantine: list[Quarantine] = field(default_factory=list)
    evict: list[int] = field(default_factory=list)  # messages to delete, by their ids
    evicted: list[Evicted] = field(default_factory=list)
    adopted: list[Adopted] = field(default_factory=list)
    boots: list[Boot] = field(default_factory=list)
    settled: list[CorrectedMessage] = field(default_factory=list)
    meta: dict[str, str | int] = field(default_factory=dict)
    expected: dict[str, str | int | None] = field(default_factory=dict)
    heads: list[HeadRow] = field(default_factory=list)
    commands: list[Statement] = field(default_factory=list)  # see `command_rows`
    # The last message of all, made once the epoch and each lane's last seq are known.
    # It gets the hashes of those too, in hex, as far as they are known.
    mark: Callable[[int, dict[str, int], dict[str, str]], Outgoing] | None = None
    time_ns: int = 0

    @property
    def weight(self) -> int:
        """Return about how many bytes of the ledger this takes."""
        messages = (2 * len(m.subject) + len(m.body) + ROW_BYTES for m in self.messages)
        return sum(messages) + sum(len(row.body) + ROW_BYTES for row in self.staged)

    def __bool__(self) -> bool:
        others = ("evicted", "expected", "time_ns")  # they go with what is written
        written = [each.name for each in fields(LedgerChanges) if each.name not in others]
        return any(getattr(self, name) for name in written)


@dataclass(slots=True)
class Inward(LedgerChanges):
    """What follows from messages of the hub; `Owed.add_to` says what of `LedgerChanges` it uses.

    ``received``: points to be merged. ``replaced``: points to be put in place of a head that the hub
    refused, with the time that this head had. ``on_durable``: called once all of it is; never where
    the batch is given up, and read again.
    """

    received: list[Addressed] = field(default_factory=list)
    replaced: list[tuple[Addressed, int]] = field(default_factory=list)
    on_durable: list[Callable[[], None]] = field(default_factory=list)


class OwnRow(NamedTuple):
    """A message with all that the ledger has of it: its row's id, its value class, its times in ns."""

    id: int
    seq: int
    subject: str
    body: bytes
    value_class: int
    t_lo: int | None
    t_hi: int | None


class StagedRow(NamedTuple):
    """A staged row as read back; ``intact`` is False where its checksum does not fit."""

    id: int
    node: str
    points: int
    body: bytes
    intact: bool
    boot: int = 0
    clock: int = 0


class LedgerRow(NamedTuple):
    """A message as read back for appending; with a ``boot`` it must not leave yet.

    ``times``: those of `Outgoing`, where the message does not say them itself, because it is packed.
    """

    seq: int
    subject: str
    body: bytes
    boot: int = 0
    times: tuple[int, int] | None = None


class Inbound(NamedTuple):
    """One message of the hub's. ``tokens``: its subject split, without a node's ``n.<node>.``.

    ``fresh``: False where it was read before. A message is read again after the leaf server started
    anew, see `downlink.position`.
    """

    tokens: list[str]
    data: bytes
    fresh: bool
