"""The text of a device's leaf.conf. Pure; what a setting is for stands beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .server_text import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

# What the agent of a metered device uses to switch its link, and where that is said.
LEAF_SYSTEM_USER = "link"
LINK_FILE = "link.conf"


@dataclass(frozen=True, slots=True)
class LeafServer:
    """Settings of one device's leaf nats-server."""

    device: str
    token: str
    remote_urls: Sequence[str]
    """Of the hub's servers: where one is away the leaf dials another."""
    client_port: int
    store_dir: str
    system_password: str = ""
    """Of the user with which the agent switches the link; empty: the link is always there."""


def render_leaf(settings: LeafServer) -> str:
    """Render the `leaf.conf` of one device."""
    local = ", ".join(quoted(subject) for subject in LOCAL_SUBJECTS)
    system, switch = "", ""
    if password := settings.system_password:
        system = f"users: [{{ user: {LEAF_SYSTEM_USER}, password: {quoted(password)} }}]"
        # Says whether the remote is disabled; the agent writes it and has it read again.
        switch = f'\n    include "{LINK_FILE}"'
    return f"""\
# nats-server configuration of {settings.device}, written by `backhaul-hub add-device`.
# It holds the device's password: keep it readable for the server alone.

# Nobody else's to know: the hub's server cuts an older leaf when one of the same name connects.
server_name: {quoted(leaf_name(settings.device, settings.token))}
# Local programs only. They publish to app.<node>.<type> with any NATS client.
listen: "127.0.0.1:{settings.client_port}"

# Frames of long text or bytes may exceed the default of 1 MB.
max_payload: 2MB

jetstream {{
  store_dir: {quoted(settings.store_dir)}
  domain: {quoted(settings.device)}
}}

# Answers to JetStream requests over the link come on subjects that name the device.
feature_flags {{ js_api_reply_v2: true }}

# A half-open link is noticed in 20 s; with the defaults in 336 s.
ping_interval: "10s"
ping_max: 2

accounts {{
  SYS {{ {system} }}
  VEH {{ jetstream: enabled, users: [{{ user: local, password: "" }}] }}
}}
system_account: SYS
no_auth_user: local

leafnodes {{
  reconnect: "500ms"
  remotes: [{{
    urls: [{", ".join(map(quoted, settings.remote_urls))}]
    account: VEH{switch}
    ignore_discovered_servers: true
    # The defaults fail from 1.2 s of round trip.
    first_info_timeout: "15s"
    # What is local stays local, whatever the hub may ask for or let through.
    deny_imports: [{local}]
    deny_exports: [{local}]
  }}]
}}
"""


# Subjects that local programs and the agent use among themselves.
LOCAL_SUBJECTS = (
    "app.>",
    "agent.>",
    "n.>",
    "p.>",
    "e.>",
    "r.>",
    "f.>",
    "c.>",
    "cmd.>",
    "s.>",
    "$JS.API.>",
    "$KV.>",
    "$O.>",
    "_INBOX.>",
    "$SRV.>",
)


def with_node_subjects(text: str) -> str:
    """Return a leaf.conf of an older hub with the subjects of nodes' lanes kept local, as others are."""
    for rule in ("deny_imports", "deny_exports"):
        text = re.sub(rf'({rule}: \[)(?!.*"n\.>")', r'\1"n.>", ', text)
    return text


def leaf_name(device: str, token: str) -> str:
    """Return the name of a device's leaf server."""
    return f"{device}-{token}"
