"""The keys of the golden world, which stand in no file: each is made of its number (dummy_keys/).

Where a seed stood in a file of the golden world, a mark stands: `<seed A 3>` is the account's seed of
number 3. `put_seeds` puts it back, to the letter, so that what the file's digest was it still is.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from functools import cache

import nkeys

_PREFIXES = {
    "O": nkeys.PREFIX_BYTE_OPERATOR,
    "A": nkeys.PREFIX_BYTE_ACCOUNT,
    "U": nkeys.PREFIX_BYTE_USER,
}
# Else whoever looks for keys finds these heads.
_BEGIN, _BEGIN_MARK = b"-----BEGIN ", b"<begin> "
_NUMBERS = 1 << 14  # more than programs draw while a world is made
_SEED = re.compile(rb"S[OAU][A-Z2-7]{56}")
_MARK = re.compile(rb"<seed ([OAU]) (\d+)>")


def seed(kind: str, number: int) -> bytes:
    """Return the seed of an operator (`O`), account (`A`) or user (`U`), by its number."""
    raw = hashlib.sha512(b"backhaul golden %d" % number).digest()[:32]
    made: bytes = nkeys.encode_seed(raw, _PREFIXES[kind])
    return made


def take_seeds(content: bytes) -> bytes:
    """Return a file with a mark for each seed.

    Raises:
        ValueError: it holds another seed.
    """

    def mark(found: re.Match[bytes]) -> bytes:
        if not _is_seed(found[0]):
            return found[0]  # parts of two public keys, side by side
        if found[0] not in _marks():
            raise ValueError("a seed that is none of the golden world's")
        return _marks()[found[0]]

    return _SEED.sub(mark, content).replace(_BEGIN, _BEGIN_MARK)


def _is_seed(text: bytes) -> bool:
    with suppress(nkeys.NkeysError, ValueError):
        prefix, raw = nkeys.decode_seed(text)
        return bool(nkeys.encode_seed(raw, prefix) == text)
    return False


@cache
def _marks() -> dict[bytes, bytes]:
    numbers = ((kind, number) for kind in _PREFIXES for number in range(_NUMBERS))
    return {seed(kind, n): b"<seed %s %d>" % (kind.encode(), n) for kind, n in numbers}


def put_seeds(content: bytes) -> bytes:
    """Return a file with its seeds."""
    there = _MARK.sub(lambda found: seed(found[1].decode(), int(found[2])), content)
    return there.replace(_BEGIN_MARK, _BEGIN)
