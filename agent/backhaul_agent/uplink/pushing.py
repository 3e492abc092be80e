"""Which messages of a lane go to the hub beside OUT as well. Pure; `push/policy.py` decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backhaul_codec.kinds import Lane


class PushRule:
    """Decides for all lanes of a vehicle; this one has none pushed."""

    def pushes(self, name: Lane, seq: int, size: int, owed_bytes: int) -> bool:
        """Tell whether a new message of the current epoch is pushed.

        ``size``: its bytes. ``owed_bytes``: of the lane's messages that the hub has not confirmed, this one included.
        """
        del name, seq, size, owed_bytes
        return False

    def pushes_again(self, name: Lane, size: int) -> bool:
        """Tell whether a message of so many bytes that the hub has asked for again is pushed."""
        del name, size
        return False
