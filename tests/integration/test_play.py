"""`make play`: twelve vehicles in a town are up, a cut link is seen at the hub, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from demo.play import ends_with_us
from demo.simulate import Vehicle
from demo.town import Way, streets
from tests.support.needed import lacking
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]


KILLED = """
import asyncio, pathlib, sys
from demo.play import ends_with_us
from tests.support.rig.parts import Part

async def main():
    part = Part("sleep", ["sleep", "600"], pathlib.Path(sys.argv[1]))
    part.before = ends_with_us()
    await part.start()
    print(part.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_what_was_started_ends_with_a_play_that_is_killed(tmp_path: Path) -> None:
    if not ends_with_us():
        lacking("no setpriv: apt-get install util-linux")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(tmp_path / "log")),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    part = psutil.Process(int(await process.stdout.readline()))
    await until(lambda: part.name() == "sleep")
    process.kill()
    await process.wait()
    await until(lambda: not part.is_running() or part.status() == psutil.STATUS_ZOMBIE)


def test_the_town_is_one_and_nobody_leaves_its_streets() -> None:
    reached, todo = {0}, [0]
    while todo:
        for street in streets()[todo.pop()]:
            if street.end not in reached:
                reached.add(street.end)
                todo.append(street.end)
    assert reached == set(range(len(streets())))
    way = Way(random.Random(1))
    turns = 0
    for _ in range(2000):
        before = way.street
        way.drive(40)
        assert 0 <= way.metres <= way.street.length_m
        turns += way.street is not before
        if way.street is not before and len(streets()[before.end]) > 1:
            assert way.street.end != before.start or way.street.start != before.end
    assert turns > 200


def test_faults_show_in_what_a_vehicle_says() -> None:
    def driven(vehicle: Vehicle) -> list[dict[str, Any]]:
        passes = []
        for second in range(300):
            points = [
                each for some in vehicle.sample(second * 10**9, 1.0).values() for each in some
            ]
            passes.append({f"{each.node}.{each.type}.{each.key}": each.value for each in points})
        return passes

    well, hot, weak, stuck = (
        driven(Vehicle("VID-001", 1, fault))
        for fault in (None, "hot-fridge", "weak-battery", "stuck-sensor")
    )
    assert well[-1]["cargo.temp.front"] < 8 < hot[-1]["cargo.temp.front"]
    assert well[0]["battery.soc."] - well[-1]["battery.soc."] < 3
    assert weak[0]["battery.soc."] - weak[-1]["battery.soc."] > 5
    assert len({each["cargo.temp.front"] for each in stuck[60:]}) == 1
    assert len({each["cargo.temp.rear"] for each in stuck[60:]}) > 1
