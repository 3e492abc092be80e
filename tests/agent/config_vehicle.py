"""A vehicle whose configuration is written, without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.ledger.eviction_policy import CONFIG
from backhaul_agent.ledger.rows import Inward
from backhaul_agent.sync.requests import (
    CreateRequest,
    PointRequest,
    SetRequest,
)
from backhaul_agent.sync.writes import ConfigWrites
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.subjects import parse_leaf
from backhaul_codec.wire.addressed import Addressed, decode_addressed

if TYPE_CHECKING:
    from backhaul_agent.commit.contents import ConfigWrite


NOON = 1_700_000_000_000_000_000


CAR = "VID-001"


class Vehicle:
    """A keeper whose writes are committed at once, and read back from their messages."""

    def __init__(self) -> None:
        self.now_ns = NOON
        self.keeper = HeadKeeper(CAR, lambda: self.now_ns)
        self.writes = ConfigWrites(self.keeper, value_bytes_max=1000)

    def do(self, write: ConfigWrite) -> list[str]:
        """Commit a write as its messages say; return their subjects."""
        changes = self.keeper.begin()
        read_back: list[Addressed] = []
        for message in write.messages:
            assert (message.lane, message.value_class) == ("live", CONFIG)
            _, addressed = decode_addressed(parse_leaf(message.subject), message.body)
            assert message.times == (addressed[0].point.time,) * 2
            read_back += addressed
        assert read_back == list(write.addressed)
        changes.write(read_back)
        changes.apply()
        return [message.subject for message in write.messages]

    def set(self, node: str, parent: str = "", **values: Any) -> list[str]:
        points = [PointRequest(type_, value=value) for type_, value in values.items()]
        return self.do(self.writes.set(SetRequest(node, points, parent)))

    def create(self, node: str, parent: str = "", *points: PointRequest) -> list[str]:
        return self.do(self.writes.create(CreateRequest(node, parent, points=list(points))))

    def value(self, node: str, type_: str, key: str = "", parent: str = "") -> Any:
        head = self.keeper.heads.get(HeadKey(parent, node, type_, key))
        return head and not head.deleted and head.value

    def parents(self, node: str) -> list[str]:
        return self.keeper.tree.parents(node)

    def receive(self, *addressed: Addressed) -> None:
        changes = self.keeper.begin()
        changes.receive(Inward(received=list(addressed)))
        changes.apply()
