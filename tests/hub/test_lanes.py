"""Names and subjects of a device's lanes, those of nodes with streams of their own among them."""

from __future__ import annotations

import pytest

from backhaul_hub.device import Device
from backhaul_hub.errors import ConfigError
from backhaul_hub.lane_names import check_nodes, down_filters, down_subject, lanes_of

PLAIN = Device("VID-001", "ab", "", 0)
OWN = Device("VID-001", "ab", "", 0, nodes=("battery", "motor rear"), leaving=("gps",))


def test_nodes_are_kept_once_and_sorted() -> None:
    assert check_nodes(["gps", "battery", "gps"]) == ("battery", "gps")


@pytest.mark.parametrize("node", ["", "x" * 125, "é" * 21, "\ud800"])
def test_a_node_that_no_stream_can_be_named_after_is_refused(node: str) -> None:
    with pytest.raises(ConfigError):
        check_nodes([node])


def test_so_many_nodes_and_no_more() -> None:
    assert len(check_nodes(f"n{number}" for number in range(64))) == 64
    with pytest.raises(ConfigError, match="65 nodes"):
        check_nodes(f"n{number}" for number in range(65))


def test_a_lane_that_is_to_go_is_still_one() -> None:
    assert lanes_of(PLAIN) == ["live", "bulk"]
    assert lanes_of(OWN) == ["live", "bulk", "n_battery", "n_motor%20rear", "n_gps"]


def test_what_is_of_nodes_comes_through_their_own_streams_and_all_else_through_the_shared() -> None:
    assert down_filters(PLAIN) == ["in.VID-001.>"]
    assert down_filters(OWN) == ["in.VID-001.p.>", "in.VID-001.c.>", "in.VID-001.s.>"]
    assert down_filters(OWN, "n_motor%20rear") == ["in.VID-001.n.motor%20rear.>"]


@pytest.mark.parametrize(
    ("subject", "written"),
    [
        ("p.battery.limit.%", "n.battery.p.battery.limit.%"),
        ("p.motor%20rear", "n.motor%20rear.p.motor%20rear"),
        # An edge is its lower node's.
        ("p.battery.door.nodeType.%", "p.battery.door.nodeType.%"),
        ("p.door.battery.nodeType.%", "n.battery.p.door.battery.nodeType.%"),
        ("p.door.battery", "n.battery.p.door.battery"),
        ("p.door.limit.%", "p.door.limit.%"),
        # Nothing new is written to a lane that is to go.
        ("p.gps.limit.%", "p.gps.limit.%"),
    ],
)
def test_a_nodes_points_go_into_its_part_of_down(subject: str, written: str) -> None:
    assert down_subject(OWN, subject) == f"in.VID-001.{written}"
    assert down_subject(PLAIN, subject) == f"in.VID-001.{subject}"
