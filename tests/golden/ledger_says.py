"""What a ledger says when it is read, and what is in it when it has gone on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.ingest.replay_book import ReplayBook
from backhaul_agent.ledger import command_rows
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing, Staged
from backhaul_codec import Point, encode_frame, encode_point

from .plain import message, plain

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_agent.ledger.lanes import CommittedLane

NOON = 1_767_268_800_000_000_000
MANY = 1 << 20


async def open_ledger(path: Path) -> Ledger:
    return await Ledger.open(path, device="VID-001", bytes_max=64 << 20, epoch=lambda: 7)


async def says(ledger: Ledger) -> dict[str, Any]:
    """Return all that can be asked of a ledger."""
    keeper = HeadKeeper("VID-001", lambda: NOON)
    keeper.restore(await ledger.heads(), ledger.meta)
    heads = [item for node in keeper.heads.nodes() for item in keeper.heads.of_node(node).items()]
    book = ReplayBook(lambda: ledger.meta)
    lanes = {f"{lane.name} {lane.epoch}": await _lane(ledger, lane) for lane in ledger.every_lane()}
    return {
        "epoch": ledger.epoch,
        "epochs": plain(ledger.epochs),
        "meta": plain(ledger.meta),
        "lanes": lanes,
        "staged": plain(await ledger.staged()),
        "heads": plain(heads),
        "damaged": keeper.damaged,
        "boots": plain(await ledger.boots()),
        "pending": plain(await ledger.pending((), MANY)),
        "commands": [
            [*row, error.decode(), json.loads(result or b"null")]
            for *row, error, result in await ledger.query(COMMANDS)
        ],
        "owed": plain(await command_rows.owed(ledger, MANY)),
        "finished": sorted(await command_rows.finished(ledger, IDS)),
        "replays": [plain(book.kept(row[0])) for row in await ledger.query(SOURCES)],
        "classes": plain(await ledger.query("SELECT * FROM classes ORDER BY value_class")),
    }


async def _lane(ledger: Ledger, lane: CommittedLane) -> dict[str, Any]:
    rows = await ledger.owned(lane, 0, MANY)
    return {
        "seqs": [lane.next_seq, lane.watermark, lane.confirmed, lane.used_seq, lane.ready_seq],
        "chain": plain(lane.chain),
        "given up": plain(await ledger.given_up(lane.name, lane.epoch, 1, lane.last_seq)),
        "runs": plain(await ledger.runs(lane.name, lane.epoch, 1, lane.last_seq)),
        "rows": [[*plain(row), message(f"up.VID-001.{row.subject}", row.body)] for row in rows],
    }


async def go_on(ledger: Ledger) -> list[Any]:
    """Commit what a start of the agent and its next readings would; return the new messages."""
    live, bulk = ledger.lanes["live"], ledger.lanes["bulk"]
    before = {lane.name: lane.last_seq for lane in (live, bulk)}
    points = [Point("battery", "soc", NOON + n, n / 4) for n in range(3)]
    frame = encode_frame(points, epoch=0, seq=0)
    state = encode_point(Point("battery", "limit", NOON, 7.5, key="upper"), epoch=0, seq=0)
    messages = [
        Outgoing("bulk", "f.battery", frame, 0, (NOON, NOON + 2)),
        Outgoing("live", "p.battery.limit.upper", state),
        Outgoing("bulk", "f.battery", frame, 0, (NOON, NOON + 2)),
    ]
    staged = [row.id for row in await ledger.staged()]
    await ledger.commit(LedgerChanges(messages=messages, unstage=staged, time_ns=NOON))
    more = [Staged("battery", 1, b"one")]
    await ledger.commit(
        LedgerChanges(messages=messages, staged=more, watermarks={"live": before["live"]})
    )
    return [
        [
            lane.name,
            plain(lane.chain),
            plain([row[:4] for row in await ledger.read(lane.name, before[lane.name] + 1, MANY)]),
        ]
        for lane in (live, bulk)
    ]


IDS = ["id-echo", "id-fail", "id-nobody", "id-of-none"]
SOURCES = "SELECT json_extract(value, '$.source') FROM meta WHERE name LIKE 'replay.%'"
COMMANDS = "SELECT id, name, deadline_ns, state, runs, ended_ns, error, result FROM commands ORDER BY number"
