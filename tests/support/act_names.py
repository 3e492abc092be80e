"""The services by which command lines have hub.db read and written: for who must not reach them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backhaul_hub.control.acts import Acts
from backhaul_hub.control.erasing import ErasureActs

_NOTHING: Any = None
_ERASURES = ErasureActs(Path(), _NOTHING, _NOTHING, _NOTHING, _NOTHING, None, _NOTHING)
ACTS = tuple(
    each.service for each in Acts(Path(), _NOTHING, _NOTHING, _NOTHING, _NOTHING, _ERASURES).table()
)
