"""JSON of others: every number as it was meant, or refused with the reason; never anything else."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.strict.json import (
    LEVELS_MAX,
    JsonError,
    Reader,
    read_json,
    read_typed,
    with_minus_zero,
    write_json,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
documents = st.recursive(
    leaves, lambda some: st.lists(some) | st.dictionaries(texts, some), max_leaves=20
)


@given(documents, st.booleans(), st.sampled_from([None, 1]))
def test_what_json_can_say_comes_out_as_it_went_in(said: Any, plain: bool, indent: int) -> None:
    written = json.dumps(said, ensure_ascii=plain, indent=indent)
    for found in (read_json(written), read_json(written.encode()), read_json(write_json(said))):
        assert repr(found) == repr(said)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.text("0123456789", max_size=60))
def test_decimals_are_the_nearest_float64(number: Any, digits: str) -> None:
    text = f"{number:e}".replace("E", "e")
    text = text if "." in text else text.replace("e", f".{digits or 0}e")
    if math.isfinite(float(text)):
        assert read_json(text) == float(text)
    else:
        with pytest.raises(JsonError, match="range"):
            read_json(text)


@given(st.integers())
def test_integers_are_exact_or_refused_at_any_depth(number: int) -> None:
    for said, written in ((number, f"{number}"), ([{"a": [number]}], f'[{{"a": [{number}]}}]')):
        if -(2**63) <= number < 2**64:
            assert read_json(written) == said
        else:
            with pytest.raises(JsonError, match=f"{len(str(abs(number)))} digits") as refused:
                read_json(written)
            assert refused.value.code == "number"


@given(documents, texts, leaves, st.data())
def test_a_name_that_stands_twice_is_refused_wherever_it_stands(
    said: Any, name: str, other: Any, data: st.DataObject
) -> None:
    def spelled(text: str) -> str:
        return data.draw(st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False)]))

    first, second = spelled(name), spelled(name)
    twice = f"{{{first}: {json.dumps(said)}, {second} : {json.dumps(other)}}}"
    for written in (twice, f"[{twice}]", f'{{"": {{"a:": {twice}}}, ":b": ["x:y", "\\":"]}}'):
        json.loads(written)  # which says nothing of it
        with pytest.raises(JsonError, match="twice") as refused:
            read_json(written)
        assert refused.value.code == "names"


@pytest.mark.parametrize(
    ("written", "code", "words"),
    [
        *[(f"{some}", "json", "no number of JSON") for some in ("NaN", "[Infinity]", "-Infinity")],
        *[
            (f'{{"a": {some}}}', "number", "out of range")
            for some in ("1e999", "-1e400", "9" * 310)
        ],
        ("9" * 5000, "number", "4300 digits"),
        ('{"a": "NaN", "b": x}', "json", "malformed"),
        ("[" * 5000 + "]" * 5000, "deep", "levels"),
        ("[" * 200_000, "deep", "levels"),
        ('{"a":' * 101 + "1" + "}" * 101, "deep", "levels"),
        ('"\\ud800"', "json", "surrogate"),
        ("", "json", "truncated"),
        ("01", "json", "malformed"),
        ("1 2", "json", "trailing"),
        ("\ufeff1", "json", "malformed"),
    ],
)
def test_refusals_say_why(written: str, code: str, words: str) -> None:
    with pytest.raises(JsonError, match=words) as refused:
        read_json(written)
    assert refused.value.code == code


@pytest.mark.parametrize("data", [b"\xff", b'"\xff"', b'{"\xff": 1}', "\udcff", '"\ud800"'])
def test_what_is_no_utf8_is_no_json(data: bytes | str) -> None:
    with pytest.raises(JsonError, match="not JSON"):
        read_json(data)


def test_as_many_levels_as_are_allowed() -> None:
    written = b"[" * LEVELS_MAX + b"]" * LEVELS_MAX
    assert write_json(read_json(written)) == written


@given(st.binary() | st.text('{}[]",:\\u0123456789eE+-.aNnIiftl ').map(str.encode))
def test_nothing_but_a_json_error_escapes(data: bytes) -> None:
    for some in (data, b"[" + data + b"]", b'{"a": ' + data + b"}", b'"' + data + b'"'):
        try:
            said = read_json(some)
        except JsonError as error:
            assert error.reason  # noqa: PT017
            assert error.code in {"json", "deep", "names", "number"}  # noqa: PT017
        else:
            assert repr(read_json(write_json(said))) == repr(said)


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """A request."""

    time: int
    rest: msgspec.Raw = msgspec.Raw(b"null")


@pytest.mark.parametrize(
    ("written", "code", "field"),
    [
        ('{"time": 1.5}', "field", "time"),
        ('{"time": 1, "tiem": 2}', "field", ""),
        ("{}", "field", ""),
        ('{"time": 1, "rest": {"a": 1, "a": 2}}', "names", ""),
        ('{"time": 1, "rest": 1e999}', "number", ""),
        ('{"time": 1, "rest": "\\ud800"}', "json", ""),
    ],
)
def test_a_type_is_asked_for_as_well(written: str, code: str, field: str) -> None:
    with pytest.raises(JsonError) as refused:
        read_typed(written, Asked)
    assert (refused.value.code, refused.value.field) == (code, field)
    assert Reader(Asked).read(b'{"time": 1, "rest": [1.50]}').rest == msgspec.Raw(b"[1.50]")
    assert str(pickle.loads(pickle.dumps(refused.value))) == refused.value.reason


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("-0", "-0.0"),
        ("[-0, -0.5, -01, 1e-0, -0e1]", "[-0.0, -0.5, -01, 1e-0, -0e1]"),
        ('{"-0": "a\\"-0", "b":-0}', '{"-0": "a\\"-0", "b":-0.0}'),
    ],
)
def test_minus_zero_is_a_decimal(written: str, meant: str) -> None:
    assert with_minus_zero(written.encode()) == meant.encode()
