"""Where recordings of real vehicles lie."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


DATA = Path(os.environ.get("BACKHAUL_DATA", ROOT.parent / "shared" / "data"))
