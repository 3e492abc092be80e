"""What spark-submit takes to a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `make spark-zip` fills."""
    out = tmp_path_factory.mktemp("spark-out")
    subprocess.run([sys.executable, ROOT / "tools" / "spark-zip", out], check=True, timeout=240)
    return out
