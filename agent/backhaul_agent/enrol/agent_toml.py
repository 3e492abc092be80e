"""The text of a vehicle's agent.toml: made from an identity document, or brought in line with one. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backhaul_codec.protocol.identity import Identity, LinkCapacity
from backhaul_codec.strict.toml import TomlError, read_toml

AGENT_KEY = "agent.nk"
SYSTEM_KEY = "system.nk"
Keys = dict[str, Any]


def render_agent_toml(
    identity: Identity, *, client_port: int, state_dir: Path, link: LinkCapacity
) -> str:
    """Render the agent.toml of a vehicle that has none."""
    metered = ""
    if link.mode != "always":
        metered = f"""
# "scheduled": the link is up every schedule_s seconds, and when an event waits; "on-demand": only
# then. "always" needs no change to leaf.conf.
mode = "{link.mode}"
schedule_s = 3600.0
system_nkey = "{SYSTEM_KEY}"
"""
    text = f"""\
# Agent of {identity.device}, written by `backhaul-agent enrol`. Unknown keys are refused. What you
# change here stays; `enrol` changes what the hub says of the device and its nodes, and nothing else.

[device]
{_lines(_device(identity))}

[nats]
url = "nats://127.0.0.1:{client_port}"
nkey = "{AGENT_KEY}"

[ledger]
path = {_value(str(state_dir / "backhaul-agent" / "ledger.db"))}

[link]
# What the link carries at its worst, to begin with; then it is measured. No more than about four
# seconds of it are ever in flight, so that what is urgent does not wait behind a backlog.
rate_kbit_s = {link.kbit_s}
{metered}
# The technician's page, for a browser on this machine; its code: backhaul-agent page.
# [page]
# listen = "127.0.0.1:8480"
"""
    if not identity.nodes:
        return text
    return f"""{text}
[streams]
# Nodes with streams of their own; the hub must know: backhaul-hub add-device --per-node.
{_lines(_streams(identity))}
"""


def wanted_by(identity: Identity) -> dict[str, Keys]:
    """Return the keys of agent.toml, by table, that are the document's to say, or of our own making."""
    return {
        "device": _device(identity),
        "nats": {"nkey": AGENT_KEY},
        "streams": _streams(identity),
    }


def with_keys(text: str, wanted: Mapping[str, Keys]) -> str | None:
    """Return an agent.toml with these keys of these tables as wanted; all else stays as it is.

    None: it is written in a way that this cannot change.
    """
    for table, keys in wanted.items():
        held = _tables(text).get(table, {})
        # Where a table says nothing of streams, that is what it says of no nodes.
        if all(held.get(key, _UNSAID.get(key)) == value for key, value in keys.items()):
            continue
        changed = _changed(text, table, keys)
        expected = _tables(text)
        expected[table] = expected.get(table, {}) | keys
        if _tables(changed) != expected:
            return None
        text = changed
    return text


_UNSAID: Keys = {"per": "device", "nodes": [], "mode": "always"}


def _device(identity: Identity) -> Keys:
    return {"id": identity.device, "token": identity.token, "down_stream": identity.down_stream}


def _streams(identity: Identity) -> Keys:
    return {"per": "node" if identity.nodes else "device", "nodes": list(identity.nodes)}


def _changed(text: str, table: str, keys: Keys) -> str:
    """Return the text with the keys' lines first in their table, and no other lines of theirs."""
    lines = text.splitlines()
    header = f"[{table}]"
    if header not in lines:
        lines += ["", header]
    begin = lines.index(header) + 1
    end = next((n for n in range(begin, len(lines)) if lines[n].startswith("[")), len(lines))
    own = re.compile(rf"\s*({'|'.join(map(re.escape, keys))})\s*=")
    others = [line for line in lines[begin:end] if not own.match(line)]
    return "\n".join([*lines[:begin], _lines(keys), *others, *lines[end:]]) + "\n"


def _tables(text: str) -> dict[str, Any]:
    try:
        return read_toml(text)
    except TomlError:
        return {}


def _lines(keys: Keys) -> str:
    return "\n".join(f"{key} = {_value(value)}" for key, value in keys.items())


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
