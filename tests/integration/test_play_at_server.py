"""With real servers: `make play`: twelve vehicles in a town are up, a cut link is seen at the hub, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import signal
import sys
import tomllib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]
import pytest

from demo.town import LAT, LON, METRES_A_DEGREE, streets
from tests.support.rig import patient

from .conftest import DEADLINE_S

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.nats

ROOT = Path(__file__).parents[2]
VEHICLES = [f"VID-{number:03}" for number in range(1, 13)]


@asynccontextmanager
async def playing(out: Path, *words: str) -> AsyncIterator[Process]:
    """Run the play; end it, if the test has not."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "demo.play", "--out", str(out), *words),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def said(process: Process, what: str) -> str:
    """Return all that it prints up to the line with these words."""
    assert process.stdout is not None
    found = ""
    async with asyncio.timeout(DEADLINE_S):
        while what not in found:
            line = await process.stdout.readline()
            assert line, found
            found += line.decode()
    return found


def started(out: Path) -> list[psutil.Process]:
    """Return the processes whose files are in this directory."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid() and str(out) in " ".join(process.info["cmdline"] or ())
    ]


async def test_twelve_vehicles_are_up_a_cut_link_is_seen_and_ctrl_c_ends_all(
    tmp_path: Path,
) -> None:
    out = tmp_path / "play"
    # By then each has said where it is; the one whose link is cut says it later if not.
    async with playing(out, "--cut-after", "4") as process:
        text = await said(process, "Ctrl-C")
        page = ROOT / "hub/backhaul_hub/page/files/built.json"
        assert ("#/login/" if page.exists() else "tools/page") in text
        await _look(out / "hub", text)
        # The play itself, its hub (server, control plane, page), and an agent and a server for each.
        assert len(started(out)) >= 1 + 2 + 2 * len(VEHICLES)
        process.send_signal(signal.SIGINT)
        await said(process, "all has ended")
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
        assert started(out) == []


async def _look(directory: Path, text: str) -> None:
    """Look until each vehicle was seen connected, has said where it is, and the hub has said that a link is down."""
    nats = tomllib.loads((directory / "hub.toml").read_text())["nats"]
    creds = str(directory / nats["control"]["creds"])
    client = await patient.connect(nats["url"], user_credentials=creds)
    up: set[str] = set()
    places: dict[str, tuple[float, float]] = {}
    down: set[str] = set()
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (up >= set(VEHICLES) <= places.keys() and down):
                devices = json.loads((await client.request("hub.devices", b"")).data)["devices"]
                up |= {each["device"] for each in devices if each["link"]["up"]}
                status = json.loads((await client.request("hub.status", b"")).data)
                down |= {
                    each["device"] for each in status["conditions"] if each["code"] == "link-down"
                }
                for device in VEHICLES:
                    if device not in places and (place := await _place(client, device)):
                        places[device] = place
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(f"up {sorted(up)}, placed {sorted(places)}, down {down}; {text}")
    finally:
        await client.close()
    assert down <= set(VEHICLES)
    for lat, lon in places.values():
        north, east = (
            (lat - LAT) * METRES_A_DEGREE,
            (lon - LON) * METRES_A_DEGREE * math.cos(math.radians(LAT)),
        )
        assert _off_the_streets_m(east, north) < 1


async def _place(client: Any, device: str) -> tuple[float, float] | None:
    """Return latitude and longitude, None while the hub does not know both."""
    found = []
    for type_ in ("lat", "lon"):
        subject = f"fleet.prod.veh.{device}.state.gps.{type_}"
        answer = await client.request(
            "$JS.API.DIRECT.GET.TWIN_STATE", json.dumps({"last_by_subj": subject}).encode()
        )
        if answer.headers and "Status" in answer.headers:
            return None
        found.append(json.loads(answer.data)["data"]["value"])
    return found[0], found[1]


def _off_the_streets_m(east: float, north: float) -> float:
    """Return how far a spot is from the nearest street, in metres."""
    nearest = math.inf
    for street in itertools.chain.from_iterable(streets()):
        for (x, y), (to_x, to_y) in itertools.pairwise(street.line):
            dx, dy = to_x - x, to_y - y
            part = ((east - x) * dx + (north - y) * dy) / (dx * dx + dy * dy)
            part = min(max(part, 0.0), 1.0)
            nearest = min(nearest, math.dist((east, north), (x + part * dx, y + part * dy)))
    return nearest
