"""Measure what the chain of a lane costs an agent and a control plane, beside the same without it.

Two of everything stand in one process and take turns, message by message, so that whatever else the
machine does meets both: a ledger that links and hashes, and one that stamps as it was done before the
chain (ADR 34); a reader of the hub that hashes and compares, and one that does neither. Figures are
medians of processor time over pairs. The lock on the ledger is taken once at the start of an agent.

The shares are of what a whole program needs for a message: `ingest` and `hub_drain` measure that in the
same run, quick, for they have what these loops leave out, the servers' client above all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median
from unittest.mock import patch

from backhaul_agent.ledger import chain as ledger_chain
from backhaul_agent.ledger import transaction
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing
from backhaul_codec import Point, chain, encode_frame, hash_of, restamp
from backhaul_codec.wire.envelope import NO_LINK
from backhaul_hub.continuity import examine as reader
from backhaul_hub.continuity.lane_book import Continuity
from benchmarks import scratch
from benchmarks.figures import Figure, at_most, report
from benchmarks.hub import hub_drain
from benchmarks.vehicle import ingest

_AIM_PERCENT = 5
_POINTS = 250
_EPOCH = 1
_SUBJECT = "f.engine"
_LEDGER_BYTES_MAX = 1 << 30


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, and return it."""
    pairs = 1_000 if quick else 5_000
    ingested = ingest.run(quick=quick)
    together = max(1, round(_value(ingested, f"batches of {_POINTS}, a commit") / _POINTS))
    with scratch.directory("chain_cost") as directory:
        kept = asyncio.run(_ledgers(directory, pairs, together))
        alone = asyncio.run(_ledgers(directory, pairs, 1))
    read = _readers(pairs)
    agent_us = _POINTS * 1e6 / _value(ingested, f"batches of {_POINTS}, one core")
    hub_us = _value(hub_drain.run(quick=quick), 'sync_interval "2m": control plane')
    body = encode_frame(_points(Random(1), 0), epoch=_EPOCH, seq=1)
    more = len(chain(body, epoch=_EPOCH, seq=1, link=NO_LINK)) - len(body)
    figures = [
        *_figures(f"agent, {together} frames a commit", kept, agent_us, "ingest"),
        *_figures("agent, one frame a commit", alone, None, ""),
        *_figures("hub, proved and in its lane", read, hub_us, "hub_drain"),
        Figure("on the wire: bytes of a frame of 250", len(body) + more, "bytes"),
        Figure("of these, of the chain", 100 * more / len(body), "percent", at_most(_AIM_PERCENT)),
    ]
    return report("chain_cost: a lane's chain, beside the same without it", figures)


def _figures(
    what: str, pairs: list[tuple[float, float]], whole_us: float | None, measured_by: str
) -> list[Figure]:
    """Return a side's medians; and the share of their difference in the whole program's time, if that is told."""
    with_us, without_us = (median(side) * 1e6 for side in zip(*pairs, strict=True))
    more_us = median(with_s - without_s for with_s, without_s in pairs) * 1e6
    figures = [
        Figure(f"{what}: a frame", with_us, "us", note=f"without the chain {without_us:.1f}"),
    ]
    if whole_us is not None:
        note = f"{more_us:.1f} us of {whole_us:.0f} us a frame of {measured_by}"
        share = 100 * more_us / whole_us
        figures.append(Figure("the chain's share", share, "percent", at_most(_AIM_PERCENT), note))
    return figures


def _value(result: dict[str, object], name: str) -> float:
    """Return a figure of another benchmark by its name."""
    figures = result["figures"]
    assert isinstance(figures, list)
    [found] = [figure["value"] for figure in figures if figure["name"] == name]
    return float(found)


def _points(dice: Random, first: int) -> list[Point]:
    """Return readings of a signal that wanders, one each ten milliseconds."""
    at, found = 800, []
    for number in range(first, first + _POINTS):
        at += dice.randrange(-2, 3)
        found.append(Point("engine", "temperature", number * 10**7, at / 10))
    return found


def _in_turns(
    pairs: int, with_it: Callable[[int], float], without: Callable[[int], float]
) -> Iterator[tuple[float, float]]:
    """Run both for each number, each first as often as the other."""
    for number in range(pairs):
        if number % 2:
            yield with_it(number), without(number)
        else:
            second = without(number)
            yield with_it(number), second


async def _ledgers(directory: Path, pairs: int, together: int) -> list[tuple[float, float]]:
    """Return the processor seconds of a frame, encoded and committed: with the chain, and without."""
    ledgers = [
        await Ledger.open(
            directory / f"{name}-{together}.db",
            device="VID-001",
            bytes_max=_LEDGER_BYTES_MAX,
            epoch=lambda: _EPOCH,
        )
        for name in ("with", "without")
    ]
    dice, found = Random(1), []
    for number in range(pairs // together):
        frames = [_points(dice, (number * together + at) * _POINTS) for at in range(together)]
        seconds = [0.0, 0.0]
        for side in (number % 2, 1 - number % 2):
            with ExitStack() as unchained:
                if side:
                    _unchain(unchained)
                start = time.process_time()
                bodies = [encode_frame(points, epoch=0, seq=0) for points in frames]
                messages = [Outgoing("bulk", _SUBJECT, body) for body in bodies]
                await ledgers[side].commit(LedgerChanges(messages))
                seconds[side] = time.process_time() - start
        found.append((seconds[0] / together, seconds[1] / together))
    for ledger in ledgers:
        await ledger.close()
    return found


def _unchain(until: ExitStack) -> None:
    """Have the ledger stamp messages as it did before there was a chain, and keep no end of one."""

    def stamp(message: bytes, *, epoch: int, seq: int, link: bytes) -> bytes:
        del link
        return restamp(message, epoch=epoch, seq=seq)

    async def write(*_: object) -> None:
        pass

    until.enter_context(patch.object(transaction, "chain", stamp))
    until.enter_context(patch.object(transaction, "hash_of", lambda *_: NO_LINK))
    until.enter_context(patch.object(ledger_chain, "write", write))


def _readers(pairs: int) -> list[tuple[float, float]]:
    """Return the processor seconds of each frame at the hub: with the chain, and without."""
    dice, link = Random(1), NO_LINK
    chained, plain = [], []
    for number in range(pairs):
        body = encode_frame(_points(dice, number * _POINTS), epoch=0, seq=0)
        seq = number + 1
        plain.append(restamp(body, epoch=_EPOCH, seq=seq))
        chained.append(chain(body, epoch=_EPOCH, seq=seq, link=link))
        link = hash_of(_SUBJECT, chained[-1])
    books = Continuity(), Continuity()
    subject = f"up.VID-001.{_SUBJECT}"

    def take(book: Continuity, body: bytes) -> float:
        start = time.process_time()
        said = reader.examine(subject, body)
        new = book.arrived(said.key, said.seq, len(body), 0, link=said.link, own=said.own)
        spent = time.process_time() - start
        assert new
        return spent

    def without(number: int) -> float:
        with patch.object(reader, "own_hash", _no_own):
            return take(books[1], plain[number])

    return list(_in_turns(pairs, lambda number: take(books[0], chained[number]), without))


def _no_own(*_: object) -> bytes:
    return b""
