"""A batch of messages as the rules see it: arrays, packed for the way between processes.

A row a point through Spark's own columns would cost more than the rules themselves. So the source
packs what one bucket of devices is told by a few thousand messages into one row of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import cbor2
import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Ints

# One a message, whatever it holds: who spoke, in which place of which lane, and when it was stored.
MESSAGE = np.dtype(
    [("device", "u8"), ("lane", "u8"), ("seq", "i8"), ("stored_ns", "i8"), ("mark", "u1")]
)
# One a wanted point: `message` counts in the messages beside it, `signal` in the wanted series.
SAMPLE = np.dtype([("message", "i4"), ("signal", "u1"), ("time_ns", "i8"), ("value", "f8")])

# `signal` of a point whose time cannot be true: it is counted, and no rule sees it.
UNTIMELY = 255
# `mark`: why a vehicle marked its lanes (docs/continuity.md); 0 is no mark, OTHER_MARK any other.
MARKS = {"start": 1, "link": 2, "hour": 3, "stop": 4}
OTHER_MARK = 5
# No message of the vehicle's: the hub's word that its agent is there, or is gone (backhaul_codec.protocol.presence).
ALIVE, AWAY = 6, 7


@dataclass(frozen=True, slots=True)
class HeadWord:
    """A value written to a series that configures a rule; docs/wire-format.md has the order of winners.

    `stored_ns`: when the hub stored it, from which on it counts; 0: where nobody knows, at `time_ns`.
    """

    device: str
    series: int
    time_ns: int
    origin: str
    tombstone: int
    value: float | int | str
    stored_ns: int = 0

    @property
    def since(self) -> tuple[int, int]:
        """Return from which sample on it counts: (ns at which that was stored, ns of its own time)."""
        return self.stored_ns or self.time_ns, self.time_ns


class Unread(NamedTuple):
    """Messages of a device that no rule sees, since the hub has lost their dictionary.

    `first_ns`, `last_ns`: when the hub stored the first and the last of them; ns since the Unix epoch.
    """

    device: str
    messages: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of some messages for one bucket of devices.

    `watched_ns`: when the hub said last that it looks who is there; 0: not in these messages.
    """

    messages: NDArray[np.void]
    samples: NDArray[np.void]
    devices: Sequence[str]
    heads: Sequence[HeadWord] = field(default_factory=list)
    watched_ns: int = 0
    unread: Sequence[Unread] = ()

    def said(self) -> bytes:
        """Pack the fields that are not numbers."""
        heads = [
            [h.device, h.series, h.time_ns, h.origin, h.tombstone, h.value, h.stored_ns]
            for h in self.heads
        ]
        return cbor2.dumps([list(self.devices), heads, self.watched_ns, list(self.unread)])

    @classmethod
    def unpack(cls, messages: bytes, samples: bytes, said: bytes) -> Batch:
        """Read the contents of `said`, and the arrays' own bytes."""
        devices, heads, watched_ns, unread = cbor2.loads(said)
        return cls(
            np.frombuffer(messages, MESSAGE),
            np.frombuffer(samples, SAMPLE),
            devices,
            [HeadWord(*head) for head in heads],
            watched_ns,
            [Unread(*each) for each in unread],
        )

    @classmethod
    def join(cls, batches: Iterable[Batch]) -> Batch:
        """Return all of them as one, its messages as the hub stored them: tasks that read come in any order."""
        parts = list(batches)
        starts = np.cumsum([0, *(len(part.messages) for part in parts)])
        samples = np.concatenate([np.empty(0, SAMPLE), *(part.samples for part in parts)])
        lengths = [len(part.samples) for part in parts]
        samples["message"] += np.repeat(starts[:-1], lengths).astype(np.int32)
        messages = np.concatenate([np.empty(0, MESSAGE), *(part.messages for part in parts)])
        order = np.argsort(messages["stored_ns"], kind="stable")
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        samples["message"] = place[samples["message"]]
        return cls(
            messages[order],
            samples[np.argsort(samples["message"], kind="stable")],
            sorted({device for part in parts for device in part.devices}),
            [head for part in parts for head in part.heads],
            max((part.watched_ns for part in parts), default=0),
            [each for part in parts for each in part.unread],
        )


@lru_cache(maxsize=1 << 18)
def device_hash(device: str) -> int:
    """Return 64 bits that stand for a name, the key of its state."""
    return int.from_bytes(blake2b(device.encode(), digest_size=8).digest(), "little")


def hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """Return `device_hash` of each."""
    return np.fromiter((device_hash(name) for name in names), np.uint64)


def lane_hashes(
    devices: NDArray[np.uint64], lanes: NDArray[np.uint64], epochs: Ints
) -> NDArray[np.uint64]:
    """Return 64 bits that stand for (device, lane, epoch).

    All are (n,): `devices` and `lanes` hashes as uint64, `epochs` int64; the result is uint64.
    """
    return _mix(devices ^ _mix(lanes + _mix(epochs.astype(np.uint64))))


def _mix(values: NDArray[Any]) -> NDArray[np.uint64]:
    # splitmix64: numbers that are close end far apart.
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)), np.uint64)
