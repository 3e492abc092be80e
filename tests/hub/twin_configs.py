"""The streams of the twin as they are declared, and as somebody has edited them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_hub.config import load
from backhaul_hub.streams.streams import declared_streams

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.config import HubConfig
    from backhaul_hub.nats.jetstream import Json
ALL_FIVE = ("TWIN_STATE", "TWIN_EVENTS", "TWIN_CMD", "KV_TWIN_SHADOW", "OBJ_TWIN_BLOBS")


def edit(directory: Path, old: str, new: str) -> HubConfig:
    path = directory / "hub.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return load(directory)


def declared(config: HubConfig, name: str) -> Json:
    return next(stream for stream in declared_streams(config) if stream["name"] == name)
