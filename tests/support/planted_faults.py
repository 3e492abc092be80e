"""A simulated fleet with faults, and the score of what the jobs say of it.

A fault counts as found when the anomalies of a day name the vehicle (of a draining firmware: the
firmware of a model), and as named when they do so by the right kind. False are devices, and
firmwares, without a fault that are named.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backhaul_hub.simulated.vehicle import DRAINING_FIRMWARE, MODELS
from tests.support.rig.spark_jobs import simulated_hub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
KINDS = {"drain": "firmware", "silent": "no_data"}


@dataclass(slots=True)
class Score:
    """What became of the faults, by fault; a firmware that drains is one of each model."""

    planted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    false_devices: set[str] = field(default_factory=set)
    false_firmwares: set[str] = field(default_factory=set)

    def take(self, of: str, fault: str, kinds: set[str]) -> None:
        """Take in what was said of a faulty vehicle or firmware."""
        self.planted[fault] += 1
        self.found[fault] += bool(kinds)
        if KINDS.get(fault, fault) in kinds:
            self.named[fault] += 1
        else:
            self.missed.append(f"{of}: {fault}, told as {', '.join(sorted(kinds)) or 'nothing'}")


def score(truth: dict[str, Any], rows: list[dict[str, Any]]) -> Score:
    """Compare what was planted (`simulate --truth`) with rows of the table `anomalies`."""
    said: dict[str, set[str]] = {}
    for row in rows:
        of = row["device"] or f"{row['model']} {row['firmware']}"
        said.setdefault(of, set()).add(row["kind"])
    faults = {device: each["fault"] for device, each in truth["faults"].items()}
    result = Score()
    for device, fault in faults.items():
        if fault != "drain":
            result.take(device, fault, said.get(device, set()))
    draining = (
        {f"{model} {DRAINING_FIRMWARE}" for model in MODELS}
        if "drain" in faults.values()
        else set()
    )
    for firmware in sorted(draining):
        result.take(firmware, "drain", said.get(firmware, set()))
    wrong = said.keys() - faults.keys() - draining
    result.false_devices = {of for of in wrong if of.startswith("SIM-")}
    result.false_firmwares = wrong - result.false_devices
    return result


@asynccontextmanager
async def hub_running(directory: Path) -> AsyncIterator[None]:
    """Make a test hub in directory/hub, and run its server meanwhile."""
    server, port = simulated_hub(directory, shards=2, up_gib=1)
    await server.start()
    try:
        await server.wait_listening(port)
        yield
    finally:
        await server.stop()
