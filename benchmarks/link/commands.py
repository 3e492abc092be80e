"""1,000 operators' commands under kill -9 of everything: see tests/support/command_storm.py."""

from __future__ import annotations

import asyncio

from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.command_storm import Storm, settings, storm
from tests.support.rig.vehicle import vehicle


def run(*, quick: bool) -> dict[str, object]:
    """Send 1,000 commands (quick: 100) under fire. Raises: BenchmarkError: a promise was broken."""
    commands = 100 if quick else 1000
    made = asyncio.run(_run(commands, length_s=commands * 0.1))
    if wrong := made.complaints():
        raise BenchmarkError(f"{len(wrong)} promises broken: {wrong[:10]}")
    twice = sum(made.starts[id_] > 1 and made.commands[id_]["name"] == "once" for id_ in made.sent)
    safe = sum(made.starts[id_] > 1 for id_ in made.sent)
    figures = [
        Figure("commands sent", len(made.sent), ""),
        *(Figure(f"kill -9 of {part}", count, "") for part, count in sorted(made.kills.items())),
        *(Figure(f"ended {state}", count, "") for state, count in sorted(made.states().items())),
        Figure("without an end at the hub", 0, "", at_most(0)),
        Figure("started twice, not idempotent", twice, "", at_most(0)),
        Figure("started again, idempotent", safe, ""),
        Figure("at rest after the last fault", made.settled_s, "s"),
    ]
    return report("commands", figures)


async def _run(commands: int, *, length_s: float) -> Storm:
    with scratch.directory("commands") as directory:
        log = directory / "started"
        async with vehicle(directory, agent_settings=settings(log)) as rig:
            return await storm(rig, log, commands=commands, length_s=length_s, seed=1)
