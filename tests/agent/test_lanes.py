"""Which lane a message goes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.leaf.streams import in_stream_config, out_consumer_config, out_stream_config
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.rows import Outgoing
from backhaul_agent.ledger.system_events import event
from backhaul_codec.subjects import frame_subject, lane_of, parse_leaf, point_subject

LANES = Lanes(["battery", "front left"])


def addressed(subject: str, lane: str = "live") -> tuple[str, str]:
    message = LANES.place(Outgoing(lane, subject, b""))
    return message.lane, message.subject


@pytest.mark.parametrize(
    ("subject", "lane", "expected"),
    [
        ("f.battery", "bulk", ("n_battery", "n.battery.f.battery")),
        ("p.battery.soc.%", "live", ("n_battery", "n.battery.p.battery.soc.%")),
        ("p.battery", "live", ("n_battery", "n.battery.p.battery")),
        ("p.car.battery.weight.%", "live", ("n_battery", "n.battery.p.car.battery.weight.%")),
        ("p.car.battery", "live", ("n_battery", "n.battery.p.car.battery")),
        ("f.front%20left", "bulk", ("n_front%20left", "n.front%20left.f.front%20left")),
        ("f.gps", "bulk", ("bulk", "f.gps")),
        ("p.battery.gps.weight.%", "live", ("live", "p.battery.gps.weight.%")),
        ("p.battery.gps", "live", ("live", "p.battery.gps")),
        ("e.battery", "live", ("live", "e.battery")),
        ("r.battery", "live", ("live", "r.battery")),
        ("e.seen", "n_battery", ("n_battery", "n.battery.e.seen")),
    ],
)
def test_all_about_a_named_node_goes_to_its_lane(
    subject: str, lane: str, expected: tuple[str, str]
) -> None:
    assert addressed(subject, lane) == expected


@given(st.text(min_size=1, max_size=20), st.booleans())
def test_the_subject_always_says_the_lane(node: str, named: bool) -> None:
    lanes = Lanes([node] if named else ["another"])
    for lane, subject in (("bulk", frame_subject(node)), ("live", point_subject(node, "t"))):
        message = lanes.place(Outgoing(lane, subject, b""))
        assert lane_of(message.subject) == message.lane
        assert parse_leaf(message.subject).node == node
        assert (message.lane == lane) is not (named or node == "another")
    assert lanes.of_points(node) == ("live" if not (named or node == "another") else lanes.own[0])


def test_what_goes_with_a_message_stays_with_it() -> None:
    message = Outgoing("live", "p.battery.soc.%", b"body", 3, (1, 2), 7)
    assert LANES.place(message)[2:] == message[2:]
    note = event("mark", {}, 5)
    assert LANES.place(note) is note


def test_without_named_nodes_nothing_is_moved() -> None:
    message = Outgoing("bulk", "f.battery", b"")
    assert Lanes().place(message) is message
    assert Lanes().names == ("live", "bulk")


def test_streams_of_a_lane_are_named_as_the_hub_grants_them() -> None:
    config = Config(device=DeviceConfig(id="VID-001", token="tok", down_stream="DOWN_00"))
    out = out_stream_config(config, "n_front%20left")
    assert (out["name"], out["subjects"]) == ("OUT_n_front%20left", ["n.front%20left.>"])
    durable = out_consumer_config(config, "n_front%20left", LANES.names)
    assert durable["deliver_subject"] == "dlv.VID-001.tok_n_front%20left"
    inward = in_stream_config(config, "n_front%20left")
    assert inward is not None
    assert inward["name"] == "IN_n_front%20left"
    assert inward["sources"][0]["consumer"] == {
        "name": "VID-001-tok_n_front%20left",
        "deliver_subject": "dn.VID-001.tok_n_front%20left",
    }
