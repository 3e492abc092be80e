"""`backhaul-hub` for `hub_fleet`, whose vehicles have no leafs: each counts as connected, and has no durable on DOWN.

Of 100,000 vehicles the durables would take 4 GB of the server's memory beside the benchmark. Were their links down, the
control plane would find that of each of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

from backhaul_hub.cli.main import main
from backhaul_hub.control import fleet, gate
from backhaul_hub.control.fleet import Devices
from backhaul_hub.device import DeviceLink
from backhaul_hub.links.down_consumers import Stale
from backhaul_hub.links.leaf_connections import Leafs
from benchmarks.hub.by_part import Samples

SAMPLES = "BACKHAUL_SAMPLES"
"""Name of the file into which the samples go (by_part.py); none are taken where it is not set."""


async def _make_writable(*_: object) -> bool:
    return True


async def _drop_stale_consumers(*_: object) -> Stale:
    return Stale([], set())


class _AllLinked(Leafs):
    """Takes each device that there is at the start for connected, with an agent."""

    async def start(self) -> None:
        devices = getattr(self._device_of, "__self__", None)
        assert isinstance(devices, Devices)
        now_ns = self._clock.now_ns()
        for id_ in devices.active():
            self.links[id_] = DeviceLink(
                up=True, since_ns=now_ns, agent=True, agent_since_ns=now_ns
            )
        await super().start()


if __name__ == "__main__":
    if path := os.environ.get(SAMPLES):
        Samples(Path(path)).start()
    with (
        patch.object(fleet, "make_writable", _make_writable),
        patch.object(fleet, "drop_stale_consumers", _drop_stale_consumers),
        patch.object(gate, "Leafs", _AllLinked),
    ):
        main()
