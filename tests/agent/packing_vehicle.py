"""A packer of bundles and its ledger, second by second, for tests of its dictionaries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from backhaul_agent.commit.bundle_packer import BundlePacker
from backhaul_agent.commit.participant import Draft
from backhaul_agent.ledger.rows import Inbound, LedgerChanges, Outgoing
from backhaul_codec import Point, encode_bundle
from backhaul_codec.wire.dictionaries import is_packed

if TYPE_CHECKING:
    from backhaul_agent.ledger.ledger import Ledger

S = 1_000_000_000
NOW = 1_780_000_000 * S
DAY = 86_400 * S


def points_at(second: int, nodes: int = 30, said: str = "sensor") -> list[Point]:
    return [
        Point(f"{said}-{node:02}-room", type_, NOW + second * S, 20.0 + (second * 7 + node) % 5 / 8)
        for node in range(nodes)
        for type_ in ("temperature", "humidity")
    ]


def bundle(second: int, said: str = "sensor", boot: int = 0) -> Outgoing:
    body = encode_bundle(points_at(second, said=said), epoch=0, seq=0)
    return Outgoing("bulk", "b", body, boot=boot)


class Vehicle:
    """A packer and its ledger, second by second."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.now_ns = NOW
        self.packer = BundlePacker(ledger, lambda: self.now_ns)
        self.second = 0

    async def commit(self, *messages: Outgoing, changes: LedgerChanges | None = None) -> list[str]:
        """Commit messages; return the subjects that went out, packed ones with a star."""
        draft = Draft(changes or LedgerChanges(), float(self.second))
        draft.changes.messages += messages
        self.packer.contribute(draft)
        await self.ledger.commit(draft.changes)
        self.packer.committed(draft)
        self.second += 1
        return [
            each.subject.split(".")[0] + "*" * is_packed(each.body)
            for each in draft.changes.messages
        ]

    async def speak(self, seconds: int, said: str = "sensor") -> list[str]:
        """Commit a bundle each second; return what went out."""
        return [
            word for _ in range(seconds) for word in await self.commit(bundle(self.second, said))
        ]

    async def confirm(self) -> None:
        await self.ledger.commit(
            LedgerChanges(watermarks={"bulk": self.ledger.lanes["bulk"].last_seq})
        )

    async def learned(self) -> bytes:
        """Have a first dictionary sent and confirmed; return its digest."""
        await self.speak(15)
        [digest] = self.packer._known
        await self.confirm()
        return digest

    def asks(self, digest: bytes, *, fresh: bool = True) -> None:
        """Take in the hub's word that it lacks a dictionary."""
        data = json.dumps({"digest": digest.hex()}).encode()
        self.packer.on_message(Inbound(["s", "dictionary"], data, fresh), LedgerChanges())
