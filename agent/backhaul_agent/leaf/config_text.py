"""The text of a vehicle's leaf.conf. Pure; the purpose of each setting stands beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backhaul_codec.kinds import BULK, LIVE, stored_subjects
from backhaul_codec.programs.nats_conf import quoted
from backhaul_codec.protocol.identity import Identity, leaf_name
from backhaul_runtime.jetstream import API

# In a directory of its own: there the agent may write, and nowhere else beside leaf.conf.
LINK_FILE = "link/link.conf"
NO_LINK = "disabled: true\n"
APPS_FILE = "apps.conf"
LEAF_LOG = "leaf.log"
_URLS = re.compile(r"^    urls: (\[.*\])$", re.MULTILINE)
_STORE_DIR = re.compile(r'^  store_dir: (".*")$', re.MULTILINE)

# Subjects that local programs and the agent use among themselves.
LOCAL_SUBJECTS = (
    "app.>",
    "agent.>",
    "n.>",
    *stored_subjects(LIVE, BULK),
    "c.>",
    "cmd.>",
    "cmdopen.>",
    "s.>",
    f"{API}.>",
    "$KV.>",
    "$O.>",
    "_INBOX.>",
    "$SRV.>",
)


# Of the leaf's own JetStream API a hub may reset consumers; from all else it is kept, also where it
# would permit itself more. With a domain it is asked for as $JS.<domain>.API.
LOCAL_API = tuple(
    f"$JS.*.API.{verb}"
    for verb in (
        *("INFO", "STREAM.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>"),
        *("CONSUMER.CREATE.>", "CONSUMER.DURABLE.>", "CONSUMER.DELETE.>", "CONSUMER.INFO.>"),
        *("CONSUMER.LIST.>", "CONSUMER.NAMES.>", "CONSUMER.MSG.>", "CONSUMER.PAUSE.>"),
        *("CONSUMER.UNPIN.>", "CONSUMER.LEADER.>"),
    )
)


@dataclass(frozen=True, slots=True)
class LeafServer:
    """Settings of the leaf nats-server beside those of the identity document."""

    client_port: int
    store_dir: str
    ca_file: Path | None = None
    """Of the certificates that the hub is known by; None: those of the system."""
    creds_file: Path | None = None
    """Of the JWT and key to log in with at the hub; None: the addresses hold a login."""
    link_file: bool = False
    """Whether the link may be switched off."""
    pid_file: str = ""


def render_leaf(identity: Identity, server: LeafServer) -> str:
    """Render the leaf.conf of a vehicle."""
    local = _list(LOCAL_SUBJECTS)
    pid_file = f"\npid_file: {quoted(server.pid_file)}\n" if server.pid_file else ""
    return f"""\
# nats-server configuration of {identity.device}. `backhaul-agent enrol` writes all of it anew: what
# is changed here by hand is then in leaf.conf.before.

# Nobody else's to know: the hub's server cuts an older leaf when one of the same name connects.
server_name: {quoted(leaf_name(identity.device, identity.token))}
# Local programs only: backhaul-agent app.
listen: "127.0.0.1:{server.client_port}"
{pid_file}
# A vehicle that the hub refuses tries twice a second, and each try is four lines. Of so much a file,
# and so many files.
log_file: {quoted(f"{server.store_dir}/{LEAF_LOG}")}
logfile_size_limit: 4MB
logfile_max_num: 3

# Frames of long text or bytes may exceed the default of 1 MB.
max_payload: 2MB

jetstream {{
  store_dir: {quoted(server.store_dir)}
  domain: {quoted(identity.device)}
}}

# Answers to JetStream requests over the link come on subjects that name the device.
feature_flags {{ js_api_reply_v2: true }}

# An idle link that is half-open is noticed in 28 to 56 s; with the defaults in 336 s. Of an idle link this is most of
# what it carries. Where there is something to say, the agent notices it within 30 s (link.redial_nkey of agent.toml).
ping_interval: "28s"
ping_max: 1

# Who may log in, and the accounts.
include "{APPS_FILE}"

leafnodes {{
  # A link that comes back waits for the next dial: most of the time to resume. The server adds 0.1 to 0.3 s.
  reconnect: "250ms"
  remotes: [{{
    urls: [{", ".join(map(quoted, identity.leaf_urls))}]
    account: VEH{_login(server)}
    ignore_discovered_servers: true
    # The defaults fail from 1.2 s of round trip.
    first_info_timeout: "15s"
    # Packed also where the hub is near, which the default is not below 10 ms of round trip: a message of
    # a backlog then takes 50 bytes beside its body, in place of 190.
    compression: {{ mode: s2_auto, rtt_thresholds: [0ms, 50ms, 100ms] }}
    # What is local stays local, whatever the hub may ask for or let through.
    deny_imports: [{local}, {_list(LOCAL_API)}]
    deny_exports: [{local}]
  }}]
}}
"""


def _login(server: LeafServer) -> str:
    """Render how the remote is known at the hub, the hub to it, and whether there is a link."""
    parts = []
    if server.creds_file:
        parts.append(f"credentials: {quoted(str(server.creds_file))}  # read at each connect")
    if server.ca_file:
        parts.append(f"tls {{ ca_file: {quoted(str(server.ca_file))}, timeout: 10 }}")
    if server.link_file:
        # Says whether the remote is disabled; the agent writes it and has it read again.
        parts.append(f'include "{LINK_FILE}"')
    return "".join(f"\n    {part}" for part in parts)


def store_dir_of(text: str) -> str:
    """Return where a leaf.conf of `render_leaf` keeps streams, empty where it does not say."""
    found = _STORE_DIR.search(text)
    return str(json.loads(found[1])) if found else ""


def leaf_urls_of(text: str) -> tuple[str, ...]:
    """Return where a leaf.conf of `render_leaf` finds the hub, nothing where it does not say."""
    found = _URLS.search(text)
    return tuple(json.loads(found[1])) if found else ()


def _list(subjects: Iterable[str]) -> str:
    return ", ".join(map(quoted, subjects))
