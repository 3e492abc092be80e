"""Points on the live lane: kept at the vehicle, and told at the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conftest import World


async def synced(world: World) -> None:
    """Wait until the control plane knows that both ends hold the same heads, and nothing waits."""
    await world.until(
        lambda report: (
            report["devices"][0]["heads"]["in_sync"] is True
            and report["devices"][0]["heads"]["waiting"] == 0
        )
    )
