"""Tokens of devices: their form, and what tells them from other words."""

from __future__ import annotations

import re
from random import Random

import pytest

from backhaul_codec.device_token import DEVICE_TOKEN, new_device_token


def test_a_token_is_short_and_has_letters_of_both_sizes_and_digits() -> None:
    made = {new_device_token(Random(seed).choice) for seed in range(2000)}
    assert len(made) == 2000
    for token in made:
        assert re.fullmatch(r"[0-9A-Za-z]{17}", token)
        assert re.search(r"[0-9]", token)
        assert re.search(r"[a-z]", token)
        assert re.search(r"[A-Z]", token)
        assert re.fullmatch(DEVICE_TOKEN, token)


@pytest.mark.parametrize("token", ["00ab" * 6, "0123LkqZ7pXw4TgYd"])
def test_tokens_of_both_forms_are_known(token: str) -> None:
    assert re.fullmatch(DEVICE_TOKEN, token)
    assert not re.fullmatch(DEVICE_TOKEN, token[1:])
    assert not re.fullmatch(DEVICE_TOKEN, token + "0")
