"""Whether one server of a cluster may lose its store and copy all streams anew, and whether it has. Pure.

An acknowledged message stands on a majority of the servers. So the others must be all there, be led by one of them,
and hold everything: the store that goes may have been in that majority.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from backhaul_hub.nats.jetstream import Json
from backhaul_hub.streams.replicas import Damage, replicas, switched_off

QUESTION = {"accounts": True, "streams": True, "config": True}
"""Options of JSZ, to which the answers are."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The servers' state before one of them loses its store."""

    server: str
    streams: dict[str, int]
    """The last sequence of each stream, as the other servers hold it."""
    accounts: tuple[str, ...]
    """The accounts with streams, by their public keys."""
    lacks: tuple[str, ...]
    """In words, the messages that the server is known to lack."""
    against: tuple[str, ...]
    """In words, each reason against it; empty: it may go."""


def plan(
    answers: Sequence[Json], damages: Iterable[Damage], server: str, servers: int
) -> RepairPlan:
    """Judge by the answers of all servers to JSZ.

    Args:
        answers: one of each server that is there; that of `server` may be missing.
        damages: as the last looks have shown them.
        server: whose store is to go.
        servers: how many the hub has.
    """
    found = [*damages]
    lacks = (
        f"{each.missing:,} messages of {each.stream} that {each.held_by} has"
        for each in found
        if each.server == server
    )
    against = _against(answers, found, server, servers)
    streams = last_held(answers, server)
    return RepairPlan(server, streams, _accounts(answers), tuple(lacks), tuple(against))


def compared(answers: Iterable[Json]) -> tuple[set[str], set[str]]:
    """Return the names of the streams whose counts can be compared: all such, and those that keep the newest alone.

    They are in files, and only limits take messages out of them.
    """
    every, newest_only = set(), set()
    for name, stream in _streams(answers).items():
        config = stream.config
        if config.get("storage") == "file" and config.get("retention", "limits") == "limits":
            every.add(name)
            if config.get("max_msgs_per_subject", -1) > 0:
                newest_only.add(name)
    return every, newest_only


def last_held(answers: Iterable[Json], server: str) -> dict[str, int]:
    """Return the last sequence of each stream, as the servers but this one hold it."""
    return {
        stream: max(each.last_seq for name, each in held.items() if name != server)
        for stream, held in replicas(answers).items()
        if held.keys() - {server}
    }


def missing(answers: Iterable[Json], server: str, wanted: dict[str, int]) -> list[str]:
    """Return the streams of which a server does not hold the sequence that is wanted yet, sorted."""
    held = replicas(answers)
    return sorted(
        stream
        for stream, last_seq in wanted.items()
        if stream in held
        and (server not in held[stream] or held[stream][server].last_seq < last_seq)
    )


def answering(answers: Iterable[Json]) -> set[str]:
    """Return the names of the servers whose JetStream answers."""
    found = [*answers]
    return {each["server"]["name"] for each in found} - switched_off(found)


def _accounts(answers: Iterable[Json]) -> tuple[str, ...]:
    found = {
        account["id"]
        for answer in answers
        for account in (answer.get("data") or {}).get("account_details") or []
    }
    return tuple(sorted(found))


def _against(
    answers: Sequence[Json], damages: Iterable[Damage], server: str, servers: int
) -> Iterator[str]:
    others = {each["server"]["name"] for each in answers} - {server}
    if len(others) >= servers:
        yield f"{server} is no server of this hub: {', '.join(sorted(others))}"
    elif len(others) < servers - 1:
        names = ", ".join(sorted(others)) or "none"
        yield f"of the {servers - 1} other servers only these answer: {names}"
    for name in sorted(switched_off(answers) & others):
        yield f"JetStream of {name} is off"
    for each in damages:
        if each.server != server:
            yield f"{each.server} lacks {each.missing:,} messages of {each.stream}, which {each.held_by} has"
    yield from _of_meta(answers, others)
    for name, stream in _streams(answers).items():
        yield from _of_stream(name, stream, server, others)


def _of_meta(answers: Iterable[Json], others: Collection[str]) -> Iterator[str]:
    metas = {
        each["server"]["name"]: (each.get("data") or {}).get("meta_cluster") or {}
        for each in answers
    }
    leader = next((name for name, meta in metas.items() if meta.get("leader") == name), None)
    if leader is None:
        yield "no server leads the cluster now"
        return
    for name in _late(metas[leader], others):
        yield f"{name} does not know of all streams yet"


@dataclass(slots=True)
class _Stream:
    config: Json
    holders: set[str]
    cluster: Json | None = None
    """As the server that leads it says it; None: none does."""


def _streams(answers: Iterable[Json]) -> dict[str, _Stream]:
    found: dict[str, _Stream] = {}
    for answer in answers:
        name = answer["server"]["name"]
        for account in (answer.get("data") or {}).get("account_details") or []:
            for detail in account.get("stream_detail") or []:
                stream = found.setdefault(
                    detail["name"], _Stream(detail.get("config") or {}, set())
                )
                stream.holders.add(name)
                cluster = detail.get("cluster") or {}
                if cluster.get("leader") == name:
                    stream.cluster = cluster
    return found


def _of_stream(name: str, stream: _Stream, server: str, others: Collection[str]) -> Iterator[str]:
    copies = stream.config.get("num_replicas", 1)
    if copies == 1:
        if server in stream.holders and stream.config.get("storage") == "file":
            yield f"{name} stands on {server} alone"
        return
    if stream.cluster is None:
        yield f"no server leads {name} now"
        return
    for late in _late(stream.cluster, others):
        yield f"{late} does not hold all of {name} yet"
    # With five servers three hold a stream. Where the one to repair is among them, two others must be.
    if len(stream.holders - {server}) < copies // 2 + 1:
        yield f"too few other servers hold {name}"


def _late(cluster: dict[str, Any], among: Collection[str]) -> list[str]:
    """Return the replicas that are not current, by their leader's word."""
    return sorted(
        each["name"]
        for each in cluster.get("replicas") or []
        if each["name"] in among and (each.get("offline") or not each.get("current"))
    )
