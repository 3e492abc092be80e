"""What is not ours, as simple models: the streams of the servers, and the link between them.

Each does what nats-server 2.15 was measured to do, its known faults included (docs/adr).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from backhaul_agent.ledger.system_events import JSON_DTYPE
from backhaul_codec import Point, chain, encode_point, hash_of
from backhaul_codec.points import Opaque
from backhaul_codec.wire.envelope import NO_LINK

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from random import Random


T = TypeVar("T")


class Message(NamedTuple):
    """One message of a lane; ``kind`` says how ``body`` is to be read.

    ``subject`` and ``data`` are what goes over the wire, sealed and linked; ``own`` is its hash.
    """

    lane: str
    epoch: int
    seq: int
    kind: str
    body: object
    time_ns: int
    subject: str = ""
    data: bytes = b""
    link: bytes = NO_LINK
    own: bytes = b""

    @property
    def place(self) -> tuple[str, int, int]:
        """Where it stands in its lane."""
        return self.lane, self.epoch, self.seq

    def linked(self, link: bytes) -> Message:
        """Return it as it leaves: sealed, and linked to the one before it."""
        subject = f"e.app.{self.kind}" if self.kind in ("points", "head") else f"e.{self.kind}"
        value = Opaque(JSON_DTYPE, msgspec.json.encode(repr((self.lane, self.body))))
        point = Point("", self.kind, self.time_ns, value)
        sealed = encode_point(point, epoch=0, seq=0)
        data = chain(sealed, epoch=self.epoch, seq=self.seq, link=link)
        own = hash_of(subject, data)
        return self._replace(subject=subject, data=data, link=link, own=own)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what is a coroutine only because its shell is: over these models it never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise RuntimeError("it waits")


class Appended(NamedTuple):
    """A message in OUT, with what its headers say where it was appended again."""

    message: Message
    position: tuple[int, int] | None = None
    """(epoch, seq) of the lane's position."""


@dataclass
class OutModel:
    """An OUT stream and its durable consumer on the leaf server."""

    created: str
    last_seq: int = 1  # made with first_seq 2
    messages: dict[int, Appended] = field(default_factory=dict)
    synced_seq: int = 1
    floor: int = 1
    """Up to where the durable's consumer has acknowledged."""

    def append(self, appended: Appended, expected: int | None) -> int | None:
        """Store a message only if the last sequence is the one expected; return its sequence."""
        if expected is not None and expected != self.last_seq:
            return None
        self.last_seq += 1
        self.messages[self.last_seq] = appended
        return self.last_seq

    def purge(self, next_seq: int) -> None:
        """Remove everything below, and begin at ``next_seq`` at the earliest."""
        self.messages = {seq: each for seq, each in self.messages.items() if seq >= next_seq}
        self.last_seq = max(self.last_seq, next_seq - 1)
        self.floor = max(self.floor, next_seq - 1)

    def lose_power(self, random: Random) -> None:
        """Go back to what had reached the disk; the durable's state may have, or may not."""
        self.last_seq = self.synced_seq
        self.messages = {seq: each for seq, each in self.messages.items() if seq <= self.last_seq}
        if random.random() < 0.5:
            self.floor = min(self.floor, self.last_seq)

    def copy(self) -> OutModel:
        """Return a copy, to be put back later."""
        return OutModel(self.created, self.last_seq, dict(self.messages), self.last_seq, self.floor)


@dataclass
class Source:
    """The hub's source of one OUT stream: where the hub's server believes to be."""

    created: str = ""
    seq: int = 0
    link: int = 0
    """The link over which it was set up; 0: it is not. Of no matter where all are set up with each link."""
    heard_s: float | None = None
    tried_s: float = 0.0

    def reset(self, out: OutModel, random: Random, *, faulty: bool) -> None:
        """Set up again: the position is what the durable's answer says.

        The answer of 2.15.1 may name messages as delivered that were only on their way; what it
        names is dropped as old, with lag 0.
        """
        ahead = random.randint(1, 4) if faulty and random.random() < 0.1 else 0
        self.created = out.created
        self.seq = min(out.floor + ahead, max(out.last_seq, out.floor))


class Stored(NamedTuple):
    """A message in UP."""

    seq: int
    stored_ns: int
    message: Message


@dataclass
class UpModel:
    """An UP stream; ``loss`` counts how often it has lost something."""

    created: int = 1
    last_seq: int = 0
    messages: list[Stored] = field(default_factory=list)
    loss: int = 0

    def store(self, message: Message, now_ns: int) -> None:
        """Take in what a source brings."""
        self.last_seq += 1
        self.messages.append(Stored(self.last_seq, now_ns, message))

    def roll_back(self, random: Random) -> None:
        """Lose the newest messages: a power cut without sync, a copy put back."""
        keep = random.randint(0, len(self.messages))
        self.messages = self.messages[:keep]
        self.last_seq = self.messages[-1].seq if self.messages else 0
        self.loss += 1

    def purge(self, random: Random) -> None:
        """Lose the oldest messages; the numbers go on."""
        self.messages = self.messages[random.randint(0, len(self.messages)) :]
        self.loss += 1

    def recreate(self) -> None:
        """Lose everything, and begin again."""
        self.created += 1
        self.last_seq, self.messages = 0, []
        self.loss += 1


@dataclass
class DownModel:
    """DOWN and IN: the newest message of each subject, in the order of their sequences."""

    last_seq: int = 0
    newest: dict[str, tuple[int, object]] = field(default_factory=dict)

    def publish(self, subject: str, body: object) -> None:
        """Write a message; the one before on this subject is gone."""
        self.last_seq += 1
        self.newest.pop(subject, None)
        self.newest[subject] = (self.last_seq, body)

    def after(self, seq: int) -> list[tuple[int, str, object]]:
        """Return what came after a sequence, in order."""
        found = [(at, subject, body) for subject, (at, body) in self.newest.items() if at > seq]
        return sorted(found, key=lambda each: each[0])
