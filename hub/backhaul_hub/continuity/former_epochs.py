"""How far the hub holds former epochs of a vehicle's ledger, and which of that the vehicle has not heard. Pure.

A vehicle keeps what the hub lacks of a former epoch, and asks about it until it is whole. Where the hub's
store or registry was put back it may have been told less than is so, or more: `s.watermark` is of the
current epoch alone, and until it asked again, minutes later, it went by that.
"""

from __future__ import annotations

from collections.abc import Iterable

from backhaul_hub.continuity.chain import Watermark
from backhaul_hub.continuity.lane_book import Continuity

EPOCHS_MAX = 16
"""Former epochs of one lane that are told of: those that were heard from last."""

Place = tuple[str, str]
"""A device and a lane."""
Held = dict[int, Watermark]
"""By epoch: what is told of it."""


class FormerEpochs:
    """Knows the words that each vehicle was told."""

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._told: dict[Place, Held] = {}

    def untold(self, devices: Iterable[str]) -> dict[Place, Held]:
        """Return, by lane, all that is to be told where something of it is news."""
        return {
            place: held
            for device in devices
            for place, held in self._held(device).items()
            if self._told.get(place) != held
        }

    def told(self, place: Place, held: Held) -> None:
        """Note that this is being told: a change from now on is not told by it."""
        self._told[place] = held

    def not_told(self, place: Place) -> None:
        """Note that it could not be told."""
        self._told.pop(place, None)

    def tell_again(self, device: str) -> None:
        """Have a device told again: it may not have got that."""
        for place in [place for place in self._told if place[0] == device]:
            del self._told[place]

    def forget(self) -> None:
        """Have everybody told again: DOWN was made anew."""
        self._told.clear()

    def _held(self, device: str) -> dict[Place, Held]:
        continuity = self._continuity
        if not continuity.has_former(device):
            return {}
        keys, current = continuity.of_device(device), continuity.current(device)
        found: dict[Place, list[tuple[int, int, Watermark]]] = {}
        for key in keys:
            known = current.get(key.lane)
            if known is None or known[0] != key.epoch:
                state = continuity.lanes[key]
                word = state.last_seen_ns, key.epoch, continuity.told_of(key)
                found.setdefault((device, key.lane), []).append(word)
        return {
            place: {epoch: watermark for _, epoch, watermark in sorted(words)[-EPOCHS_MAX:]}
            for place, words in found.items()
        }
