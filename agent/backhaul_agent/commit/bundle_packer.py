"""Packs bundles against dictionaries that the hub holds, and decides when a new one is worth sending. Pure.

Most of a small bundle is names and structure that former bundles had as well. What they had in common is a
*dictionary*: it goes to the hub once, as a message of lane bulk, and later bundles are packed against it. None
is used before the hub has confirmed the message that brought it. Where the hub has lost one, it asks for it,
and it is not used until that is confirmed anew.

A new one must prove itself: it is made of recent bundles, and tried on some that come after. Trials that follow
one another, whether they win or lose, have growing pauses, so that a vehicle whose readings change for ever
does not send dictionaries for ever. The very first trial is an *early* one, of one bundle on the next: each bundle
without a dictionary costs as much as three with one. Where bundles are suddenly unlike those of the last trial, as when
a gateway has other work, an early one comes at once; such trials have growing pauses of their own.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import structlog
from msgspec import Meta

from backhaul_agent.commit.participant import AT_ONCE_S, CommitParticipant
from backhaul_agent.ledger import dictionary_rows
from backhaul_agent.ledger.rows import DictionaryRow, Outgoing
from backhaul_codec.kinds import BULK
from backhaul_codec.strict.json import JsonError, Reader
from backhaul_codec.subjects import BUNDLE_SUBJECT, dictionary_subject
from backhaul_codec.wire.compression import DEFLATE_LEVEL
from backhaul_codec.wire.dictionaries import (
    DICTIONARY_BYTES_MAX,
    DIGEST_BYTES,
    digest_of,
    encode_dictionary,
    pack_with,
)
from backhaul_codec.wire.envelope import peek, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backhaul_agent.commit.participant import Draft
    from backhaul_agent.errors import RefusedError
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import Inbound, LedgerChanges

KEPT_MAX = 16
"""A quarter of what the hub keeps of one vehicle: those that it must have are never among those it lets go."""
IN_USE_NS = 7 * 86_400 * 1_000_000_000
"""One that was used so lately makes no room for another."""
GATHERED_MAX = 16
"""So many bundles make a dictionary at most."""
FRESH_PART = 0.25
"""A bundle of which the others leave more than this part brings something of its own."""
TRIALS = 3
EARLY_BYTES_MIN = 128
"""The very first one saves so much of a bundle: it pays within a few. Single readings wait for one that knows more of them."""
EARLY_MAX = 8
"""So many early trials may lose in a row: the first bundles of a program need not be like those to come."""
WORTH_PART = 0.85
"""A new dictionary leaves at most this part of what the known ones leave, or is not sent."""
GATHER_S = 10.0
"""Before a trial that is no early one: nodes that speak in turn have all spoken then, mostly."""
PAUSE_S, PAUSE_S_MAX = 60.0, 3600.0
UNLIKE_PART = 1.25
"""Of a bundle that is unlike those of the last trial the dictionaries leave more than this part of what they left then."""
UNLIKE_BUNDLES = 3
"""So many of them in a row are no accident."""
TRIED_MAX = 2
"""Of the known dictionaries, a bundle is packed against those that served last."""
USED_NOTED_NS = 86_400 * 1_000_000_000
log = structlog.get_logger("dictionaries")


@dataclass(slots=True)
class _Trial:
    """A dictionary on trial: the bytes that it leaves of the bundles since, beside those that the known ones leave."""

    body: bytes
    early: bool = False
    bundles: int = 0
    bytes: int = 0
    known_bytes: int = 0
    own_bytes: int = 0


class BundlePacker(CommitParticipant):
    """The dictionaries of one ledger. ``now_ns``: the hub's time."""

    def __init__(self, ledger: Ledger, now_ns: Callable[[], int]) -> None:
        self.packed = 0
        self._ledger = ledger
        self._now_ns = now_ns
        self._asked: dict[bytes, None] = {}
        known = ledger.dictionaries
        # Those that served, the last one first.
        self._lately = sorted(known, key=lambda digest: known[digest].used_ns, reverse=True)
        self._gathered: deque[bytes] = deque(maxlen=GATHERED_MAX)
        self._early = 0 if known else EARLY_MAX  # so many early trials may still lose
        self._trial: _Trial | None = None
        self._trial_due_s: float | None = None
        self._pause_s = PAUSE_S
        self._fit: float | None = (
            None  # the part that dictionaries left of the bundles of the last trial
        )
        self._unlike = 0
        self._unlike_due_s, self._unlike_pause_s = 0.0, PAUSE_S
        self._new: bytes | None = None  # has proven itself, and is to be sent
        # Up to where of lane bulk (epoch, seq) messages may be packed against one: what was there at the start, and
        # by digest what came since.
        self._began_at = (ledger.epoch, ledger.lanes[BULK].last_seq)
        self._used_up_to: dict[bytes, tuple[int, int]] = {}
        self._changed: dict[bytes, DictionaryRow | None] = {}
        self._sending: list[bytes] = []
        self._unwritten: dict[bytes, DictionaryRow] = {}  # learnt from OUT
        self._writing: dict[bytes, DictionaryRow] = {}  # of those, what the last draft has

    def status(self) -> dict[str, Any]:
        """Return the part of the ledger's status."""
        waiting = sum(not row.confirmed for row in self._known.values())
        return {
            "dictionaries": len(self._known),
            "dictionaries_unconfirmed": waiting,
            "bundles_packed": self.packed,
        }

    def lookup(self, digest: bytes) -> bytes | None:
        """Return a dictionary, also one just learnt; None where this vehicle does not have it."""
        row = self._unwritten.get(digest)
        return row.body if row else self._ledger.lookup(digest)

    @property
    def _known(self) -> dict[bytes, DictionaryRow]:
        return self._ledger.dictionaries  # read back after a commit of unknown outcome

    def learn(self, body: bytes, epoch: int, seq: int) -> None:
        """Take in a dictionary that a message in OUT brings, and this ledger did not send."""
        digest = digest_of(body)
        if digest not in self._known:
            self._unwritten[digest] = DictionaryRow(body, epoch, seq, False, self._now_ns())

    def on_message(self, message: Inbound, changes: LedgerChanges) -> None:
        """Take in that the hub lacks a dictionary; it is sent with the next commit.

        Raises:
            ValueError: the message does not say so, or this vehicle does not have it.
        """
        digest = _read_asked(message.data)
        if digest in self._known:
            if message.fresh:
                self._asked[digest] = None
        elif message.fresh:
            raise ValueError(f"the hub asks for dictionary {digest.hex()}, which is not here")

    def due_s(self) -> float | None:
        """Return that it is due if the hub waits for one, or one is new."""
        return AT_ONCE_S if self._asked or self._new or self._unwritten else None

    def contribute(self, draft: Draft) -> None:
        """Pack the bundles of the draft; send the dictionaries that are asked for, and one that is new."""
        self._changed, self._sending, self._writing = {}, [], {}
        # A commit that failed may have been written after all, and what it dropped is gone.
        self._lately = [digest for digest in self._lately if digest in self._known]
        changes = draft.changes
        if (
            changes.opening is not None
        ):  # seqs of that epoch are not known yet: with the next commit
            return
        self._writing = dict(self._unwritten)  # more may be learnt while it is written
        for row in self._writing.values():
            changes.commands.append(dictionary_rows.taken_in(row))
        self._hear(changes)
        bodies = [self._known[digest].body for digest in self._asked]
        changes.messages = [self._packed(changes, each, draft.now_s) for each in changes.messages]
        if self._new is not None and self._has_room(changes):
            bodies.append(self._new)
        for body in bodies:
            self._sending.append(body)
            digest, message = digest_of(body), encode_dictionary(body)
            changes.messages.append(Outgoing(BULK, dictionary_subject(digest), message))
            changes.commands.append(dictionary_rows.sent(body, self._now_ns()))

    def committed(self, draft: Draft) -> None:
        """Take over where the sent ones stand: they are the last of their lane."""
        if draft.changes.opening is not None:
            return
        self._known.update(self._writing)
        self._lately += self._writing
        self._unwritten = {
            digest: row for digest, row in self._unwritten.items() if digest not in self._writing
        }
        for digest, row in self._changed.items():
            if row is None:
                self._known.pop(digest, None)
                self._lately = [each for each in self._lately if each != digest]
            else:
                self._known[digest] = row
        lane = self._ledger.lanes[BULK]
        for back, body in enumerate(reversed(self._sending)):
            digest, seq = digest_of(body), lane.last_seq - back
            self._known[digest] = DictionaryRow(body, lane.epoch, seq, False, self._now_ns())
            self._asked.pop(digest, None)
            if digest not in self._lately:
                self._lately.insert(0, digest)
            log.info("dictionary_sent", digest=digest.hex(), bytes=len(body), seq=seq)
        if self._new in self._sending:
            self._new = None

    def put_back(self, refusal: RefusedError) -> None:
        """Keep the dictionaries that the hub asked for, and new ones, for the next commit.

        The rows that this commit was to drop may be gone all the same.
        """
        for digest in [digest for digest, row in self._changed.items() if row is None]:
            self._known.pop(digest, None)  # where it is not, the ledger reads it back

    def _hear(self, changes: LedgerChanges) -> None:
        """Take in which messages that brought a dictionary the hub holds."""
        for digest, row in self._known.items():
            if row.confirmed or digest in self._asked:
                continue
            if self._is_confirmed(row):
                self._changed[digest] = row._replace(confirmed=True)
                changes.commands.append(dictionary_rows.confirmed(digest))

    def _is_confirmed(self, row: DictionaryRow) -> bool:
        """Whether the hub has said that it holds the message that brought a dictionary.

        Of a former epoch OUT may have held more than the ledger ever knew: of that the hub says no more than that
        it holds all which the ledger knows. Where that is too little it asks for the dictionary.
        """
        lane = self._ledger.lane(BULK, row.epoch)
        if lane is None:  # the hub held all of it, and it was dropped
            return True
        former = lane.epoch != self._ledger.epoch
        return lane.watermark >= (min(row.seq, lane.last_seq) if former else row.seq)

    def _packed(self, changes: LedgerChanges, message: Outgoing, now_s: float) -> Outgoing:
        """Return a bundle packed against the best of some dictionaries, any other message as it is."""
        if message.subject != BUNDLE_SUBJECT or message.boot:
            return (
                message  # stamps inside that wait for the time are not packed until they are right
            )
        usable = [digest for digest in self._lately if self._is_usable(digest)][:TRIED_MAX]
        best, best_digest = message.body, b""
        for digest in usable:
            packed = pack_with(message.body, self._known[digest].body)
            if len(packed) < len(best):
                best, best_digest = packed, digest
        self._consider(message.body, len(best), now_s)
        if not best_digest:
            return message
        self._note_use(changes, best_digest)
        return message._replace(body=best)

    def _row(self, digest: bytes) -> DictionaryRow:
        """Return a dictionary's row as it is once the draft is durable."""
        return self._changed.get(digest) or self._known[digest]

    def _is_usable(self, digest: bytes) -> bool:
        return self._row(digest).confirmed and digest not in self._asked

    def _note_use(self, changes: LedgerChanges, digest: bytes) -> None:
        self.packed += 1
        end = self._ledger.lanes[BULK].last_seq + len(changes.messages)
        self._used_up_to[digest] = (self._ledger.epoch, end)
        if self._lately[0] != digest:
            self._lately.remove(digest)
            self._lately.insert(0, digest)
        row, now_ns = self._row(digest), self._now_ns()
        if now_ns - row.used_ns >= USED_NOTED_NS:
            self._changed[digest] = row._replace(used_ns=now_ns)
            changes.commands.append(dictionary_rows.used(digest, now_ns))

    def _consider(self, bundle: bytes, best_bytes: int, now_s: float) -> None:
        """Gather bundles for a new dictionary, or try one that is made."""
        if self._trial_due_s is None:
            self._trial_due_s = now_s + GATHER_S
        if self._is_waiting():
            return
        trial = self._trial
        if trial is None:
            self._compare(best_bytes / len(bundle), now_s)
            self._gather(bundle, now_s)
            return
        trial.bundles += 1
        trial.bytes += len(bundle)
        trial.known_bytes += best_bytes
        trial.own_bytes += len(pack_with(bundle, trial.body))
        if trial.early or trial.bundles == TRIALS:
            self._end(trial, bundle, now_s)

    def _end(self, trial: _Trial, bundle: bytes, now_s: float) -> None:
        """Have a dictionary sent that has proven itself on bundles up to this one, and set the time of the next trial."""
        wins = trial.own_bytes <= WORTH_PART * trial.known_bytes
        if trial.early and not self._known:
            wins = wins and trial.known_bytes - trial.own_bytes >= EARLY_BYTES_MIN
        if wins:
            self._new = joined([trial.body, unseal(bundle)[1]]) if trial.early else trial.body
        self._fit = (trial.own_bytes if wins else trial.known_bytes) / trial.bytes
        self._unlike = 0
        self._trial = None
        if trial.early:
            self._early = 0 if wins else self._early - 1
            if wins:
                self._trial_due_s = now_s + GATHER_S
            elif self._trial_due_s is None or now_s >= self._trial_due_s:
                self._early = 0
            self._gather(bundle, now_s)
            return
        self._trial_due_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def _compare(self, left: float, now_s: float) -> None:
        """Take in which part of a bundle the dictionaries leave; have a trial come soon where that has become more."""
        unlike = self._fit is not None and left > UNLIKE_PART * self._fit
        self._unlike = self._unlike + 1 if unlike else 0
        if self._unlike < UNLIKE_BUNDLES or now_s < self._unlike_due_s:
            return
        self._unlike, self._fit, self._early = 0, None, EARLY_MAX
        self._trial_due_s = min(self._trial_due_s or now_s, now_s + GATHER_S)
        if now_s > self._unlike_due_s + PAUSE_S_MAX:
            self._unlike_pause_s = PAUSE_S
        self._unlike_due_s = now_s + self._unlike_pause_s
        self._unlike_pause_s = min(2 * self._unlike_pause_s, PAUSE_S_MAX)

    def _gather(self, bundle: bytes, now_s: float) -> None:
        due_s = self._trial_due_s
        begins = self._early > 0 or (due_s is not None and now_s >= due_s - GATHER_S)
        if not begins or peek(bundle).raw_len > DICTIONARY_BYTES_MAX:
            return
        self._gathered.append(unseal(bundle)[1])
        if self._early:
            self._trial = _Trial(self._gathered[-1], early=True)
        elif due_s is not None and now_s >= due_s and len(self._gathered) > 1:
            self._trial = _Trial(joined(self._gathered))
        if self._trial is not None:
            self._gathered.clear()

    def _is_waiting(self) -> bool:
        """Whether one is not confirmed yet, or is to be sent: it will serve, and no other is tried meanwhile."""
        waiting = self._new is not None or bool(self._asked or self._unwritten)
        return waiting or not all(self._row(each).confirmed for each in self._known)

    def _has_room(self, changes: LedgerChanges) -> bool:
        """Whether one more may be kept; the one that was used longest ago makes room for it."""
        if len(self._known) < KEPT_MAX:
            return True
        oldest = min(self._known, key=lambda digest: self._row(digest).used_ns)
        if self._row(oldest).used_ns > self._now_ns() - IN_USE_NS or self._is_owed(oldest):
            self._new = None  # there may be room when the next one has proven itself
            return False
        self._changed[oldest] = None
        changes.commands.append(dictionary_rows.dropped(oldest))
        return True

    def _is_owed(self, digest: bytes) -> bool:
        """Whether the hub may lack messages that are packed against a dictionary."""
        ledger = self._ledger
        if any(name == BULK and not lane.whole for (name, _), lane in ledger.closed.items()):
            return True
        epoch, seq = self._used_up_to.get(digest, self._began_at)
        return epoch == ledger.epoch and ledger.lanes[BULK].watermark < seq


def joined(bodies: Sequence[bytes]) -> bytes:
    """Return a dictionary made of bundles' bodies: of the newest, and of those that bring something of their own."""
    dictionary = bodies[-1]
    for body in reversed(list(bodies)[:-1]):
        if len(dictionary) + len(body) > DICTIONARY_BYTES_MAX:
            break
        if _deflated(body, dictionary) > FRESH_PART * _deflated(body):
            dictionary = body + dictionary  # the newest last: deflate finds the near more cheaply
    return dictionary


def _deflated(body: bytes, dictionary: bytes | None = None) -> int:
    """Return how many bytes deflate makes of a body."""
    preset = () if dictionary is None else (8, zlib.Z_DEFAULT_STRATEGY, dictionary)
    squeezer = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, -15, *preset)
    return len(squeezer.compress(body) + squeezer.flush())


class _Asked(msgspec.Struct, frozen=True):
    """The hub's word that it lacks a dictionary: its digest, in hex."""

    digest: Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{2 * DIGEST_BYTES}}}$")]


_read = Reader(_Asked).read


def _read_asked(data: bytes) -> bytes:
    try:
        return bytes.fromhex(_read(data).digest)
    except JsonError as error:
        raise ValueError(f"no digest of a dictionary: {error}") from error
