"""The messages that each server of a cluster holds of each stream, and the servers that lack some. Pure.

A server that finds a damaged block at its start, or as it reads, drops the rest of that block and says nothing: to its
cluster it is current, answers reads, and may lead the stream. Only the counts of the servers, side by side, tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from backhaul_hub.nats.jetstream import Json
from backhaul_runtime.jetstream import stamp_ns

# Of two nobody knows which one is wrong. Answers to one question may be 3 s apart.
_CLOCKS_MIN, _CLOCK_OFF_S = 3, 10.0
# What servers may write for it: their answer has each source of a relay, some 200 bytes for each lane of a vehicle.
_PAUSE_S_MIN, _BYTES_S = 2.0, 200_000


@dataclass(frozen=True, slots=True)
class Replica:
    """One server's part in one stream."""

    first_seq: int
    last_seq: int
    messages: int
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Damage:
    """A server that lacks messages of a stream which another server holds."""

    server: str
    stream: str
    missing: int
    leads: bool
    held_by: str
    """A server that lacks the fewest of all."""


Look = Mapping[str, Mapping[str, Replica]]
"""By stream and server."""


def replicas(
    answers: Iterable[Json], counted: Collection[str] | None = None
) -> dict[str, dict[str, Replica]]:
    """Read the answers of servers to JSZ with `accounts` and `streams`.

    Args:
        answers: one of each server.
        counted: the names of the streams to look at, None for all.
    """
    found: dict[str, dict[str, Replica]] = {}
    for answer in answers:
        server = answer["server"]["name"]
        for account in (answer.get("data") or {}).get("account_details") or []:
            for stream in account.get("stream_detail") or []:
                if counted is None or stream["name"] in counted:
                    state, leader = stream["state"], (stream.get("cluster") or {}).get("leader")
                    found.setdefault(stream["name"], {})[server] = Replica(
                        *(state["first_seq"], state["last_seq"], state["messages"]),
                        leads=leader == server,
                    )
    return found


def switched_off(answers: Iterable[Json]) -> frozenset[str]:
    """Return the names of servers that say to JSZ that their JetStream is off, as after a full disk."""
    return frozenset(
        answer["server"]["name"] for answer in answers if (answer.get("data") or {}).get("disabled")
    )


def pause_s(answers_bytes: int) -> float:
    """Return for how many seconds servers are left alone after answers of so many bytes."""
    return max(_PAUSE_S_MIN, answers_bytes / _BYTES_S)


def clocks_off(answers: Iterable[Json]) -> dict[str, float]:
    """Return by how many seconds the clock of a server is off, by the median of all; those that are right are left out."""
    told_ns = {
        answer["server"]["name"]: stamp_ns(answer["server"]["time"])
        for answer in answers
        if "time" in answer["server"]
    }
    if len(told_ns) < _CLOCKS_MIN:
        return {}
    middle_ns = sorted(told_ns.values())[len(told_ns) // 2]
    off_s = {server: (each - middle_ns) / 1e9 for server, each in told_ns.items()}
    return {server: each for server, each in off_s.items() if abs(each) > _CLOCK_OFF_S}


class ReplicaJudge:
    """Compares looks in a row: a server is damaged if it lacks messages in two of them; in one it may have been asked earlier.

    Args:
        newest_only: streams that keep the newest messages on each subject alone.
    """

    def __init__(self, newest_only: Collection[str]) -> None:
        self._newest_only = newest_only
        self._before: Look = {}
        self._suspected: dict[tuple[str, str], int] = {}
        self.damages: list[Damage] = []

    def look(self, seen: Look) -> None:
        """Take in one look, and set `damages` by it."""
        suspected: dict[tuple[str, str], int] = {}
        damages = []
        for stream, servers in seen.items():
            for server, missing, held_by in self._lacking(stream, servers):
                suspected[stream, server] = missing
                if self._suspected.get((stream, server)):
                    leads = servers[server].leads
                    damages.append(Damage(server, stream, missing, leads, held_by))
        self._before, self._suspected, self.damages = seen, suspected, damages

    def _lacking(
        self, stream: str, servers: Mapping[str, Replica]
    ) -> Iterator[tuple[str, int, str]]:
        """Yield each server that seems to lack messages, how many, and a server that has them."""
        before = self._before.get(stream, {})
        for server, mine in servers.items():
            most, held_by = 0, ""
            for other, theirs in servers.items():
                if other == server:
                    continue
                if stream in self._newest_only:
                    missing = _of_the_newest(mine, theirs)
                else:
                    missing = _of_all(before.get(server), theirs)
                if mine.leads and other in before:
                    # Nobody has more than the leader, unless that one has not copied it.
                    missing = max(missing, before[other].last_seq - mine.last_seq)
                if missing > most:
                    most, held_by = missing, other
            if most:
                yield server, most, held_by


def _of_the_newest(mine: Replica, theirs: Replica) -> int:
    """Return how many messages another server has more, where both have taken in the same."""
    # The message that ends one stands at the other's end too: what either dropped for it is the same.
    return max(0, theirs.messages - mine.messages) if mine.last_seq == theirs.last_seq else 0


def _of_all(before: Replica | None, theirs: Replica) -> int:
    """Return how many messages another server has still that ours lacked at the look before; at least so many.

    Each takes messages in, and limits take them off its front, in its own time: what the other has now of all that
    ours had passed then is no more than what ours held then, if ours is whole.
    """
    if before is None or theirs.last_seq < before.last_seq:
        return 0
    up_to_there = theirs.messages - (theirs.last_seq - before.last_seq)
    return max(0, up_to_there - before.messages)
