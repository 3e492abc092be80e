"""The report of all devices comes in pages that fit into a message."""

from __future__ import annotations

import json

from backhaul_hub.continuity import Continuity, LaneKey
from backhaul_hub.report import Report

FLEET = [f"VID-{number:05}" for number in range(5000)]


def report() -> Report:
    continuity = Continuity()
    for device in FLEET:
        for lane in ("live", "bulk"):
            for seq in (1, 2, 9):
                continuity.arrived(LaneKey(device, lane, 7), seq, 10, 1)
    continuity.arrived(LaneKey("VID-00000", "bulk", 5), 4, 10, 0)
    return Report(continuity, {}, {}, {}, lambda _: {"heads": {"count": 0}, "future": None})


def test_every_device_is_on_one_page_of_a_size_that_a_server_takes() -> None:
    found, after, pages = [], "", 0
    asked = report()
    while after is not None:
        body = asked.page(reversed(FLEET), [], after)
        assert len(body) < 1 << 20
        page = json.loads(body)
        found += [each["device"] for each in page["devices"]]
        after = page["next"]
        pages += 1
    assert found == FLEET
    assert pages > 3


def test_what_is_missing_of_former_epochs_is_listed() -> None:
    first = json.loads(report().page(FLEET, [], ""))["devices"][0]
    assert first["lanes"]["bulk"]["gaps"] == [[3, 8]]
    assert first["former"] == [
        {"lane": "bulk", "epoch": 5, "watermark": 0, "owed": [[1, 3]], "owed_ranges": 1}
    ]
