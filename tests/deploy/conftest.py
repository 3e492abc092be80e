"""What tests of the installation share: one package of a vehicle, made and unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.nats_server import nats_server

__all__ = ["nats_server"]

ROOT = Path(__file__).parents[2]


def run(
    *command: str, within_s: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of the project's from its top."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=within_s,
    )


@pytest.fixture(scope="session")
def vehicle_deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package of a vehicle."""
    if not shutil.which("dpkg-deb") or not Path("/usr/bin/python3").exists():
        pytest.skip("no Debian: its packages cannot be made or read here")
    out = tmp_path_factory.mktemp("deb")
    done = run("tools/make-deb", PARTS="agent", OUT=str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="session")
def vehicle_root(vehicle_deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root directory into which that package was unpacked."""
    root = tmp_path_factory.mktemp("root")
    done = run("dpkg-deb", "-x", str(vehicle_deb), str(root))
    assert done.returncode == 0, done.stderr
    return root
