"""Frames of the recordings stay as small as we say they are."""

from __future__ import annotations

import pytest

from tests.support.recordings import RECORDINGS, bytes_per_point, data_directory

pytestmark = pytest.mark.slow

# Bytes per point at 200 points a frame; the envelope adds 0.11.
ENVELOPE = 0.12
LIMITS = {"KIT OBD": 2.1, "Twizy": 1.7, "e-bike": 2.3, "PX4": 5.2}


@pytest.mark.parametrize("recording", LIMITS)
def test_bytes_per_point(recording: str) -> None:
    directory = data_directory()
    if directory is None:
        pytest.skip("recordings absent: set BACKHAUL_DATA to the directory that holds them")
    nodes = RECORDINGS[recording](directory)
    assert bytes_per_point(nodes, 200) <= LIMITS[recording] + ENVELOPE
