"""Asking vehicles for missing messages: when, of which epoch, and when to let it be.

Pure: the time, the state of the link and what is missing come in, what is to be asked goes out.
A gap is asked for once it has stood for a while; then it is waited for as long as something of it
comes, or a backlog is in front of it; then asked for again, less and less often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from backhaul_hub.continuity.lane_book import Continuity

RANGES_MAX = 256
"""Ranges in one request: about 5 KB on the link."""
GRACE_S = 2.0
"""For how long a gap stands before it is asked for: a stream that is read again fills it by itself."""
PATIENCE_S = 5.0
"""For how long nothing of what was asked for may come before it is asked for again."""
PATIENCE_S_MAX = 300.0
# A link that comes up again and again is not asked each time.
_LINK_UP_S_MIN = 10.0

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LaneAsk:
    """A request for one lane: the newest replaces all before; no ranges: nothing more is asked."""

    epoch: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class EpochView:
    """The gaps of one epoch of a lane."""

    epoch: int
    current: bool
    """Whether the vehicle still adds to it."""
    gaps: list[Range]
    """Missing, with something above it that has arrived."""
    owed: list[Range]
    """The gaps, and what the vehicle has spoken of above them."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane of a connected device."""

    epochs: list[EpochView]
    """Those that something is missing of, the current one first."""
    arrivals: int
    """Messages that have ever arrived in it, repeats included."""
    lag: int | None
    """Messages that wait at the vehicle, as the source has it; None: unknown."""
    up_since_s: float
    """When the link came up; monotonic seconds."""


@dataclass(slots=True)
class _Watched:
    """The record of one epoch's gaps."""

    lowest: int
    missing: int
    quiet_since_s: float
    """When something of it last came, or the lowest gap was first seen."""
    asked_s: float | None = None
    asked_over_link_s: float = 0.0
    """Which link it was asked over, by when that came up."""
    patience_s: float = PATIENCE_S


@dataclass(slots=True)
class LaneRepair:
    """Decides for one lane of one device, all its epochs. Times are monotonic seconds."""

    _epochs: dict[int, _Watched] = field(default_factory=dict)
    _arrivals: int = -1
    _moved_s: float = 0.0
    _lagging_s: float = 0.0
    """When the lane was last seen to lag, or its lag was unknown."""

    @property
    def idle(self) -> bool:
        """Whether nothing is remembered, so that this object may go."""
        return not self._epochs

    def look(self, view: LaneView, now_s: float) -> LaneAsk | None:
        """Return the gaps to ask for now, None for nothing new."""
        if view.arrivals != self._arrivals:
            self._arrivals, self._moved_s = view.arrivals, now_s
        if view.lag != 0:
            self._lagging_s = now_s
        finished = self.note(view.epochs, now_s)
        ask = self._next(view, now_s)
        if ask is None and finished and not any(map(self._is_asked, self._epochs)):
            return LaneAsk(finished[0], ())
        return ask

    def note(self, epochs: Iterable[EpochView], now_s: float) -> list[int]:
        """Take in the gaps; return the epochs that were asked for and miss nothing now."""
        views = {each.epoch: each for each in epochs}
        for each in views.values():
            self._note(each, now_s)
        whole = [epoch for epoch in self._epochs if epoch not in views]
        return [epoch for epoch in whole if self._epochs.pop(epoch).asked_s is not None]

    def _note(self, view: EpochView, now_s: float) -> None:
        lowest, missing = view.owed[0][0], _count(view.owed)
        known = self._epochs.get(view.epoch)
        if known is None:
            self._epochs[view.epoch] = _Watched(lowest, missing, now_s)
            return
        if lowest != known.lowest or missing < known.missing:
            known.quiet_since_s = now_s
            known.patience_s = PATIENCE_S
        known.lowest, known.missing = lowest, missing

    def _next(self, view: LaneView, now_s: float) -> LaneAsk | None:
        waited_for = [each for each in view.epochs if self._waits_for(each.epoch, now_s)]
        for each in waited_for or view.epochs:
            ranges = self._wanted(each, now_s)
            if ranges and self._due(self._epochs[each.epoch], view, now_s):
                self._asked(self._epochs[each.epoch], view, now_s)
                return LaneAsk(each.epoch, tuple(ranges[:RANGES_MAX]))
        return None

    def _wanted(self, view: EpochView, now_s: float) -> list[Range]:
        """Return the gaps that may be asked for: above all that came, only those that are not coming.

        Of the current epoch, that may be on its way for as long as the lane moves; of a former one
        for as long as anything waits at the vehicle.
        """
        since_s = max(self._lagging_s, self._moved_s if view.current else 0.0)
        return view.owed if now_s - since_s >= GRACE_S else view.gaps

    def _due(self, known: _Watched, view: LaneView, now_s: float) -> bool:
        quiet_s = now_s - known.quiet_since_s
        if known.asked_s is None:
            # A gap that was there before the link is asked for at once when it comes.
            return quiet_s >= GRACE_S or known.quiet_since_s < view.up_since_s
        if known.asked_over_link_s != view.up_since_s:
            return now_s - known.asked_s >= _LINK_UP_S_MIN
        # What was asked for comes behind what already waits at the vehicle.
        waited_s = now_s - max(known.asked_s, known.quiet_since_s, self._lagging_s)
        return waited_s >= known.patience_s

    def _asked(self, known: _Watched, view: LaneView, now_s: float) -> None:
        if known.asked_s is not None and known.asked_over_link_s == view.up_since_s:
            known.patience_s = min(2 * known.patience_s, PATIENCE_S_MAX)
        known.asked_s, known.asked_over_link_s = now_s, view.up_since_s

    def _waits_for(self, epoch: int, now_s: float) -> bool:
        """Say whether an answer for this epoch may be under way: no other is asked for then."""
        known = self._epochs[epoch]
        if known.asked_s is None:
            return False
        return now_s - max(known.asked_s, known.quiet_since_s, self._lagging_s) < PATIENCE_S

    def _is_asked(self, epoch: int) -> bool:
        return self._epochs[epoch].asked_s is not None


class RepairBook:
    """Every lane that something is missing of."""

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._lanes: dict[tuple[str, str], LaneRepair] = {}

    def asks(
        self,
        up_since_s: Callable[[str], float | None],
        lags: Mapping[tuple[str, str], int],
        now_s: float,
    ) -> Iterable[tuple[str, str, LaneAsk]]:
        """Return (device, lane, request) for all that is to be asked now.

        Args:
            up_since_s: tells since when a device is connected; None: it is not.
            lags: of the sources, by (device, lane).
            now_s: monotonic seconds, as all times here.
        """
        for place in self._sort_out():
            if up_since_s(place[0]) is None:
                # Asked for as soon as its link comes, since it is known by then.
                self._lanes[place].note(self._view(place, 0.0, None).epochs, now_s)
        found = []
        for place in list(self._lanes):
            device, lane = place
            if (since_s := up_since_s(device)) is None:
                continue
            view = self._view(place, since_s, lags.get(place))
            ask = self._lanes[place].look(view, now_s)
            if ask is not None:
                found.append((device, lane, ask))
            if self._lanes[place].idle:
                del self._lanes[place]
        return found

    def _sort_out(self) -> set[tuple[str, str]]:
        """Look at the lanes that changed; return those that something is or was missing of."""
        places = set()
        for key in self._continuity.take_stirred():
            place = (key.device, key.lane)
            if self._continuity.owes(key):
                self._lanes.setdefault(place, LaneRepair())
            if place in self._lanes:
                places.add(place)
        return places

    def _view(self, place: tuple[str, str], up_since_s: float, lag: int | None) -> LaneView:
        device, lane = place
        known = self._continuity.current(device).get(lane)
        current = known[0] if known else None
        epochs, arrivals = [], 0
        for key in self._continuity.of_device(device):
            if key.lane != lane:
                continue
            state = self._continuity.lanes[key]
            arrivals += state.messages + state.repeats
            if self._continuity.owes(key):
                gaps, owed = state.wanted
                if owed:
                    epochs.append(EpochView(key.epoch, key.epoch == current, gaps, owed))
        epochs.sort(key=lambda each: (not each.current, each.epoch))
        return LaneView(epochs, arrivals, lag, up_since_s)


def _count(ranges: Iterable[Range]) -> int:
    return sum(high - low + 1 for low, high in ranges)
