"""`backhaul-hub` whose control plane gives no vehicle its durable on DOWN: `hub_fleet` has no vehicles that would read there.

Of 100,000 vehicles these would take 4 GB of the server's memory beside the benchmark.
"""

from __future__ import annotations

from unittest.mock import patch

from backhaul_hub.cli.main import main
from backhaul_hub.control import fleet
from backhaul_hub.links.down_consumers import Stale


async def _make_writable(*_: object) -> bool:
    return True


async def _drop_stale_consumers(*_: object) -> Stale:
    return Stale([], set())


if __name__ == "__main__":
    with (
        patch.object(fleet, "make_writable", _make_writable),
        patch.object(fleet, "drop_stale_consumers", _drop_stale_consumers),
    ):
        main()
