"""The aims for frames of 200 points, envelope included, beside what `frame_size` has measured."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import Figure, at_most, report

_POINTS_A_FRAME = "200"
# The envelope's 22 bytes are 0.11 a point; the aims for what it holds are 2.1, 1.7, 2.3 and 5.2.
_ENVELOPE = 0.12
_AIMS = {"KIT OBD": 2.1, "Twizy": 1.7, "e-bike": 2.3, "PX4": 5.2}


def judged(result: dict[str, Any]) -> dict[str, object]:
    """Print the aims' table and return the result with its figures; a skipped one as it is."""
    if "recordings" not in result:
        return result
    figures = [
        Figure(
            name,
            recording["bytes_per_point"][_POINTS_A_FRAME],
            "B/point",
            at_most(_AIMS[name] + _ENVELOPE) if name in _AIMS else None,
            f"JSON: {recording['json_bytes_per_point']} B/point",
        )
        for name, recording in result["recordings"].items()
    ]
    return report(f"frame_size: {_POINTS_A_FRAME} points a frame", figures, **result)
