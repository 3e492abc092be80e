"""TOML that somebody wrote by hand: taken, or refused in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.strict.toml import TomlError, read_toml


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = ", "Invalid value"),
        ("[a]\nb = [{c = nan}]", r"a\.b\.c is nan"),
        ("a = -inf", "finite"),
        (f"a = {'9' * 30}", "64 bits"),
        (f"a = {'9' * 5000}", "number"),
        (f"a = {'[' * 5000}", "deep"),
        (f"a = {'[' * 5000}{']' * 5000}", "deep"),
        ("a = 1\na = 2", "overwrite"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(TomlError, match=words):
        read_toml(text)


def test_numbers_are_as_they_are() -> None:
    text = "a = 9223372036854775807\n[[b]]\nc = 1.5\nd = 2026-01-01\n"
    assert read_toml(text)["a"] == 2**63 - 1
    assert read_toml(text)["b"][0]["c"] == 1.5


@given(st.text() | st.text('[]{}=".,\n0123456789einfa'))
def test_nothing_but_a_toml_error_escapes(text: str) -> None:
    for some in (text, f"a = {text}", f"[{text}]"):
        try:
            read_toml(some)
        except TomlError as error:
            assert str(error)  # noqa: PT017
