"""Values as JSON and back, and assignments from a command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Opaque, Point, Value
from backhaul_codec.state.json_values import (
    parse_assignment,
    parse_path,
    value_from_json,
    value_to_json,
)
from backhaul_codec.subjects import encode_token
from tests.support.strategies import exact, names, values


@given(values)
@example(Opaque(6, b"{"))
@example(Opaque(6, b"[" * 100_000))
@example(Opaque(6, b"NaN"))
@example(Opaque(6, b"[1e999]"))
def test_every_value_passes_through_json(value: Value) -> None:
    shown, dtype = value_to_json(value)
    back = value_from_json(json.loads(json.dumps(shown, allow_nan=False)), dtype)
    if isinstance(value, Opaque) and dtype == "json":
        assert isinstance(back, Opaque)
        assert json.loads(back.data) == json.loads(value.data)
    elif isinstance(value, float) and value != value:  # noqa: PLR0124 - every NaN is shown alike
        assert isinstance(back, float)
        assert back != back  # noqa: PLR0124
    else:
        assert exact(Point("n", "t", 0, back)) == exact(Point("n", "t", 0, value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=80", 80.0),
        ("a.b=-1.5e3", -1500.0),
        ("a.b=9007199254740992", 9007199254740992.0),
        ("a.b=9007199254740993", 9007199254740993),
        ("a.b:int64=80", 80),
        ("a.b:int64=18446744073709551615", 2**64 - 1),
        ("a.b=on", "on"),
        ("a.b=true", "true"),
        ("a.b=null", "null"),
        ("a.b=", ""),
        ('a.b="80"', "80"),
        ("a.b:text=80", "80"),
        ('a.b:text="80"', '"80"'),
        ("a.b=x=y", "x=y"),
        ('a.b={"low": 1}', Opaque(6, b'{"low":1}')),
        ("a.b=[1, 2]", Opaque(6, b"[1,2]")),
        ("a.b:json=true", Opaque(6, b"true")),
        ("a.b:bytes=AQI=", b"\1\2"),
        ("a.b:opaque9=AQI=", Opaque(9, b"\1\2")),
        ("a.b=Infinity", float("inf")),
    ],
)
def test_a_value_is_what_it_looks_like_or_what_its_dtype_says(text: str, value: Value) -> None:
    found = parse_assignment(text)
    assert (found.node, found.type, found.key) == ("a", "b", "")
    assert type(found.value) is type(value)
    assert found.value == value


@given(names.filter(bool), names.filter(bool), names)
def test_any_name_has_its_token(node: str, type_: str, key: str) -> None:
    path = ".".join(encode_token(name) for name in (node, type_, key))
    assert parse_path(path) == (node, type_, key)
    found = parse_assignment(f"{path}=1")
    assert (found.node, found.type, found.key) == (node, type_, key)


@pytest.mark.parametrize(
    "text",
    [
        *("a.b", "a=1", "a.b.c.d=1", ".b=1", "a.%=1", "a.b c=1", "é.b=1", "%.b=1"),
        *("a.b:int64=1.5", "a.b:int64=x", "a.b:int64=18446744073709551616", "a.b:float64=x"),
        *("a.b:json={", "a.b:bytes=é", "a.b:bytes=A", "a.b:blob=1", "a.b:opaque5=AA=="),
        *("a.b:opaque256=AA==", "a.b:opaque=AA==", f"a.b:opaque{'7' * 5000}=AA=="),
        *("a.b=1" + "0" * 400, "a.b=1" + "0" * 5000, "a" * 256 + ".b=1", "a.b=1e999"),
        *('a.b={"c": 1, "c": 2}', "a.b=" + "[" * 5000, "a.b=18446744073709551616"),
    ],
)
def test_what_is_no_assignment_is_refused_in_words(text: str) -> None:
    with pytest.raises(CodecError) as refused:
        parse_assignment(text)
    assert refused.value.reason


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *((True, None), (None, None), ({}, None), (True, "float64"), ("1", "int64"), (1, "text")),
        *((True, "int64"), (1, "x" * 5000)),
        *((1, "bytes"), (float("nan"), "json"), (10**400, None), (10**400, "float64")),
    ],
)
def test_json_that_is_no_value_is_refused(value: Any, dtype: str | None) -> None:
    with pytest.raises(CodecError):
        value_from_json(value, dtype)


@pytest.mark.parametrize("dtype", [None, "float64", "int64", "json", "text"])
def test_an_integer_that_cannot_even_be_shown_is_refused_in_words(dtype: str | None) -> None:
    with pytest.raises(CodecError) as refused:
        value_from_json(10**5000, dtype)
    assert refused.value.reason


@given(st.text())
def test_nothing_but_a_codec_error_escapes(text: str) -> None:
    for candidate in (text, f"a.b={text}", f"a.b:{text}", f"a.b:{text}=1"):
        try:
            parse_assignment(candidate)
        except CodecError as error:
            assert error.reason  # noqa: PT017
