"""What stands in an OUT stream, by what its messages say of themselves."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_agent.uplink.out_stream import OutStream
from backhaul_agent.uplink.resend import Work
from backhaul_codec import Point, encode_point
from backhaul_runtime.jetstream import StreamMessage

if TYPE_CHECKING:
    from collections.abc import Container

    from backhaul_agent.leaf.jetstream import JetStream


class Leaf:
    """A stream of messages, each an epoch and a seq; of ``again`` those that were appended again."""

    def __init__(self, *messages: tuple[int, int], again: Container[tuple[int, int]] = ()) -> None:
        self._messages = messages
        self._again = again

    async def created_and_state(self, _: str) -> tuple[str, dict[str, Any]]:
        many = len(self._messages)
        return "now", {"messages": many, "first_seq": 1, "last_seq": many}

    async def message(self, _: str, *, seq: int) -> StreamMessage | None:
        epoch, number = at = self._messages[seq - 1]
        body = body_of(epoch, number)
        headers = b"NATS/1.0\r\nBackhaul-Next: 1\r\nBackhaul-Epoch: 1\r\n\r\n"
        return StreamMessage(seq, "p.n.t.%", body, headers if at in self._again else b"")


@cache
def body_of(epoch: int, seq: int) -> bytes:
    return encode_point(Point("n", "t", 1, 1.0), epoch=epoch, seq=seq)


async def since(leaf: Leaf, seq: int, older: dict[int, int] | None = None) -> dict[int, int]:
    out = OutStream(cast("JetStream", leaf), "OUT_bulk")
    await out.index()
    return out.since(7, seq, older or {})


@pytest.mark.parametrize(
    ("messages", "seq", "epochs"),
    [
        ([], 2, {}),
        ([(7, 1), (7, 2)], 2, {}),
        ([(7, 1), (7, 2), (7, 3)], 2, {7: 3}),
        ([(6, 9), (7, 1), (7, 2), (8, 1)], 2, {8: 1}),
        # The first two of epoch 7 were appended again, after what a newer ledger had written.
        ([(6, 9), (7, 1), (7, 2), (8, 1), (7, 1), (7, 2)], 2, {8: 1, 7: 2}),
        # Nothing of it is left.
        ([(6, 9), (8, 1)], 2, {6: 9, 8: 1}),
        ([(6, 9), (8, 1)], 0, {6: 9, 8: 1}),
    ],
)
async def test_the_epochs_of_what_stands_behind_a_seq(
    messages: list[tuple[int, int]], seq: int, epochs: dict[int, int]
) -> None:
    assert await since(Leaf(*messages), seq) == epochs


async def test_where_an_epoch_has_nothing_what_is_behind_the_one_before_came_since() -> None:
    """5 is of a ledger before this one, 6 ended at 9, and 8 is nothing that this ledger knows."""
    assert await since(Leaf((5, 3), (6, 8), (6, 9), (8, 1)), 0, {6: 9}) == {8: 1}
    assert await since(Leaf((5, 3), (6, 8), (6, 9)), 0, {6: 9}) == {}


async def test_what_was_appended_again_does_not_say_what_came_since() -> None:
    """Where 6 had stood is gone; it was wanted again when 8 had begun."""
    leaf = Leaf((8, 1), (6, 8), (6, 9), again={(6, 8), (6, 9)})
    assert await since(leaf, 0, {6: 9}) == {8: 1}


async def test_what_takes_many_looks_is_learned_to_its_beginning() -> None:
    """Each message stands beside one of another epoch: the oldest are looked at last."""
    leaf = Leaf(*((epoch, seq) for seq in range(1, 3001) for epoch in (7, 8)))
    out = OutStream(cast("JetStream", leaf), "OUT_bulk")
    assert await out.find(7, [(1, 1)]) == [Work(7, 1, 1, 1)]
