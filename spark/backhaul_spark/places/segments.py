"""Trips and stops of one vehicle, fix by fix. Pure.

A vehicle that stays within `stop_m` of a place for `stop_s` stands: since the first fix there. Until it is out of
that reach again it stands; what is between two stops is a trip, if it led `trip_m` away. If not, it was the
receiver's jitter, or the vehicle was moved aside, and both stops are one. So a stop is certain only once the trip
after it is: until then both are told as open.

Distance is summed by chords of at least `move_m`, so that jitter at a halt does not add up.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from backhaul_spark.places.earth import arc_m, wrapped
from backhaul_spark.places.fixes import Fix
from backhaul_spark.places.settings import PlacesSettings, ns

End: TypeAlias = Literal["stop", "trip", "gap", "open"]
Row: TypeAlias = dict[str, Any]
# A chord takes at least so long: of two fixes within less, jitter would be a speed.
CHORD_NS = 1_000_000_000
# Of `stop_m`: where a vehicle has come to a halt, and where it begins to leave. The whole is for jitter.
NEAR = 0.4


class Use(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Energy in Wh, of so many readings; and how long the engine ran, in s, of so many readings."""

    energy_wh: float = 0.0
    energies: int = 0
    running_s: float = 0.0
    runnings: int = 0

    def plus(self, other: Use) -> Use:
        """Return the sum of both."""
        return Use(
            self.energy_wh + other.energy_wh,
            self.energies + other.energies,
            self.running_s + other.running_s,
            self.runnings + other.runnings,
        )

    def row(self) -> Row:
        """Return the energy as a table has it: null where nothing said it."""
        return {"energy_wh": self.energy_wh if self.energies else None}


NOTHING = Use()


class Way(msgspec.Struct, array_like=True):
    """A trip up to its last fix.

    `anchor`: where its last chord ended; `rest_running_s`: the engine's time since then; `far_m`: the farthest
    from where it, or the stop before it, began.
    """

    began: Literal["start", "stop", "gap"]
    start: Fix
    end: Fix
    anchor: Fix
    distance_m: float = 0.0
    idle_s: float = 0.0
    rest_running_s: float = 0.0
    speed_max_mps: float = 0.0
    far_m: float = 0.0
    fixes: int = 1
    use: Use = NOTHING

    def take(self, fix: Fix, use: Use, origin: Fix, settings: PlacesSettings) -> None:
        """Add a fix; `origin` is from where `far_m` is counted."""
        self.end = fix
        self.fixes += 1
        self.use = self.use.plus(use)
        self.rest_running_s += use.running_s
        self.far_m = max(self.far_m, fix.metres(origin))
        metres, past_ns = fix.metres(self.anchor), fix.time_ns - self.anchor.time_ns
        if metres >= settings.move_m and past_ns >= CHORD_NS:
            speed = metres / past_ns * 1e9
            self.distance_m += metres
            self.speed_max_mps = max(self.speed_max_mps, speed)
            if speed < settings.idle_mps:
                self.idle_s += self._idle_s(past_ns, settings)
            self.anchor, self.rest_running_s = fix, 0.0

    def row(self, ended: End, settings: PlacesSettings) -> Row:
        """Return it as the table trips has it."""
        rest_m, rest_ns = self.end.metres(self.anchor), self.end.time_ns - self.anchor.time_ns
        idles = rest_ns * settings.idle_mps / 1e9 > max(rest_m, settings.move_m)
        idle_s = self.idle_s + (self._idle_s(rest_ns, settings) if idles else 0.0)
        return {
            "start_ns": self.start.time_ns,
            "end_ns": self.end.time_ns,
            "distance_m": self.distance_m + rest_m,
            "idle_s": idle_s,
            "speed_max_mps": self.speed_max_mps,
            "fixes": self.fixes,
            "start_lat": self.start.lat,
            "start_lon": self.start.lon,
            "end_lat": self.end.lat,
            "end_lon": self.end.lon,
            "began": self.began,
            "ended": ended,
        } | self.use.row()

    def _idle_s(self, past_ns: int, settings: PlacesSettings) -> float:
        return self.rest_running_s if settings.running else past_ns / 1e9


class Spot(msgspec.Struct, array_like=True):
    """Fixes around a first one, as sums of their differences to it: degrees and metres."""

    first: Fix
    fixes: int = 0
    lat: float = 0.0
    lon: float = 0.0
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0

    def take(self, fix: Fix) -> None:
        """Add a fix."""
        first = self.first
        self.fixes += 1
        self.lat += fix.lat - first.lat
        self.lon += wrapped(fix.lon - first.lon)
        self.x += fix.x - first.x
        self.y += fix.y - first.y
        self.z += fix.z - first.z

    def metres(self, fix: Fix) -> float:
        """Return the distance of a fix from the middle of those that were added."""
        first, count = self.first, self.fixes or 1
        x = fix.x - first.x - self.x / count
        y = fix.y - first.y - self.y / count
        z = fix.z - first.z - self.z / count
        return arc_m((x * x + y * y + z * z) ** 0.5)

    def middle(self) -> tuple[float, float]:
        """Return the middle's latitude and longitude."""
        count = self.fixes or 1
        lon = self.first.lon + self.lon / count
        return self.first.lat + self.lat / count, lon if -180 <= lon <= 180 else wrapped(lon)


class Stay(msgspec.Struct, array_like=True):
    """Fixes near one another that are no stop yet, and the trip as it was at the first of them."""

    spot: Spot
    end: Fix
    before: Way
    use: Use = NOTHING


class Standstill(msgspec.Struct, array_like=True):
    """A stop: its first and last fix, all of its fixes, those since it was moved aside, and the use."""

    start: Fix
    end: Fix
    spot: Spot
    here: Spot
    use: Use

    def row(self, ended: End, settings: PlacesSettings) -> Row:
        """Return it as the table stops has it."""
        lat, lon = self.spot.middle()
        use = self.use
        return {
            "start_ns": self.start.time_ns,
            "end_ns": self.end.time_ns,
            "idle_s": use.running_s if settings.running and use.runnings else None,
            "fixes": self.spot.fixes,
            "lat": lat,
            "lon": lon,
            "ended": ended,
        } | use.row()


class Segments(msgspec.Struct, array_like=True):
    """The trip and the stop of a vehicle that are not certain yet, up to a fix.

    With `stay` it moves on `trip`, and `stop` is the stop before that; `near` is the same within a smaller reach.
    Without `stay` it stands in `stop`, and `trip` is how it begins to leave, maybe.
    """

    last: Fix | None = None
    stop: Standstill | None = None
    trip: Way | None = None
    stay: Stay | None = None
    near: Stay | None = None

    def take(
        self, fix: Fix, use: Use, *, moved: bool, settings: PlacesSettings
    ) -> list[tuple[str, Row]]:
        """Add a fix, and the use since the one before it; return the rows that are certain now: (`trips` or `stops`, row).

        `moved`: the vehicle was carried to here unseen.
        """
        last, self.last = self.last, fix
        if last is None:
            self._begin(fix, "start")
            return []
        gap = fix.time_ns - last.time_ns > settings.gap_ns
        if moved or (gap and fix.metres(last) > settings.stop_m):
            found = self.rows("gap", settings)
            self.stop = None
            self._begin(fix, "gap")
            return found
        if self.stay is None or self.near is None or self.trip is None:
            self._stand(last, fix, use, settings)
            return []
        if gap and fix.metres(self.stay.spot.first) > settings.stop_m:
            # It was off, where it had stopped just before.
            self.stay, self.near = _stay(last, self.trip), _stay(last, self.trip)
        self.trip.take(fix, use, self._origin(self.trip), settings)
        self.stay = _stayed(self.stay, fix, use, self.trip, settings.stop_m)
        self.near = _stayed(self.near, fix, use, self.trip, settings.stop_m * NEAR)
        past_ns = fix.time_ns - self.stay.spot.first.time_ns
        if past_ns < ns(settings.stop_s):
            return []
        near_ns = fix.time_ns - self.near.spot.first.time_ns
        return self._stopped(self.near if near_ns >= past_ns / 2 else self.stay, settings)

    def rows(
        self, ended: Literal["gap", "open"], settings: PlacesSettings
    ) -> list[tuple[str, Row]]:
        """Return the rows that are not certain, as if they ended here: (`trips` or `stops`, row)."""
        stop, trip = self.stop, self.trip
        if trip is None or (self.stay and trip.far_m >= settings.trip_m):
            stops = [("stops", stop.row("trip" if trip else ended, settings))] if stop else []
            return [*stops, ("trips", trip.row(ended, settings))] if trip else stops
        if stop is None:
            return []
        longer = replace(stop, end=trip.end, use=stop.use.plus(trip.use))
        return [("stops", longer.row(ended, settings))]

    def _begin(self, fix: Fix, began: Literal["start", "gap"]) -> None:
        self.trip = Way(began, fix, fix, fix)
        self.stay, self.near = _stay(fix, self.trip), _stay(fix, self.trip)

    def _origin(self, trip: Way) -> Fix:
        return self.stop.start if self.stop else trip.start

    def _stand(self, last: Fix, fix: Fix, use: Use, settings: PlacesSettings) -> None:
        stop, leaving = self.stop, self.trip
        if stop is None:
            raise AssertionError("a vehicle that neither moves nor stands")
        metres = stop.here.metres(fix)
        if metres <= settings.stop_m * NEAR:
            stop.use = (
                stop.use.plus(use) if leaving is None else stop.use.plus(leaving.use).plus(use)
            )
            stop.end, self.trip = fix, None
            stop.spot.take(fix)
            stop.here.take(fix)
            return
        leaving = leaving or Way("stop", last, last, last)
        leaving.take(fix, use, stop.start, settings)
        self.trip = leaving
        if metres > settings.stop_m:
            self.stay, self.near = _stay(fix, leaving), _stay(fix, leaving)

    def _stopped(self, stay: Stay, settings: PlacesSettings) -> list[tuple[str, Row]]:
        """Make a stop of a stay that has lasted."""
        before, stop = stay.before, self.stop
        self.trip = self.stay = self.near = None
        if stop is not None and before.far_m < settings.trip_m:
            _join(stop.spot, stay.spot)
            use = stop.use.plus(before.use).plus(stay.use)
            self.stop = Standstill(stop.start, stay.end, stop.spot, stay.spot, use)
            return []
        found = [("stops", stop.row("trip", settings))] if stop else []
        if before.far_m >= settings.trip_m:
            found.append(("trips", before.row("stop", settings)))
        self.stop = Standstill(stay.spot.first, stay.end, stay.spot, replace(stay.spot), stay.use)
        return found


def _stay(fix: Fix, trip: Way) -> Stay:
    spot = Spot(fix)
    spot.take(fix)
    return Stay(spot, fix, replace(trip))


def _stayed(stay: Stay, fix: Fix, use: Use, trip: Way, reach_m: float) -> Stay:
    """Return the stay with one more fix, or that which begins with it."""
    if fix.metres(stay.spot.first) > reach_m:
        return _stay(fix, trip)
    stay.spot.take(fix)
    stay.end, stay.use = fix, stay.use.plus(use)
    return stay


def _join(spot: Spot, other: Spot) -> None:
    """Add the fixes of another spot."""
    first, count = spot.first, other.fixes
    spot.fixes += count
    spot.lat += other.lat + count * (other.first.lat - first.lat)
    spot.lon += other.lon + count * wrapped(other.first.lon - first.lon)
    spot.x += other.x + count * (other.first.x - first.x)
    spot.y += other.y + count * (other.first.y - first.y)
    spot.z += other.z + count * (other.first.z - first.z)
