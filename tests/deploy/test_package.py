"""Agent and hub as they are installed: made, unpacked, and run from where they were unpacked."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import aiohttp
import grimp
import pytest

from backhaul_agent.client import connect
from backhaul_agent.page.technician import FILES
from tests.support.agent_process import AgentProcess
from tests.support.rig.ports import free_port

from .conftest import ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

# Beside tests that mostly wait, for pip does as well.
pytestmark = [pytest.mark.nats]


GRAPH = grimp.build_graph("backhaul_agent", "backhaul_codec", "backhaul_runtime")
AGENT = {module for module in GRAPH.modules if module.startswith("backhaul_agent")}
REPLAY = GRAPH.find_descendants("backhaul_agent.replay") | {
    *("backhaul_agent.replay", "backhaul_agent.cli.vehicle.replay")
}


def imported(*roots: str) -> set[str]:
    """Return modules and all of this project that they import, however far, with the packages around."""
    found = set(roots).union(*(GRAPH.find_upstream_modules(root) for root in roots))
    parts = (module.split(".") for module in found)
    return {".".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1)}


def modules(root: Path) -> set[str]:
    """Return this project's modules in an installed agent."""
    (packages,) = root.glob("usr/lib/backhaul-agent/lib/python3*/site-packages")
    files = (path.relative_to(packages) for path in packages.glob("backhaul_*/**/*.py"))
    return {".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files}


def start(root: Path, part: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an installed program, with nothing of this environment in its reach."""
    programs = root / f"usr/lib/backhaul-{part}/bin"
    command = [str(programs / "python"), "-I", str(programs / f"backhaul-{part}"), *words]
    return subprocess.run(
        command, env={}, cwd=root, capture_output=True, text=True, check=False, timeout=240
    )


def test_the_package_says_what_it_needs_and_brings_what_it_runs(vehicle_deb: Path) -> None:
    said = run("dpkg-deb", "--field", str(vehicle_deb)).stdout
    assert "Package: backhaul-agent\n" in said
    assert "Depends: python3 (>= 3." in said
    listed = run("dpkg-deb", "--contents", str(vehicle_deb)).stdout
    for path in (
        "./usr/bin/backhaul-agent -> /usr/lib/backhaul-agent/bin/backhaul-agent",
        "./usr/lib/backhaul-agent/bin/nats-server",
        "./usr/lib/systemd/system/backhaul-leaf.service",
        "./usr/lib/systemd/system/backhaul-agent.service",
        "./usr/lib/sysusers.d/backhaul-agent.conf",
        "./etc/backhaul/",
    ):
        assert path in listed, path
    for foreign in (
        "backhaul_hub",
        "backhaul_spark",
        "backhaul-hub",
        "bin/pip",
        "pyarrow",
        "cffi/",
    ):
        assert foreign not in listed
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}


def test_no_program_names_the_place_where_it_was_made(vehicle_root: Path) -> None:
    for path in (vehicle_root / "usr/lib/backhaul-agent").rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "nats-server":
            assert str(ROOT).encode() not in path.read_bytes(), path
    program = vehicle_root / "usr/lib/backhaul-agent/bin/backhaul-agent"
    assert program.read_text().startswith("#!/usr/lib/backhaul-agent/bin/python\n")


def test_the_agent_runs_from_where_it_was_unpacked(vehicle_root: Path) -> None:
    done = start(vehicle_root, "agent", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "status" in done.stdout
    server = vehicle_root / "usr/lib/backhaul-agent/bin/nats-server"
    assert "nats-server" in run(str(server), "--version").stdout


def test_a_vehicle_has_the_modules_that_its_agent_imports_and_no_others(vehicle_root: Path) -> None:
    assert modules(vehicle_root) == imported(*AGENT - REPLAY)


def test_every_module_of_a_vehicle_finds_all_that_it_imports(vehicle_root: Path) -> None:
    """Also of other projects: some of what they bring is left out."""
    every = ", ".join(sorted(modules(vehicle_root) - {"backhaul_agent.__main__"}))
    python = vehicle_root / "usr/lib/backhaul-agent/bin/python"
    done = run(str(python), "-I", "-c", f"import {every}, nkeys, nacl.bindings")
    assert (done.returncode, done.stderr) == (0, "")


async def test_an_agent_of_the_package_keeps_a_reading_and_serves_its_page(
    vehicle_root: Path, nats_server: NatsServer, tmp_path: Path
) -> None:
    port = free_port()
    programs = vehicle_root / "usr/lib/backhaul-agent/bin"
    program = (str(programs / "python"), "-I", str(programs / "backhaul-agent"))
    agent = AgentProcess(
        tmp_path / "agent",
        nats_server.url,
        program=program,
        extra=f'[page]\nlisten = "127.0.0.1:{port}"',
    )
    agent.start()
    try:
        await agent.ready()
        async with connect(nats_server.url) as vehicle:
            await vehicle.publish("battery", "soc", 81.2)
        if (FILES / "built.json").exists():
            async with aiohttp.request("GET", f"http://127.0.0.1:{port}/") as answer:
                assert "<title>This vehicle" in await answer.text()
        await agent.drained()
    finally:
        assert agent.stop() == 0


def test_a_recording_is_replayed_where_that_was_asked_for(
    vehicle_root: Path, tmp_path: Path
) -> None:
    missing = start(vehicle_root, "agent", "replay", "trip.csv")
    assert missing.returncode == 1
    assert "replay is not part of this installation" in missing.stderr
    assert "replay" not in start(vehicle_root, "agent", "--help").stdout
    done = run("tools/install-part", "agent", DESTDIR=str(tmp_path), EXTRAS="replay")
    assert done.returncode == 0, done.stdout + done.stderr
    assert modules(tmp_path) == imported(*AGENT)
    assert start(tmp_path, "agent", "replay", "--help").returncode == 0
    assert list(tmp_path.glob("usr/lib/backhaul-agent/lib/python3*/site-packages/pyarrow"))


def test_a_hub_is_installed_and_makes_its_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    # What `make install-hub` does after `make setup`, which a test must not run under its own feet.
    done = run("tools/install-part", "hub", DESTDIR=str(root))
    assert done.returncode == 0, done.stdout + done.stderr
    made = start(root, "hub", "init", str(tmp_path / "hub"))
    assert (made.returncode, made.stderr) == (0, "")
    assert (tmp_path / "hub" / "hub.conf").exists()
    units = {path.name for path in (root / "usr/lib/systemd/system").iterdir()}
    assert {"backhaul-hub.service", "backhaul-hub-server.service"} <= units
    assert not [name for name in units if "agent" in name or "spark" in name]
    assert (root / "usr/lib/sysusers.d/backhaul-hub.conf").exists()


def test_what_is_no_part_is_refused(tmp_path: Path) -> None:
    done = run("tools/install-part", "hubcap", DESTDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "install-part: there is no part hubcap\n")
    (tmp_path / "usr/lib/backhaul-agent").mkdir(parents=True)
    done = run("tools/install-part", "agent", DESTDIR=str(tmp_path))
    assert (done.returncode, "is something else" in done.stderr) == (1, True)
    done = run("tools/install-part", "hub", DESTDIR=str(tmp_path), EXTRAS="replay")
    assert (done.returncode, done.stderr) == (1, "install-part: hub has no extra replay\n")
