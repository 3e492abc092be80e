"""Names to subjects and back, each name with exactly one token."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import subjects
from backhaul_codec.kinds import FRAME, POINT, RESULT, SYSTEM_KINDS
from backhaul_codec.subjects import SubjectError, Uplink

names = st.text(st.characters(exclude_categories=["Cs"]))


@given(names)
def test_a_token_comes_back_and_is_safe_in_a_subject(name: str) -> None:
    token = subjects.encode_token(name)
    assert subjects.decode_token(token) == name
    assert token
    assert not set(token) & set(".*> \t\r\n")


@pytest.mark.parametrize(
    "token", ["", "a b", "%zz", "%4", "%%", "a%", "%ff", "%FF", "%41", "é", ">", "*", "a.b"]
)
def test_what_encode_would_not_write_is_refused(token: str) -> None:
    with pytest.raises(SubjectError):
        subjects.decode_token(token)


ends = names.filter(bool)
edge_types = names.filter(lambda type_: not type_.startswith("node:"))


@given(names, names, names)
def test_subjects_are_read_back(node: str, type_: str, key: str) -> None:
    leaf = subjects.point_subject(node, type_, key)
    assert subjects.parse_uplink(f"up.VID-001.{leaf}") == Uplink(
        "VID-001", "live", leaf, POINT, node, type_, key
    )
    leaf = subjects.frame_subject(node)
    assert subjects.parse_uplink(f"up.VID-001.{leaf}") == Uplink(
        "VID-001", "bulk", leaf, FRAME, node
    )


@given(ends, names, edge_types, names)
def test_live_frames_and_edges_are_read_back(parent: str, node: str, type_: str, key: str) -> None:
    leaf = subjects.node_frame_subject(node)
    assert subjects.parse_leaf(leaf) == Uplink("", "live", leaf, POINT, node)
    leaf = subjects.edge_frame_subject(parent, node)
    assert subjects.parse_leaf(leaf) == Uplink("", "live", leaf, POINT, node, parent=parent)
    leaf = subjects.edge_subject(parent, node, type_, key)
    assert subjects.parse_leaf(leaf) == Uplink("", "live", leaf, POINT, node, type_, key, parent)


@given(names)
def test_the_lane_of_a_node_is_read_back(node: str) -> None:
    lane = subjects.node_lane(node)
    assert subjects.node_of_lane(lane) == node
    assert subjects.encode_token(lane.replace("%", "_")) == lane.replace("%", "_")
    for inner in (
        *(subjects.frame_subject(node), subjects.node_frame_subject(node), "e.mark", "r.1"),
        *(subjects.point_subject(node, "t"), subjects.edge_subject("up", node, "t")),
    ):
        leaf = subjects.node_lane_subject(node, inner)
        assert subjects.lane_of(leaf) == lane
        found = subjects.parse_uplink(f"up.VID-001.{leaf}")
        plain = subjects.parse_uplink(f"up.VID-001.{inner}")
        assert found == replace(plain, lane=lane, leaf_subject=leaf, lane_node=node)
        assert (found.frame, found.system) == (plain.frame, plain.system)


def test_a_body_is_a_frame_or_a_point_by_its_subject() -> None:
    bodies = {leaf: subjects.parse_leaf(leaf).frame for leaf in ("f.a", "p.a", "p.a.b")}
    assert bodies == {"f.a": True, "p.a": True, "p.a.b": True}
    for leaf in ("p.a.b.%", "p.a.b.c.%", "e.heads", "r.1"):
        assert not subjects.parse_leaf(leaf).frame
        assert subjects.parse_leaf(leaf).frame_node is None
    assert subjects.parse_leaf("p.a.b").frame_node == "b"


def test_system_events_are_told_from_others() -> None:
    system = [kind for kind in ("heads", "receipt", "link.up", "mark") if _event(kind).system]
    assert system == ["heads", "mark"]
    assert not subjects.parse_leaf("p.heads.heads.heads").system


def _event(kind: str) -> Uplink:
    return subjects.parse_leaf(subjects.event_subject(kind))


def test_no_program_can_speak_in_the_agents_name() -> None:
    for kind in (*SYSTEM_KINDS, "app", "armed", "a.b", "é"):
        said = subjects.parse_leaf(subjects.app_event_subject(kind))
        assert (said.letter, said.type, said.lane, said.system) == ("a", kind, "live", False)
        assert subjects.parse_leaf(subjects.event_subject(kind)).letter == "e"
    for subject in ("e.app.%", "e.app.a.b", "e.other.armed", "e.app."):
        with pytest.raises(SubjectError):
            subjects.parse_leaf(subject)
    with pytest.raises(SubjectError):
        subjects.app_event_subject("")


def test_a_lane_of_its_own_needs_a_name_that_streams_can_bear() -> None:
    assert subjects.require_own_lane("front left") == "n_front%20left"
    longest = "n" * subjects.NODE_TOKEN_MAX
    assert subjects.require_own_lane(longest) == f"n_{longest}"
    for name in ("", longest + "n", "ä" * 21, "\ud800"):
        with pytest.raises(SubjectError):
            subjects.require_own_lane(name)


def test_a_subject_of_a_nodes_lane_is_another_subject_in_it() -> None:
    for leaf in ("f.gps", "p.car.gps", "e.seen"):
        assert subjects.shared_subject(subjects.node_lane_subject("gps", leaf)) == leaf
        assert subjects.shared_subject(leaf) == leaf


def test_lanes_that_are_none() -> None:
    assert [subjects.node_of_lane(lane) for lane in ("live", "bulk")] == [None, None]
    for lane in ("", "n", "n_", "n_a.b", "N_a", "dead", "n_%61"):
        with pytest.raises(SubjectError):
            subjects.node_of_lane(lane)


@pytest.mark.parametrize(("parent", "type_"), [("", "t"), ("a", "node:t"), ("a", "node:")])
def test_edges_that_are_none(parent: str, type_: str) -> None:
    with pytest.raises(SubjectError):
        subjects.edge_subject(parent, "b", type_)


def test_every_letter_has_its_parts() -> None:
    parse = subjects.parse_leaf
    assert parse(subjects.event_subject("link.up")).type == "link.up"
    assert parse("r.42") == Uplink("", "live", "r.42", RESULT, key="42")
    edge = parse(subjects.edge_subject("gateway", "gps", "weight"))
    assert (edge.parent, edge.node, edge.type, edge.key) == ("gateway", "gps", "weight", "")
    assert subjects.point_subject("gps", "lat") == "p.gps.lat.%"


@pytest.mark.parametrize(
    "subject",
    [
        *("", "up", "up.VID-001", "up.VID-001.", "down.VID-001.f.gps", "up..f.gps"),
        *("up.VID 1.f.gps", "up.VID-001.x.gps", "up.VID-001.f", "up.VID-001.f.a.b"),
        *("up.VID-001.p", "up.VID-001.e.a.b", "up.VID-001\n.f.gps", "up.-a.f.gps"),
        *("up.V.p.%.b", "up.V.p.%.b.t.%", "up.V.p.a.b.node%3At.%", "up.V.p.a.b.t.k.x"),
        *("up.V.n", "up.V.n.a", "up.V.n.a.", "up.V.n.a.f.b", "up.V.n.a.p.a.b", "up.V.n.a.x.a"),
        *("up.V.n.a.n.a.f.a", "up.V." + "n.a." * 5000 + "f.a", "up.V.n.%61.f.a"),
    ],
)
def test_other_subjects_are_refused(subject: str) -> None:
    with pytest.raises(SubjectError):
        subjects.parse_uplink(subject)


def test_lanes() -> None:
    leafs = ("f.a", "p.a", "p.a.b", "p.a.b.%", "e.x", "r.1", "n.a%20b.f.a%20b")
    assert [subjects.lane_of(leaf) for leaf in leafs] == [
        *("bulk", "live", "live", "live", "live", "live", "n_a%20b")
    ]
    for other in ("s.watermark", "c.1", "fx", ""):
        with pytest.raises(SubjectError):
            subjects.lane_of(other)
