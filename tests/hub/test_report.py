"""The report of all devices comes in pages that fit into a message."""

from __future__ import annotations

import json

import pytest

from backhaul_hub.cli.fleet.devices import agents, compact
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.device import Device
from backhaul_hub.health.report import Report
from backhaul_hub.vehicles.core import Vehicles

FLEET = [f"VID-{number:05}" for number in range(5000)]
DEVICES = {id_: Device(id_, "ab", "", 0) for id_ in reversed(FLEET)}


def report() -> Report:
    continuity = Continuity()
    for device in FLEET:
        for lane in ("live", "bulk"):
            for seq in (1, 2, 9):
                continuity.arrived(LaneKey(device, lane, 7), seq, 10, 1)
    continuity.arrived(LaneKey("VID-00000", "bulk", 5), 4, 10, 0)
    return Report(
        continuity, {}, {}, {}, lambda _: {"heads": {"count": 0}, "future": None}, {}, Vehicles()
    )


@pytest.mark.slow
def test_every_device_is_on_one_page_of_a_size_that_a_server_takes() -> None:
    found, after, pages = [], "", 0
    asked = report()
    while after is not None:
        body = asked.page(DEVICES, [], after)
        assert len(body) < 1 << 20
        page = json.loads(body)
        found += [each["device"] for each in page["devices"]]
        after = page["next"]
        pages += 1
    assert found == FLEET
    assert pages > 3


def test_a_links_bytes_are_shown_by_kind_as_the_vehicle_told_them_last() -> None:
    vehicles = Vehicles()
    for device, words in (("VID-00000", b',"k":[9310,0,0,20,670]'), ("VID-00001", b"")):
        said = b'{"m":"0a","b":"1b","r":"2c","v":"0.2.0"%s}' % words
        vehicles.hear(device, said, "", 5)
    of_sync = {"heads": {"waiting": 0, "in_sync": True, "conflicts": 0}, "future": None}
    body = Report(Continuity(), {}, {}, {}, lambda _: of_sync, {}, vehicles).page(DEVICES, [], "")
    found = json.loads(body)["devices"][:3]
    assert found[0]["agent"]["link_bytes"] == {
        "telemetry": 9_310_000,
        "state": 0,
        "events": 0,
        "system": 20_000,
        "housekeeping": 670_000,
    }
    assert [each["agent"]["link_bytes"] for each in found[1:]] == [None, None]
    heading, first, older, _ = agents({"devices": found}, 5)
    assert "LINK MONTH" in heading
    assert "10.0 MB, 93% telemetry" in first
    assert "MB" not in older


def test_what_is_missing_of_former_epochs_is_listed() -> None:
    first = json.loads(report().page(DEVICES, [], ""))["devices"][0]
    assert first["lanes"]["bulk"]["gaps"] == [[3, 8]]
    assert first["former"] == [
        {"lane": "bulk", "epoch": 5, "watermark": 0, "owed": [[1, 3]], "owed_ranges": 1}
    ]


@pytest.mark.slow
def test_a_device_that_makes_lanes_up_still_fits_into_a_message_its_own_lanes_first() -> None:
    continuity = Continuity()
    own = Device("VID-001", "ab", "", 0, nodes=("zebra",), leaving=("yak",))
    for lane in ["live", "n_zebra", "n_yak", *(f"n_{number}" for number in range(5000))]:
        for seq in range(1, 9, 2):
            if not continuity.beyond_bounds(LaneKey("VID-001", lane, 7), seq, 1):
                continuity.arrived(LaneKey("VID-001", lane, 7), seq, 10, 1)
    heads = {"heads": {"count": 0}, "future": None}
    body = Report(continuity, {}, {}, {}, lambda _: heads, {}, Vehicles()).page(
        {"VID-001": own}, [], ""
    )
    assert len(body) < 1 << 20
    (found,) = json.loads(body)["devices"]
    assert list(found["lanes"])[:3] == ["live", "n_yak", "n_zebra"]
    assert (found["nodes"], found["leaving"]) == (["zebra"], ["yak"])
    assert len(found["lanes"]) == 200
    assert found["lanes_not_shown"] > 3000
    assert found["refused"]


def lane(lag: int | None = 0, gaps: list[list[int]] | None = None) -> dict[str, object]:
    missing = gaps or []
    return {
        "watermark": 5, "highest_seq": 7, "lag_messages": lag, "gaps": missing,
        "gap_ranges": len(missing), "bytes": 100, "last_seen_ns": 9, "lost": 0,
    }  # fmt: skip


def test_lanes_of_nodes_with_nothing_to_say_are_shown_as_one() -> None:
    lanes = {
        "live": lane(),
        "n_a": lane(),
        "n_b": lane(gaps=[[6, 6]]),
        "n_c": lane(),
        "n_d": lane(3),
    }
    shown = compact(lanes)
    assert list(shown) == ["live", "n_b", "n_d", "2 nodes"]
    assert (shown["2 nodes"]["watermark"], shown["2 nodes"]["bytes"]) == (10, 200)
    assert shown["2 nodes"]["lag_messages"] == 0
    away = compact({"live": lane(None), "n_a": lane(None), "n_b": lane(None)})
    assert away["2 nodes"]["lag_messages"] is None
    few = {"live": lane(), "n_a": lane()}
    assert compact(few) == few
