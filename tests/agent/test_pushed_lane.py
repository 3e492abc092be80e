"""A lane that is pushed, against a leaf that is scripted: what the hub asks for again goes beside the stream, too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from backhaul_agent.ledger.lanes import CommittedLane
from backhaul_agent.push.policy import SETTLED_S, PushPolicy, TrickleView
from backhaul_agent.push.pusher import _view
from backhaul_agent.uplink import resend_requests
from backhaul_agent.uplink.resend import ResendAsk
from backhaul_codec import peek
from tests.agent.lane_rig import Connection, Rig, rig
from tests.support.waiting import until

if TYPE_CHECKING:
    import pytest

__all__ = ["rig"]  # a fixture


def asleep(rig: Rig, rate_bytes_s: float = 10_000) -> PushPolicy:
    """Have the lane pushed after all that it carries so far."""
    policy, seq = PushPolicy(10_000, rate_bytes_s), rig.ledger.lanes["bulk"].last_seq
    for now_s in (0.0, SETTLED_S):
        policy.look(42, {"bulk": TrickleView(seq, seq, 0, runs=True)}, now_s)
    policy.heard(["bulk"], SETTLED_S)
    assert policy.word == {"bulk": seq}
    rig.lane.pushing = policy
    return policy


def pushed(connection: Connection) -> list[int]:
    assert all(subject == "u.VID-001.tok.f.n" for subject, _ in connection.pushed)
    return [peek(body).seq for _, body in connection.pushed]


async def test_what_the_hub_lost_while_nothing_new_came_is_pushed_as_often_as_it_asks(
    rig: Rig,
) -> None:
    await rig.commit(4)
    await rig.confirm(4)
    connection = Connection(rig.leaf)
    async with rig.connected(connection):
        await rig.drained()
        asleep(rig)
        for id_ in (1, 2):
            rig.lane.on_ask(ResendAsk(42, ((1, 2),), id_))
            await until(lambda times=id_: len(pushed(connection)) == 2 * times, deadline_s=30)  # type: ignore[misc]
        assert pushed(connection) == [1, 2, 1, 2]
        assert not _view(rig.lane).behind
        await rig.commit(1)
        await until(lambda: pushed(connection)[4:] == [5])


async def test_much_that_the_hub_asks_for_is_left_to_the_source_and_the_durable_not_moved_past_it(
    rig: Rig,
) -> None:
    await rig.commit(40)
    await rig.confirm(40)
    connection = Connection(rig.leaf)
    async with rig.connected(connection):
        await rig.drained()
        policy = asleep(rig, rate_bytes_s=300)
        before = len(rig.leaf.stored)
        rig.lane.on_ask(ResendAsk(42, ((1, 20),), 1))
        await until(lambda: len(rig.leaf.stored) == before + 20)
        assert 0 < len(pushed(connection)) < 20
        assert _view(rig.lane).behind
        view = TrickleView(40, 40, 0, runs=True)
        policy.look(42, {"bulk": view}, SETTLED_S + 1)
        assert policy.word == {}


async def test_copies_that_the_source_brought_keep_no_lane_from_being_pushed_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resend_requests, "LAND_S", 0.01)
    await rig.commit(4)
    await rig.confirm(4)
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        before = len(rig.leaf.stored)
        rig.lane.on_ask(ResendAsk(42, ((1, 2),), 1))
        await until(lambda: len(rig.leaf.stored) == before + 2)
        await rig.drained()
        assert _view(rig.lane).behind
        rig.leaf.acked = rig.leaf.last_seq
        await until(lambda: not _view(rig.lane).behind, deadline_s=20.0)


async def test_a_lane_without_a_message_waits_for_what_former_epochs_owe(rig: Rig) -> None:
    async with rig.connected(Connection(rig.leaf)):
        await rig.drained()
        assert _view(rig.lane) == TrickleView(0, 0, 0, runs=True)
        former = CommittedLane(99, "bulk", 41, next_seq=3, watermark=1, confirmed=1)
        rig.ledger.closed["bulk", 41] = former
        assert not _view(rig.lane).runs
        rig.ledger.closed["bulk", 41] = replace(former, watermark=2)
        assert _view(rig.lane).runs
