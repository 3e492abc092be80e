"""Documents of the shadow: names of fields, what is refused, what fits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point
from backhaul_codec.points import JSON
from backhaul_codec.state.merge import HeadKey
from backhaul_hub.errors import HubError, WriteRefusedError
from backhaul_hub.questions import FIELDS_MAX
from backhaul_hub.shadow.document import (
    DESIRED_BYTES_MAX,
    desired_field,
    edited,
    field_key,
    field_name,
    fitting,
    parse_key,
    read_desired,
    shadow_key,
    shown,
    version_of,
)
from tests.support.strategies import exact, points

RATE = HeadKey("", "gps", "rate", "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("VID-001", ("VID-001", None)),
        ("fleet/prod/veh/VID-001/desired", ("VID-001", "desired")),
        ("fleet.prod.veh.VID-001.meta", ("VID-001", "meta")),
    ],
)
def test_a_key_may_be_written_with_slashes(text: str, found: tuple[str, str | None]) -> None:
    assert parse_key(text, "prod") == found
    if found[1]:
        assert shadow_key("prod", found[0], found[1]) == text.replace("/", ".")


@pytest.mark.parametrize(
    "text",
    ["", "-x", "a.b", "fleet/lab/veh/VID-001/desired", "fleet/prod/veh/VID-001/wishes"],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(HubError):
        parse_key(text, "prod")


def test_desired_says_values_types_and_deletions() -> None:
    found = read_desired(
        b'{"gps.rate": 5, "gps.rate.max:int64": 9, "cell%2E1.mode": "eco", "a.b": null,'
        b' "a.list": [1], "a.flag:json": true, "a.raw:bytes": "AAE="}'
    )
    assert found == {
        RATE: 5.0,
        RATE._replace(key="max"): 9,
        HeadKey("", "cell.1", "mode", ""): "eco",
        HeadKey("", "a", "b", ""): None,
        HeadKey("", "a", "list", ""): Opaque(JSON, b"[1]"),
        HeadKey("", "a", "flag", ""): Opaque(JSON, b"true"),
        HeadKey("", "a", "raw", ""): b"\0\1",
    }
    assert type(found[RATE]) is float


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"a.b": NaN}', "NaN"),
        (b'{"a": 1}', "is not node.type"),
        (b'{"a.b.c.d": 1}', "is not node.type"),
        (b'{"a b.c": 1}', "token"),
        (b'{".c": 1}', "token"),
        (b'{"a.b": true}', "a.b: true and false"),
        (b'{"a.b:int64": 1.5}', "a.b:int64: '1.5' does not fit"),
        (b'{"a.b:int64": null}', "does not fit"),
        (b'{"a.b:colour": 1}', "is none of"),
        (b'{"a.b": 1' + b"0" * 400 + b"}", "beyond float64"),
        (b'{"a.b": 1, "a.b": 2}', "in it twice"),
        (b'{"a.b": 1, "a.b.%": 2}', "a.b is in it twice"),
        (b'{"a.b": 1, "a.b:int64": 2}', "a.b is in it twice"),
        (b'{"a.b": "\\ud800"}', "surrogate"),
        (b'{"a.b": "' + b"x" * DESIRED_BYTES_MAX + b'"}', "bytes; at most"),
        (json.dumps({f"a.b{n}": n for n in range(FIELDS_MAX + 1)}).encode(), "fields; at most"),
    ],
)
def test_a_document_that_cannot_be_taken_is_refused_with_a_reason(body: bytes, why: str) -> None:
    with pytest.raises(WriteRefusedError) as refused:
        read_desired(body)
    assert why in str(refused.value)


@given(points())
def test_every_value_can_be_desired_and_is_shown_as_it_is(point: Point) -> None:
    if not point.node or not point.type:
        return
    key = HeadKey("", point.node, point.type, point.key)
    assert field_key(field_name(key)) == key
    name, said = desired_field(key, point.value)
    [(same, value)] = read_desired(json.dumps({name: said}).encode()).items()
    assert same == key
    assert value is not None
    if not (isinstance(point.value, Opaque) and point.value.dtype == JSON):
        again = Point(point.node, point.type, point.time, value, point.key)
        mine = Point(point.node, point.type, point.time, point.value, point.key)
        assert exact(again) == exact(mine) or point.value != point.value
    document = shown({key: point.value})
    dtype = document.get("dtypes", {}).get(field_name(key), "")
    plain = document["fields"][field_name(key)]
    assert (name, said) == (f"{field_name(key)}{':' if dtype else ''}{dtype}", plain)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20)), st.integers(2, 60))
def test_the_largest_fields_go_first_and_no_more_than_must(
    fields: dict[str, Any], bytes_max: int
) -> None:
    kept = fitting(fields, bytes_max)
    assert kept.items() <= fields.items()

    def size(of: dict[str, Any]) -> int:
        return sum(
            len(json.dumps([name, said], ensure_ascii=False, separators=(",", ":")).encode()) - 1
            for name, said in of.items()
        )

    gone = {name: said for name, said in fields.items() if name not in kept}
    assert size(kept) <= bytes_max
    if gone:
        least = min(gone, key=lambda name: size({name: gone[name]}))
        assert size(kept | {least: gone[least]}) > bytes_max


def test_an_edit_finds_a_field_however_it_was_spelled() -> None:
    document = {"gps.rate:int64": 5, "gps.mode": "eco", "gps.rate.max": 1}
    assert edited(document, {RATE: 7}, {HeadKey("", "gps", "mode", "")}) == {
        "gps.rate:int64": 7,
        "gps.rate.max": 1,
    }
    assert edited(document, {RATE: None}, set())["gps.rate"] is None


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b'{"vid": "VID-001", "version": 7}', 7),
        (b'{"version": 9007199254740992}', 0),
        (b'{"version": -1}', 0),
        (b'{"version": true}', 0),
        (b'{"version": "7"}', 0),
        (b"[7]", 0),
        (b"\xff", 0),
        (b"", 0),
    ],
    ids=["ours", "too-large", "negative", "truth", "text", "list", "no-text", "gone"],
)
def test_whatever_somebody_wrote_there_has_a_version_or_none(body: bytes, version: int) -> None:
    found = version_of(body)
    assert (found, type(found)) == (version, int)
