"""A loss that the leader of a cluster's stream shows is believed late, and while no other server has what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_hub.errors import HubError
from backhaul_hub.lane_records.lane_rows import ReadPosition
from backhaul_hub.nats.stream_reader import Stored
from backhaul_hub.uplink.audit import Audit, require_gone

if TYPE_CHECKING:
    from backhaul_hub.lane_records.block_store import BlockStore
    from backhaul_hub.nats.jetstream import JetStreamApi
    from backhaul_hub.nats.stream_reader import StoredReader
    from backhaul_hub.uplink.dictionaries import Dictionaries

STREAM = "UP_00"
READ_TO = ReadPosition(seq=10, stored_ns=10, created="then", first_seq=1)


class Cluster:
    """A stream of three servers: what its leader says, and what others answer."""

    def __init__(self) -> None:
        self.now_s = 0
        self.last_seq = 5
        self.others: list[list[int]] = []
        self.doubt = ""

    async def info(self, stream: str) -> dict[str, Any]:
        return await self.request(f"STREAM.INFO.{stream}")

    async def request(self, verb: str, body: object = None) -> dict[str, Any]:
        assert verb == f"STREAM.INFO.{STREAM}"
        state = {"first_seq": 1, "last_seq": self.last_seq, "messages": self.last_seq, "bytes": 9}
        stamp = f"2026-01-01T00:00:{self.now_s:02}Z"
        return {"config": {"num_replicas": 3}, "created": "then", "state": state, "ts": stamp}

    async def first_message(self, stream: str, seq: int) -> tuple[int, int] | None:
        return (seq, seq) if seq <= self.last_seq else None

    async def blocks(self, *_: object, **__: object) -> list[object]:
        return []

    async def says(self, stream: str) -> str:
        assert stream == STREAM
        if not self.doubt:
            self.last_seq = max(self.last_seq, self.led_anew)
        return self.doubt

    led_anew = 0
    """Up to where a new leader has it all."""
    stream = STREAM

    async def read(self, seq: int, messages_max: int) -> list[Stored]:
        seqs = self.others.pop(0) if self.others else []
        return [Stored(each, "up.x", b"", each) for each in seqs if each >= seq][:messages_max]


def audit(it: Cluster) -> Audit:
    api, reader, blocks = cast("JetStreamApi", it), cast("StoredReader", it), cast("BlockStore", it)
    return Audit(STREAM, api, reader, blocks, cast("Dictionaries", None), it.says)


async def test_a_loss_is_believed_once_it_lasts_and_nobody_else_has_the_messages() -> None:
    it = Cluster()
    auditing = audit(it)
    with pytest.raises(HubError, match="seems rolled_back"):
        await auditing.look(READ_TO)
    it.now_s, it.doubt = 16, "b, which leads UP_00, lacks 5 messages that c has"
    with pytest.raises(HubError, match="lacks 5 messages that c has"):
        await auditing.look(READ_TO)
    it.doubt = ""
    _, found = await auditing.look(READ_TO)
    assert found.reasons == ["rolled_back"]


async def test_what_a_leader_lacked_that_has_just_been_replaced_is_no_loss() -> None:
    it = Cluster()
    auditing = audit(it)
    with pytest.raises(HubError, match="seems rolled_back"):
        await auditing.look(READ_TO)
    it.now_s, it.led_anew = 16, 10
    _, found = await auditing.look(READ_TO)
    assert found.reasons == []


async def test_what_another_server_answers_is_not_gone_though_the_leader_lacks_it() -> None:
    it = Cluster()
    api, reader = cast("JetStreamApi", it), cast("StoredReader", it)
    heard = [Stored(seq, "up.x", b"", seq) for seq in (1, 2, 5)]
    it.last_seq = 2
    it.others = [[], [5], [3, 4, 5]]
    with pytest.raises(HubError, match="its leader lacks 3, which another server has"):
        await require_gone(api, reader, heard, 1, 5)
    it.others = [[5], [], [7]]
    await require_gone(api, reader, heard, 1, 5)
    it.last_seq = 4
    with pytest.raises(HubError, match="a server that lags behind was asked for 3"):
        await require_gone(api, reader, heard, 1, 5)
