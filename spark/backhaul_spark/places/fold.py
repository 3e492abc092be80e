"""One hour of one vehicle: its state before and its readings give rows, and its state after. Pure.

The state is text. It holds every double to its last bit, so an hour that is computed again from the same state and
the same readings gives the same rows, and where the state after it is what it was, nothing later has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from backhaul_spark.places.crossings import Crossings, Fence
from backhaul_spark.places.earth import Series
from backhaul_spark.places.fixes import Cleaning, Fix, Pairing
from backhaul_spark.places.meters import UseMeter
from backhaul_spark.places.segments import Row, Segments, Use
from backhaul_spark.places.settings import PlacesSettings, Role

Inside: TypeAlias = Callable[[Sequence[Fix], set[str]], Sequence[tuple[Fence, Sequence[bool]]]]
"""Of fixes, and of names of fences that are to be among them: the fences with which of the fixes are inside."""
NONE: Series = (np.empty(0, np.int64), np.empty(0, np.float64))


class VehicleFold(msgspec.Struct):
    """All that is known of a vehicle's past and matters for its future."""

    pairing: Pairing = msgspec.field(default_factory=Pairing)
    cleaning: Cleaning = msgspec.field(default_factory=Cleaning)
    segments: Segments = msgspec.field(default_factory=Segments)
    crossings: Crossings = msgspec.field(default_factory=Crossings)
    energy: UseMeter = msgspec.field(default_factory=UseMeter)
    running: UseMeter = msgspec.field(default_factory=UseMeter)

    @classmethod
    def of(cls, text: str | None) -> VehicleFold:
        """Return the vehicle that a text says; without one, one that nothing is known of."""
        return _DECODER.decode(text) if text else cls()

    def text(self) -> str:
        """Return it as text."""
        return msgspec.json.encode(self).decode()

    def take(
        self, readings: Mapping[Role, Series], inside: Inside, settings: PlacesSettings
    ) -> list[tuple[str, Row]]:
        """Add the readings of an hour, later than those before them; return the rows that are certain now: (table, row)."""
        pairs = self.pairing.take(readings.get("lat", NONE), readings.get("lon", NONE), settings)
        believed = self.cleaning.take(pairs, settings)
        fixes = [fix for fix, _ in believed]
        found = self.crossings.take(fixes, inside(fixes, self.crossings.near()), settings.fence_s)
        rows: list[tuple[str, Row]] = [("fences", row) for row in found]
        for (fix, moved), use in zip(believed, self._uses(readings, fixes, settings), strict=True):
            rows += self.segments.take(fix, use, moved=moved, settings=settings)
        return rows

    def open_rows(self, settings: PlacesSettings) -> list[tuple[str, Row]]:
        """Return the rows that later readings may still change, as they are now: (table, row)."""
        return self.segments.rows("open", settings)

    def _uses(
        self, readings: Mapping[Role, Series], fixes: Sequence[Fix], settings: PlacesSettings
    ) -> list[Use]:
        at_ns = np.array([fix.time_ns for fix in fixes], np.int64)
        energy = self.energy.energy(readings.get("energy", NONE), at_ns, settings)
        running = self.running.running(readings.get("running", NONE), at_ns, settings)
        return [Use(*each) for each in zip(*energy, *running, strict=True)]


_DECODER: Any = msgspec.json.Decoder(VehicleFold)
