"""History out of OUT alone: the ledger that wrote it is lost, and with it the dictionaries."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from backhaul_agent.history.merge import HistoryQuestion
from backhaul_agent.history.stream_source import OutHistory
from backhaul_codec import Point, encode_bundle, restamp
from backhaul_codec.subjects import dictionary_subject
from backhaul_codec.wire.dictionaries import digest_of, encode_dictionary, is_packed, pack_with
from backhaul_codec.wire.envelope import unseal
from tests.agent.ledgers import open_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

ASKED = HistoryQuestion("battery", "soc", "", 0, 10_000, 100_000)


class Leaf:
    """A connection to a leaf server that answers what `OutHistory` asks; `asked` counts by subject."""

    is_closed = False

    def __init__(self, *messages: tuple[str, bytes]) -> None:
        self.messages = [
            (seq, subject, restamp(body, epoch=77, seq=seq))
            for seq, (subject, body) in enumerate(messages, 1)
        ]
        self.asked: list[str] = []
        self._answers: list[Any] = []

    def new_inbox(self) -> str:
        return "_INBOX.1"

    async def subscribe(self, _: str) -> Leaf:
        return self

    async def unsubscribe(self) -> None:
        self._answers = []

    async def publish(self, _: str, payload: bytes, *, reply: str) -> None:
        asked = json.loads(payload)
        self.asked.append(asked["next_by_subj"])
        found = [
            SimpleNamespace(headers={"Nats-Sequence": str(seq)}, data=body)
            for seq, subject, body in self.messages
            if seq >= asked["seq"] and subject == asked["next_by_subj"]
        ]
        self._answers = [*found[: asked["batch"]], SimpleNamespace(headers={}, data=reply)]

    async def next_msg(self, **_: None) -> Any:
        return self._answers.pop(0)


async def test_packed_messages_are_read_with_the_dictionaries_that_stand_beside_them(
    tmp_path: Path,
) -> None:
    bundles = [encode_bundle([Point("battery", "soc", t, 1.5)], epoch=0, seq=0) for t in range(5)]
    first, second = unseal(bundles[0])[1], unseal(bundles[0])[1] + b"more"
    packed = [pack_with(bundles[1], first), pack_with(bundles[2], second)]
    packed += [pack_with(bundles[3], second), pack_with(bundles[4], first + b"lost")]
    assert all(map(is_packed, packed))
    brought = [
        (dictionary_subject(digest_of(each)), encode_dictionary(each)) for each in (first, second)
    ]
    leaf = Leaf(*brought, *(("b", body) for body in packed))
    ledger = await open_ledger(tmp_path / "ledger.db")
    history = OutHistory(cast("Client", leaf), ledger, ASKED)
    try:
        assert [time async for run, _ in history.runs() for time in run[0]] == [1, 2, 3]
    finally:
        await ledger.close()
    assert history.points == 3
    assert sum(subject.startswith("d.") for subject in leaf.asked) == 3, "each once"
