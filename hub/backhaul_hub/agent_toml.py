"""The text of a device's agent.toml, as the hub writes it for the vehicle. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import ConfigError
from .leaf_config import LEAF_SYSTEM_USER
from .streams import DOWN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .registry import Device

_HEADER = "[streams]"
_OWN_KEY = re.compile(r"\s*(per|nodes)\s*=")


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """What `backhaul-hub add-device` is told about a vehicle."""

    client_port: int
    """Where local programs reach the leaf."""
    state_dir: Path
    """Where on the vehicle ledger and streams are kept."""
    link_kbit_s: float = 1000.0
    """What its link carries at its worst."""
    link_mode: str = "always"
    """Whether the link is always up, or "scheduled" or "on-demand"."""
    nodes: tuple[str, ...] = ()
    """Nodes with streams of their own."""


def render_agent_toml(device: Device, settings: DeviceSettings, system_password: str) -> str:
    """Render the agent.toml of a new device; with a password, its agent switches the link."""
    metered = ""
    if system_password:
        metered = f"""
# "scheduled": the link is up every schedule_s seconds, and when an event waits; "on-demand": only
# then. "always" needs no change to leaf.conf.
mode = "{settings.link_mode}"
schedule_s = 3600.0
system_user = "{LEAF_SYSTEM_USER}"
system_password = "{system_password}"
"""
    text = f"""\
# Agent of {device.id}, written by `backhaul-hub add-device`. Unknown keys are refused.

[device]
id = "{device.id}"
token = "{device.token}"
down_stream = "{DOWN}"

[nats]
url = "nats://127.0.0.1:{settings.client_port}"

[ledger]
path = "{settings.state_dir / "backhaul-agent" / "ledger.db"}"

[link]
# What the link carries at its worst, to begin with; then it is measured. No more than about four
# seconds of it are ever in flight, so that what is urgent does not wait behind a backlog.
rate_kbit_s = {settings.link_kbit_s}
{metered}"""
    return with_nodes(text, settings.nodes) if settings.nodes else text


def with_nodes(text: str, nodes: Sequence[str]) -> str:
    """Return an agent.toml with other nodes that have streams of their own; all else stays.

    Raises:
        ConfigError: where `[streams]` is written in a way that this cannot change.
    """
    own: dict[str, Any] = {"per": "node" if nodes else "device", "nodes": list(nodes)}
    if _differ_in_nodes_only(text, text, own):
        return text
    lines = text.splitlines()
    if _HEADER in lines:
        begin = lines.index(_HEADER) + 1
        end = next((n for n in range(begin, len(lines)) if lines[n].startswith("[")), len(lines))
        table = [line for line in lines[begin:end] if not _OWN_KEY.match(line)]
    else:
        lines += ["", _HEADER]
        begin = end = len(lines)
        table = ["# Nodes with streams of their own; the hub must know: backhaul-hub add-device."]
    keys = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in own.items()]
    changed = "\n".join([*lines[:begin], *keys, *table, *lines[end:]]) + "\n"
    if not _differ_in_nodes_only(text, changed, own):
        raise ConfigError(
            "the nodes could not be changed in [streams] of agent.toml",
            hint=f"write them there by hand, then again: {'; '.join(keys)}",
        )
    return changed


def _differ_in_nodes_only(before: str, after: str, own: dict[str, Any]) -> bool:
    try:
        wanted, found = tomllib.loads(before), tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        return False
    wanted["streams"] = wanted.get("streams", {}) | own
    return found == wanted
