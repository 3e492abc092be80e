"""The pins of requirements/."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


PIN = re.compile(r"^([a-z0-9-]+)==\S+(?: ; .*)? \\$", re.MULTILINE)


def pins(name: str) -> set[str]:
    return set(PIN.findall((ROOT / "requirements" / name).read_text()))
