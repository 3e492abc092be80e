"""A device's token: random characters in the names and subjects that are this device's alone. Pure.

It stands in each message of the device's link, so it is short: 17 letters and digits hold 101 random bits. None
of the three kinds is missing, so that a log can tell a token from a word and from a vehicle identification number.
Devices that were added before have 24 hex digits, and keep them.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_CHARACTERS = 17
_ALPHABET = string.digits + string.ascii_letters
_KINDS = "".join(rf"(?=[0-9A-Za-z]*[{kind}])" for kind in ("0-9", "a-z", "A-Z"))
DEVICE_TOKEN = rf"(?:[0-9a-f]{{24}}|{_KINDS}[0-9A-Za-z]{{{_CHARACTERS}}})"
"""The pattern of a token, of either form. It does not say which characters may stand before and behind it."""
_WHOLE = re.compile(DEVICE_TOKEN)


def new_device_token(choice: Callable[[str], str]) -> str:
    """Return a new token. `choice`: draws one of some characters, which nobody can foresee."""
    while True:
        token = "".join(choice(_ALPHABET) for _ in range(_CHARACTERS))
        if _WHOLE.fullmatch(token):
            return token
