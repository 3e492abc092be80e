"""Links over which the hub hears none of a vehicle's lanes, though it sources them: such a link is cut. Pure.

A server that takes in an account anew as a leaf logs in, or seconds later, has been seen to remove all the subscriptions of that
leaf (nats-server 2.15.1, "Removed sub ... not authorized"). Pushes and pings pass over that link, the questions of sources
reach nobody, and it stays so until the leaf logs in again. Lanes may have been heard over it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backhaul_hub.device import DeviceLink
from backhaul_hub.links.sources import PUSHED, place_of
from backhaul_hub.nats.jetstream import Json

_FIRST_WAIT_S, _WAIT_S_MAX = 60.0, 1800.0
"""Over 20 kbit/s and 600 ms a lane is heard within 11 s, or answers late once or twice."""


@dataclass(slots=True)
class _Watched:
    since_ns: int
    """When the link came up that is watched."""
    began_s: float
    """When a lane was heard last, or the link came up, or it was cut."""
    wait_s: float = _FIRST_WAIT_S


class DeafLinks:
    """Decides which links are cut; times in monotonic seconds."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def look(
        self, sources: Iterable[Json], links: Mapping[str, DeviceLink], now_s: float
    ) -> list[str]:
        """Return the devices whose link is to be cut now.

        Args:
            sources: all of the relays, as the server lists them.
            links: by device. One that is down is not watched.
            now_s: the time of the look.
        """
        answers: dict[str, bool] = {}
        for source in sources:
            place = place_of(source)
            if place.lane != PUSHED:
                # A refusal is an answer, too: the vehicle's agent has not made its streams yet.
                answered = source["active"] >= 0 or bool(source.get("error"))
                answers[place.device] = answers.get(place.device, False) or answered
        return [
            device for device, heard in answers.items() if self._due(device, heard, links, now_s)
        ]

    def _due(self, device: str, heard: bool, links: Mapping[str, DeviceLink], now_s: float) -> bool:
        link = links.get(device)
        if link is None or not link.up:
            return False
        watched = self._watched.get(device)
        if watched is None:
            watched = self._watched[device] = _Watched(link.since_ns, now_s)
        if watched.since_ns != link.since_ns:
            watched.since_ns, watched.began_s = link.since_ns, now_s
        if heard:
            # One that is set up again has heard nothing yet, and is given the same time.
            watched.began_s, watched.wait_s = now_s, _FIRST_WAIT_S
        if now_s - watched.began_s < watched.wait_s:
            return False
        watched.began_s, watched.wait_s = now_s, min(2 * watched.wait_s, _WAIT_S_MAX)
        return True
