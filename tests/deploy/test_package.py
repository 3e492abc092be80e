"""Agent and hub as they are installed: made, unpacked, and run from where they were unpacked."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from .conftest import ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

# Beside tests that mostly wait, for pip does as well.
pytestmark = [pytest.mark.nats]


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
    for foreign in ("backhaul_hub", "backhaul_spark", "backhaul-hub", "bin/pip"):
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
