"""Continuity: which messages of a lane the hub holds, which it misses, how far it misses none.

Pure and synchronous. It is told what arrived in UP, in whatever order, repeats included, what the
vehicle said of its lanes, and what UP has lost; it answers what is new and what is missing. A
source that reports lag 0 proves nothing (a leaf store that lost its tail reuses sequence numbers);
the seqs that the ledger wrote into every message do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from backhaul_codec.kinds import LIVE
from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.chain import Fork, Watermark
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.continuity.repeats import Repeats, Run

# What one device may make the hub remember. An agent that started a thousand times without a link
# (each start is an epoch of its own then), or a link with a thousand separate holes, stays below;
# whoever lies does not go beyond: a few megabytes.
EPOCHS_MAX = 1024
"""Epochs of one lane."""
LANES_MAX = 4096
"""(lane, epoch) pairs."""
HOLES_MAX = 16_384
"""Separate ranges of seqs, over all its lanes; as many receipts in each."""
FORGOTTEN_AFTER_NS = 86_400 * 1_000_000_000
"""A former epoch that nothing came of for so long makes room for a new one."""
_NONE_FORMER_NS = 1_000_000_000
"""A device that has no former epoch is looked through again after so long."""


class Continuity:
    """Continuity of every lane that sends to this hub."""

    def __init__(self) -> None:
        self.lanes: dict[LaneKey, LaneState] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        """(device, bound) to how many messages went beyond it since the start."""
        # In order of their coming, so that the same words always come to the same.
        self._of_device: dict[str, dict[LaneKey, None]] = {}
        self._newest: dict[str, dict[str, LaneKey]] = {}
        self._ended: dict[str, set[int]] = {}
        self._holes: Counter[str] = Counter()
        self._epochs: Counter[tuple[str, str]] = Counter()
        self._no_room_until_ns: dict[str, int] = {}
        self._changed: set[LaneKey] = set()
        self._stirred: dict[LaneKey, None] = {}
        self._not_whole: set[LaneKey] = set()
        self.arrivals = 0
        """Messages of all lanes that are known, repeats included."""
        self._moved: dict[str, None] = {}
        self._repeats = Repeats(self.unclear)
        self.erased: frozenset[str] = frozenset()
        """Devices of which nothing is taken in: they were erased."""
        self.forks: list[LaneKey] = []
        """Lanes in which a second history was seen, each once."""
        self._forgotten: list[LaneKey] = []

    def restore(self, lanes: Mapping[LaneKey, LaneState]) -> None:
        """Take in the stored books."""
        for key, state in lanes.items():
            self._enter(key, state)
            self._holes[key.device] += len(state.seen)
            self.arrivals += state.messages + state.repeats
            self._heard(key, state)
            self._stirred[key] = None
            self._moved[key.device] = None
            if state.chain.forked:
                self.forks.append(key)

    def beyond_bounds(self, key: LaneKey, seq: int, stored_ns: int) -> str | None:
        """Say which bound of its device this message would break, None for none.

        Asked before `arrived`; what is refused is counted here.
        """
        if key in self.lanes and self._holes[key.device] < HOLES_MAX:
            return None
        bound = self._bound(key, seq, stored_ns)
        if bound is not None:
            self.refused[key.device, bound] += 1
        return bound

    def arrived(
        self,
        key: LaneKey,
        seq: int,
        body_bytes: int,
        stored_ns: int,
        *,
        link: bytes = b"",
        own: bytes = b"",
    ) -> bool:
        """Take in one message; return whether it never came before (False: a repeat).

        `link` and `own`: the hash that it names as the one before it, and its own (see `chain.Chain`).
        """
        state = self._state(key)
        self._touch(key)
        self.arrivals += 1
        if state.goes_on(seq, link, own):
            if stored_ns >= state.last_seen_ns:
                state.last_seen_ns = stored_ns
                self._heard(key, state)
            state.messages += 1
            state.body_bytes += body_bytes
            return True
        was_forked = state.chain.forked
        if state.held.add(seq):
            known = self._repeats.goes_on(key, seq, link)
            state.chain.add(seq, link, own, state.held, known=known)
        elif state.chain.repeat(seq, own):
            self._repeats.add(key, seq, link, own)
        if state.chain.forked and not was_forked:
            self.forks.append(key)
        before = len(state.seen)
        is_new = state.seen.add(seq) > 0
        if stored_ns >= state.last_seen_ns:
            state.last_seen_ns = stored_ns
            self._heard(key, state)
        if not is_new:
            state.repeats += 1
            return False
        self._holes[key.device] += len(state.seen) - before
        state.messages += 1
        state.body_bytes += body_bytes
        return True

    def explain(self, key: LaneKey, low: int, high: int, reason: str, behind: bytes = b"") -> bool:
        """Take in a receipt: `low..high` will never come. False where a bound refuses it.

        `behind`: what the message behind them names as the hash before it; empty where it is not said.

        Raises:
            ValueError: where `low..high` is no range of seqs.
        """
        if (key not in self.lanes and self._too_many_lanes(key)) or (
            key in self.lanes and len(self.lanes[key].receipts) >= HOLES_MAX
        ):
            self.refused[key.device, "receipts"] += 1
            return False
        state = self._state(key)
        was_forked = state.chain.forked
        state.explain(low, high, reason, behind)
        if state.chain.forked and not was_forked:
            self.forks.append(key)
        self._touch(key)
        return True

    def wait(self, key: LaneKey, seq: int, digest: bytes) -> None:
        """Take in that a message stands in UP, and cannot be read before the dictionary of this digest comes."""
        state = self.lanes.get(key)
        if state is not None and sum(map(len, state.waiting.values())) < HOLES_MAX:
            state.waiting.setdefault(digest, RangeSet()).add(seq)
            self._touch(key)

    def waited(self, device: str, digest: bytes) -> None:
        """Take in that all messages that waited for a dictionary were looked at: a seq that is missing now is missing."""
        for key in self.of_device(device):
            if self.lanes[key].waiting.pop(digest, None):
                self._touch(key)

    def say(self, key: LaneKey, seq: int) -> None:
        """Take in a vehicle's word that its lane went as far as `seq`."""
        if seq < 1 or (key not in self.lanes and self._too_many_lanes(key)):
            return
        state = self._state(key)
        if seq > state.said:
            state.said = seq
            self._touch(key)

    def end(self, device: str, epoch: int) -> bool:
        """Take in that the ledger of this epoch is no more; its lanes are never the newest.

        False where a bound refuses it: a device that names epochs without end.
        """
        ended = self._ended.setdefault(device, set())
        if epoch not in ended and len(ended) >= LANES_MAX:
            self.refused[device, "ended"] += 1
            return False
        ended.add(epoch)
        self._moved[device] = None
        newest = self._newest.get(device, {})
        for lane in [lane for lane, key in newest.items() if key.epoch == epoch]:
            del newest[lane]
        for key in self.of_device(device):
            self._heard(key, self.lanes[key])
        return True

    def is_over(self, key: LaneKey) -> bool:
        """Say whether the vehicle has said that the ledger of this epoch is no more."""
        return key.epoch in self._ended.get(key.device, ())

    def age(self, key: LaneKey, ranges: RangeSet) -> None:
        """Take in that UP's limits took these: they were held, and count as such for good."""
        state = self._state(key)
        for low, high in ranges:
            state.aged.add(low, high)
        self._touch(key)

    def restate(self, key: LaneKey, stored: RangeSet) -> None:
        """Take in all that UP holds of a lane, after it lost something."""
        state = self._state(key)
        state.held = state.aged.union(stored)
        state.chain.forget(state.held, state.explained)
        self._touch(key)

    def lost(self, key: LaneKey) -> int:
        """Return how many messages of a lane UP has had, and has lost."""
        state = self.lanes.get(key)
        return state.lost if state else 0

    def take_repeats(self, of: Collection[LaneKey] | None = None) -> dict[LaneKey, list[Run]]:
        """Return the repeats of which it is not known whether they are the same. `of`: in these lanes alone."""
        return self._repeats.take(of)

    def fork(self, key: LaneKey, since: int = 0) -> None:
        """Take in that two histories of a lane have been seen. `since`: as in `Chain.fork`."""
        state = self.lanes.get(key)
        if state is None:
            return
        if not state.chain.forked:
            self.forks.append(key)
        state.chain.fork(since)
        self._touch(key)

    def unclear(self, key: LaneKey) -> None:
        """Take in that nobody will know where another history of a lane begins, if there is one."""
        self.lanes[key].chain.since = 1
        self._touch(key)

    def fork_of(self, key: LaneKey) -> Fork:
        """Return the word to the vehicle on a lane's epoch."""
        if key in self.lanes:
            return self.told_of(key).fork
        return Fork.OVER if self.is_over(key) else Fork.NONE

    def told_of(self, key: LaneKey) -> Watermark:
        """Return the word to the vehicle on a lane that is known."""
        state = self.lanes[key]
        watermark = state.watermark
        seq, known = state.chain.proven(watermark)
        fork = Fork.OVER if self.is_over(key) else Fork.UNPROVEN if seq < watermark else Fork.NONE
        return Watermark(seq, known, Fork.FORKED if state.chain.forked else fork)

    def known(self, device: str, epoch: int) -> dict[str, int]:
        """Return the highest seq that anybody has ever heard of, by lane of one epoch."""
        return {
            key.lane: max(state.seen.highest, state.explained.highest, state.said)
            for key in self._of_device.get(device, ())
            if key.epoch == epoch
            for state in [self.lanes[key]]
        }

    def take_changed(self) -> dict[LaneKey, LaneState]:
        """Return the lanes that changed since the last call, to be stored."""
        changed = {key: self.lanes[key] for key in self._changed}
        self._changed.clear()
        return changed

    def take_forgotten(self) -> list[LaneKey]:
        """Return the lanes that made room since the last call, to be deleted."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def take_stirred(self) -> list[LaneKey]:
        """Return the lanes that changed, or were forgotten, since the last call, each once."""
        stirred = list(self._stirred)
        self._stirred.clear()
        for key in stirred:
            (self._not_whole.add if self._owes_now(key) else self._not_whole.discard)(key)
        return stirred

    def owes(self, key: LaneKey) -> bool:
        """Say whether a lane owed something when those that changed were taken last."""
        return key in self._not_whole

    def not_whole(self) -> set[LaneKey]:
        """Return the lanes that owe something now."""
        return set(filter(self._owes_now, self._not_whole.union(self._stirred)))

    def _owes_now(self, key: LaneKey) -> bool:
        return key in self.lanes and not self.lanes[key].whole

    def take_moved(self) -> list[str]:
        """Return the devices whose words may be others than at the last call, each once."""
        moved, self._moved = list(self._moved), {}
        return moved

    def of_device(self, device: str) -> list[LaneKey]:
        """Return every lane of a device, of all epochs, in order of their coming."""
        return list(self._of_device.get(device, ()))

    def current(self, device: str) -> dict[str, tuple[int, LaneState]]:
        """Return the newest epoch of each lane of a device: lane to (epoch, state).

        Epochs are random, so the newest is the one that was heard from last, and none that the
        vehicle has said is over: its messages may still be sent again. An older agent does not say it
        of an epoch that its ledger has lost. So where a lane has messages in the epoch in which the live
        lane was heard from last, it is that one: a vehicle speaks there every hour, elsewhere maybe not for days.
        """
        return {key.lane: (key.epoch, self.lanes[key]) for key in self.current_keys(device)}

    def has_former(self, device: str) -> bool:
        """Tell whether a device has lanes that are not `current`."""
        return len(self._of_device.get(device, ())) > len(self._newest.get(device, ()))

    def current_keys(self, device: str) -> list[LaneKey]:
        """Return the keys of `current`."""
        newest = self._newest.get(device, {})
        live = newest.get(LIVE)
        if live is None:
            return list(newest.values())
        epoch = live.epoch
        found = list(newest.values())
        for at, heard in enumerate(found):
            if heard.epoch != epoch:
                spoken = heard._replace(epoch=epoch)
                if spoken in self.lanes and self.lanes[spoken].seen:
                    found[at] = spoken
        return found

    def _bound(self, key: LaneKey, seq: int, stored_ns: int) -> str | None:
        state = self.lanes.get(key)
        if state is None:
            if self._too_many_lanes(key) and not self._made_room(key, stored_ns):
                return "epochs"
            return self._hole_bound(key.device)
        near = seq in state.seen or (seq - 1) in state.seen or (seq + 1) in state.seen
        return None if near else self._hole_bound(key.device)

    def _hole_bound(self, device: str) -> str | None:
        return "holes" if self._holes[device] >= HOLES_MAX else None

    def _too_many_lanes(self, key: LaneKey) -> bool:
        return (
            self._epochs[key.device, key.lane] >= EPOCHS_MAX
            or len(self._of_device.get(key.device, ())) >= LANES_MAX
        )

    def _made_room(self, key: LaneKey, now_ns: int) -> bool:
        """Forget the former epoch that was heard from longest ago, if that is long enough ago."""
        if now_ns < self._no_room_until_ns.get(key.device, 0):
            return False
        newest = {*self._newest.get(key.device, {}).values(), *self.current_keys(key.device)}
        former = [each for each in self.of_device(key.device) if each not in newest]
        if self._epochs[key.device, key.lane] >= EPOCHS_MAX:
            former = [each for each in former if each.lane == key.lane]
        oldest = min(former, key=lambda each: self.lanes[each].last_seen_ns, default=None)
        if oldest is None:
            # Looked at for each message, thousands of lanes would take the hub's time from all other devices.
            self._no_room_until_ns[key.device] = now_ns + _NONE_FORMER_NS
            return False
        until_ns = self.lanes[oldest].last_seen_ns + FORGOTTEN_AFTER_NS
        if now_ns < until_ns:
            self._no_room_until_ns[key.device] = until_ns
            return False
        forgotten = self.lanes.pop(oldest)
        self._holes[oldest.device] -= len(forgotten.seen)
        self.arrivals -= forgotten.messages + forgotten.repeats
        del self._of_device[oldest.device][oldest]
        self._epochs[oldest.device, oldest.lane] -= 1
        self._changed.discard(oldest)
        if oldest in self.forks:
            self.forks.remove(oldest)
        self._stirred[oldest] = None
        self._moved[oldest.device] = None
        self._repeats.forget(oldest)
        self._forgotten.append(oldest)
        return True

    def _touch(self, key: LaneKey) -> None:
        self._changed.add(key)
        self._stirred[key] = None
        self._moved[key.device] = None

    def _heard(self, key: LaneKey, state: LaneState) -> None:
        lanes = self._newest.setdefault(key.device, {})
        known = lanes.get(key.lane)
        if known == key or not state.seen or self.is_over(key):
            return
        if known is None or state.last_seen_ns >= self.lanes[known].last_seen_ns:
            lanes[key.lane] = key

    def _state(self, key: LaneKey) -> LaneState:
        state = self.lanes.get(key)
        if state is None:
            state = LaneState()
            self._enter(key, state)
        return state

    def _enter(self, key: LaneKey, state: LaneState) -> None:
        self.lanes[key] = state
        self._of_device.setdefault(key.device, {})[key] = None
        self._epochs[key.device, key.lane] += 1
