"""Make keys of numbers that anybody may know: on PYTHONPATH while the golden world is made.

Hub and vehicles of a golden file need keys, and a golden file is public. With this each program takes its
"random" bytes from a counter in the file that GOLDEN_KEYS names, so that `keys.py` can make the same
keys again at any time, and no seed need stand in a file.
"""

import fcntl
import hashlib
import os
import secrets


def _token_bytes(nbytes: int | None = None) -> bytes:
    with open(os.environ["GOLDEN_KEYS"], "a+") as file:  # noqa: PTH123 - runs before anything else
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0)
        file.truncate(0)
        file.write(str(number + 1))
    return hashlib.sha512(b"backhaul golden %d" % number).digest()[: nbytes or 32]


if "GOLDEN_KEYS" in os.environ:
    secrets.token_bytes = _token_bytes
