"""How much of the disk each of the twin's streams is given when a hub is made. Pure.

The server sets every stream's max_bytes aside whole, out of a total that it would by itself take
anew at every start: three quarters of what is free then. A total that shrank as the streams fill
would have it refuse any change of a stream, and so every source of a vehicle that comes back.
That is why `init` writes the total down, and limits that fit it.
"""

from __future__ import annotations

from backhaul_hub.config import TWIN_BYTES_MAX

# The server's own rule; and of what is left of that beside UP, what the twin may have.
_STORE_SHARE = 0.75
_TWIN_SHARE = 0.75
_LEAST_BYTES = 16 << 20


def store_bytes_max(free_bytes: int) -> int:
    """Return how much JetStream may store on a disk with so much free."""
    return int(free_bytes * _STORE_SHARE)


def twin_bytes_max(room_bytes: int) -> dict[str, int]:
    """Return the limits of `[twin]`: as they should be where they fit, else all smaller alike.

    Args:
        room_bytes: what the hub's other streams leave.
    """
    factor = min(1.0, max(0, room_bytes) * _TWIN_SHARE / sum(TWIN_BYTES_MAX.values()))
    return {
        name: max(_LEAST_BYTES, int(wanted * factor) >> 20 << 20)
        for name, wanted in TWIN_BYTES_MAX.items()
    }
