"""Which epoch of a lane goes on in a stream that ends so."""

from __future__ import annotations

import pytest

from backhaul_agent.ledger.lanes import CommittedLane
from backhaul_agent.ledger.sequence_offsets import OffsetStep, SequenceOffsets
from backhaul_agent.uplink.appender import Tail
from backhaul_agent.uplink.epoch_order import choose

# Three epochs: 7 with 10 seqs, 8 with 5, and 9, the current one.
OLD = SequenceOffsets("old stream", [OffsetStep(0, 1)])


def chain(watermark: int = 0) -> list[CommittedLane]:
    return [
        CommittedLane(1, "bulk", 7, next_seq=11, watermark=watermark, steps=OLD),
        CommittedLane(2, "bulk", 8, next_seq=6),
        CommittedLane(3, "bulk", 9, next_seq=4),
    ]


@pytest.mark.parametrize(
    ("tail", "created", "epoch"),
    [
        pytest.param(Tail(30, 9, 2), "old stream", 9, id="in the current one"),
        pytest.param(Tail(12, 8, 3), "old stream", 8, id="in the middle of a former one"),
        pytest.param(Tail(14, 8, 5), "old stream", 9, id="at the end of the last former one"),
        pytest.param(Tail(11, 7, 10), "old stream", 8, id="at the end of the one before"),
        pytest.param(Tail(70, 7, 60), "old stream", 8, id="beyond it: the ledger is an old copy"),
        pytest.param(Tail(1), "old stream", 7, id="rolled back to nothing"),
        pytest.param(Tail(1), "new stream", 7, id="made anew: from the oldest that owes"),
    ],
)  # fmt: skip
def test_the_oldest_that_is_not_at_its_end_goes_on(tail: Tail, created: str, epoch: int) -> None:
    assert choose(chain(), tail, created).epoch == epoch


def test_a_stream_made_anew_gets_only_what_the_hub_lacks() -> None:
    assert choose(chain(watermark=10), Tail(1), "new stream").epoch == 8


def test_a_store_that_went_back_is_made_whole_before_anything_new() -> None:
    """Though the hub holds all of that epoch: its sequences must not be used for anything else."""
    assert choose(chain(watermark=10), Tail(5, 7, 4), "old stream").epoch == 7


def test_a_store_that_went_back_into_what_came_again_at_an_end_is_made_whole() -> None:
    """What is appended again tells the last seq as the position, the first of a run like the last."""
    lanes = chain()
    lanes[0].steps = SequenceOffsets(
        "old stream", [OffsetStep(0, 1), OffsetStep(10, 4)]
    )  # three came again after seq 10
    assert [choose(lanes, Tail(at, 7, 10), "old stream").epoch for at in (12, 13, 14)] == [7, 7, 8]
    assert choose(lanes, Tail(12, 7, 10), "old stream", {7}).epoch == 8
    assert choose(lanes, Tail(12, 7, 10), "new stream").epoch == 8


def test_what_was_appended_to_its_end_is_not_begun_again() -> None:
    """Where its last seqs were passed over the tail never tells them."""
    assert choose(chain(), Tail(9, 7, 8), "old stream", {7}).epoch == 8
    assert choose(chain(), Tail(9, 7, 8), "old stream", {7, 8}).epoch == 9
    assert choose(chain(), Tail(1), "new stream", {7}).epoch == 8


def test_an_epoch_of_which_nothing_was_given_out_is_passed_over() -> None:
    lanes = chain()
    lanes[1].next_seq = 1
    assert choose(lanes, Tail(11, 7, 10), "old stream").epoch == 9


def test_an_epoch_without_messages_has_used_what_came_again_in_it() -> None:
    """The hub has passed those sequences, wherever the stream ends now: nothing new may get one."""
    lanes = chain()
    lanes[1].next_seq = 1
    lanes[1].steps = SequenceOffsets(
        "old stream", [OffsetStep(0, 14)]
    )  # three came again behind the 11
    assert [choose(lanes, Tail(at, 7, 10), "old stream").epoch for at in (11, 13, 14)] == [8, 8, 9]
    assert choose(lanes, Tail(11, 7, 10), "old stream", {7, 8}).epoch == 9
    assert choose(lanes, Tail(11, 7, 10), "new stream").epoch == 9
