"""Names to subjects and back, each name with exactly one token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import subjects
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


@given(names, names, names)
def test_subjects_are_read_back(node: str, type_: str, key: str) -> None:
    leaf = subjects.point_subject(node, type_, key)
    assert subjects.parse_uplink(f"up.VID-001.{leaf}") == Uplink(
        "VID-001", "live", leaf, "p", node, type_, key
    )
    leaf = subjects.frame_subject(node)
    assert subjects.parse_uplink(f"up.VID-001.{leaf}") == Uplink("VID-001", "bulk", leaf, "f", node)


def test_every_letter_has_its_parts() -> None:
    parse = subjects.parse_leaf
    assert parse(subjects.event_subject("link.up")).type == "link.up"
    assert parse("r.42") == Uplink("", "live", "r.42", "r", key="42")
    edge = parse(subjects.edge_subject("gateway", "gps", "weight"))
    assert (edge.parent, edge.node, edge.type, edge.key) == ("gateway", "gps", "weight", "")
    assert subjects.point_subject("gps", "lat") == "p.gps.lat.%"


@pytest.mark.parametrize(
    "subject",
    [
        *("", "up", "up.VID-001", "up.VID-001.", "down.VID-001.f.gps", "up..f.gps"),
        *("up.VID 1.f.gps", "up.VID-001.x.gps", "up.VID-001.f", "up.VID-001.f.a.b"),
        *("up.VID-001.p.a.b", "up.VID-001.e.a.b", "up.VID-001\n.f.gps", "up.-a.f.gps"),
    ],
)
def test_other_subjects_are_refused(subject: str) -> None:
    with pytest.raises(SubjectError):
        subjects.parse_uplink(subject)


def test_lanes() -> None:
    assert [subjects.lane_of(s) for s in ("f.a", "p.a.b.%", "e.x", "r.1")] == [
        *("bulk", "live", "live", "live")
    ]
    for other in ("s.watermark", "c.1", "fx", ""):
        with pytest.raises(SubjectError):
            subjects.lane_of(other)
