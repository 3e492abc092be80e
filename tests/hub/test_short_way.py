"""The short ways of the batch reader against the long ones: over the same streams both come to the same books.

Histories are drawn with holes, repeats, forks, messages sent again in any order, receipts, messages without links,
garbage and damage; UP loses some, and the control plane restarts. Once each message goes on its lane as far as it
does, and frames are proven together; once no message does, and each is examined alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import example, given
from hypothesis import strategies as st

from backhaul_codec import Point, encode_frame, hash_of
from backhaul_codec.ranges import RangeSet
from backhaul_codec.wire.envelope import NO_LINK, chain, restamp
from backhaul_hub.continuity import chain as chain_module
from backhaul_hub.continuity.examine import Examined, UnreadableError, examine
from backhaul_hub.continuity.examine_many import examine_many
from backhaul_hub.continuity.former_epochs import FormerEpochs
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.sync.newest_readings import Readings
from tests.support import strategies
from tests.support.hub_sync import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

    from backhaul_hub.sync.newest_readings import NewReading

SEQS = 10
EPOCHS = (7, 8)
DEVICES = ("VID-001", "VID-002")
LANES = [LaneKey(device, "bulk", epoch) for device in DEVICES for epoch in EPOCHS]
Message = tuple[str, bytes]
Event = tuple[Any, ...]


def history(device: str, epoch: int, parts_at: int, plain_to: int) -> list[Message]:
    """Return the messages of a lane; from `parts_at` on those of another machine; up to `plain_to` of version 1."""
    found, link = [], NO_LINK
    for seq in range(1, SEQS + 1):
        value = seq + (0.5 if parts_at and seq >= parts_at else 0.0)
        points = [Point("car", f"t{at % 2}", 100 * seq + at, value + at) for at in range(3)]
        body = encode_frame(points, epoch=1, seq=1)
        if seq <= plain_to:
            body = restamp(body, epoch=epoch, seq=seq)
        else:
            body = chain(body, epoch=epoch, seq=seq, link=link)
        link = hash_of("f.car", body)
        found.append((f"up.{device}.f.car", body))
    return found


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    """Draw a stretch of UP: lanes that go on, with all that may befall them."""
    found: list[Message] = []
    for _ in range(draw(st.integers(1, 5))):
        device, epoch = draw(st.sampled_from(DEVICES)), draw(st.sampled_from(EPOCHS))
        parts_at = draw(st.sampled_from([0, 0, 0, 2, 5]))
        lane = history(device, epoch, parts_at, draw(st.sampled_from([0, 0, 3])))
        low = draw(st.integers(0, SEQS - 1))
        some = lane[low : draw(st.integers(low, SEQS)) + 1]
        if draw(st.integers(0, 3)) == 0:
            some = draw(st.permutations(some))
        for subject, body in some:
            whole = draw(st.integers(0, 19))
            found.append((subject, body if whole else draw(strategies.damaged(body))))
    return found


EVENTS = st.lists(
    st.one_of(
        messages().map(lambda some: ("came", some)),
        messages().map(lambda some: ("came", some)),
        st.tuples(st.just("explained"), st.sampled_from(LANES), st.integers(1, SEQS)),
        st.tuples(
            st.just("lost"), st.sampled_from(LANES), st.sets(st.integers(1, SEQS), max_size=4)
        ),
        st.tuples(st.just("over"), st.sampled_from(LANES)),
        st.just(("restarted",)),
    ),
    max_size=8,
)


class Books:
    """What a hub knows after a turn: continuity's books, and the newest readings."""

    def __init__(self) -> None:
        self.continuity = Continuity()
        self.readings = Readings(FakeClock(), FutureRule(5.0), listening=True)
        self.said: list[object] = []
        """What was said on the way: news or a repeat, a bound, garbage, the words to vehicles."""
        self._stored_ns = 0

    def happen(self, event: Event, said: Iterable[Examined | UnreadableError]) -> None:
        kind, *words = event
        continuity = self.continuity
        if kind == "came":
            self._take(said)
        elif kind == "explained" and words[0] in continuity.lanes:
            continuity.explain(words[0], words[1], words[1], "evicted")
        elif kind == "lost" and words[0] in continuity.lanes:
            held = continuity.lanes[words[0]].held
            kept = [seq for low, high in held for seq in range(low, high + 1)]
            continuity.restate(
                words[0], RangeSet((seq, seq) for seq in kept if seq not in words[1])
            )
        elif kind == "over":
            continuity.end(words[0].device, words[0].epoch)
        elif kind == "restarted":
            self.continuity = Continuity()
            self.continuity.restore(continuity.lanes)
        self.said += [self._told(device) for device in DEVICES]

    def _take(self, said: Iterable[Examined | UnreadableError]) -> None:
        for each in said:
            self._stored_ns += 1
            if isinstance(each, UnreadableError):
                self.said.append((each.code, str(each), each.place))
                continue
            bound = self.continuity.beyond_bounds(each.key, each.seq, self._stored_ns)
            is_new = self.continuity.arrived(
                each.key, each.seq, len(each.body), self._stored_ns, link=each.link, own=each.own
            )
            self.said.append((bound, is_new, each.expansion))
            self.readings.on_message(each, is_new)
        self.readings.take_changes()

    def _told(self, device: str) -> object:
        continuity = self.continuity
        keys = continuity.current_keys(device)
        former = FormerEpochs(continuity).untold([device])
        return [(key, continuity.told_of(key)) for key in keys], former

    def all(self) -> object:
        """Return everything, ready to be compared."""
        continuity = self.continuity
        lanes = {
            key: (
                *(list(state.held), list(state.seen), state.messages, state.repeats),
                *(state.body_bytes, state.last_seen_ns, chain_module.to_text(state.chain)),
            )
            for key, state in continuity.lanes.items()
        }
        stirred = continuity.take_stirred(), continuity.take_moved(), set(continuity.take_changed())
        repeats, holes = continuity.take_repeats(), +continuity._holes
        return lanes, stirred, repeats, holes, continuity.forks, self.said, self._newest()

    def _newest(self) -> object:
        fresh = sorted(map(_words, self.readings.fresh))
        return fresh, {device: self.readings.of(device) for device in DEVICES}


def _words(new: NewReading) -> tuple[object, ...]:
    return new.device, *new.series, *new.reading, new.quality


def alone(some: Sequence[Message]) -> list[Examined | UnreadableError]:
    found: list[Examined | UnreadableError] = []
    for message in some:
        try:
            found.append(examine(*message))
        except UnreadableError as error:
            found.append(error)
    return found


ONE = history("VID-001", 7, 0, 0)


@given(EVENTS)
# What was seen and lost stands above: it is news no more, and the hole below it is closed.
@example([("came", ONE[:5] + ONE[6:8]), ("lost", LANES[0], {7, 8}), ("came", ONE[5:8])])
def test_the_short_ways_come_to_the_same_as_the_long_ones(events: list[Event]) -> None:
    short, long = Books(), Books()
    goes_on = LaneState.goes_on
    for event in events:
        some = event[1] if event[0] == "came" else []
        short.happen(event, list(examine_many(some, together_min=1)))
        LaneState.goes_on = lambda *_: False  # type: ignore[method-assign]
        try:
            long.happen(event, alone(some))
        finally:
            LaneState.goes_on = goes_on  # type: ignore[method-assign]
    assert short.all() == long.all()


def test_messages_that_go_on_do_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    books, took, goes_on = Books(), list[bool](), LaneState.goes_on

    def note(state: LaneState, *words: Any) -> bool:
        took.append(goes_on(state, *words))
        return took[-1]

    monkeypatch.setattr(LaneState, "goes_on", note)
    came = history("VID-001", 7, 0, 0)
    books.happen(("came", came), list(examine_many(came, together_min=1)))
    assert took == [False] + [True] * (SEQS - 1)
