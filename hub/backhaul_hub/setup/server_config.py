"""The text of the hub server's configuration, hub.conf. Pure: settings in, text out.

What the settings are for, and what was measured without them, stands beside each. Who may log in and
what goes between accounts is not here: the server takes that from JWTs (access/rules.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backhaul_codec.programs.nats_conf import quoted

PING_S = 29
"""A vehicle that works asks each 28 s: a server that hears it so often asks nothing itself."""
_PINGS = re.compile(r'^\s*ping_interval\s*[:=]?\s*"?(\d+)s"?\s*$', re.MULTILINE)
_LOG_FILE = re.compile(r"^\s*(log_file|logfile)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HubServer:
    """Settings of the hub's nats-server."""

    client_host: str
    host: str
    client_port: int
    leaf_port: int
    store_dir: str
    store_bytes_max: int
    operator_jwt: str
    system_account: str
    """Its public key."""
    system_jwt: str
    resolver_dir: str
    log_file: str
    sync_interval: str = "always"
    name: str = "hub"
    cluster: str = ""
    """What makes it one of several (servers.py)."""
    client_tls: str = ""
    """The block with which the client port speaks TLS (tls/conf_text.py)."""
    leaf_tls: str = ""
    websocket: str = ""
    """The line that includes the listener for browsers (websocket_config.py); empty: there is none."""


def render_hub(settings: HubServer) -> str:
    """Render `hub.conf`."""
    return f"""\
# nats-server configuration of a backhaul hub, written by `backhaul-hub init`.

server_name: {settings.name}
listen: {quoted(f"{settings.client_host}:{settings.client_port}")}
{settings.client_tls}
# A vehicle that is refused tries twice a second, and each try is some lines. Of so much a file, and so
# many files.
log_file: {quoted(settings.log_file)}
logfile_size_limit: 64MB
logfile_max_num: 4

# More than the leafs': a message that a leaf takes and the hub does not would cut the link, for ever.
max_payload: 4MB

jetstream {{
  store_dir: {quoted(settings.store_dir)}
  domain: hub
  # What all streams together may be promised. Left to itself the server takes three quarters of the
  # disk that is free at each start, and refuses changes of streams once they have filled it.
  max_file_store: {settings.store_bytes_max}
  # A watermark is a promise: a device may forget what it covers. With any lazier interval a power
  # cut takes back messages whose source has moved on, and they never come again.
  sync_interval: {settings.sync_interval}
}}

# A link whose vehicle is gone without a word is noticed within 116 s; with the defaults in 336 s. Vehicles ask every
# 28 s: a server that hears them so often asks nothing itself.
ping_interval: "{PING_S}s"
ping_max: 2
{settings.cluster}
leafnodes {{
  listen: {quoted(f"{settings.host}:{settings.leaf_port}")}
  # Devices dial what they were told to dial, and hear nothing of one another: interest of an
  # absent device costs every idle link 26-80 kB a minute otherwise.
  no_advertise: true
  isolate_leafnode_interest: true
  # A login over a link with 600 ms round trip needs more than the default 2 s.
  authorization {{ timeout: 10 }}
{settings.leaf_tls}}}
{settings.websocket}
# Accounts and users are known by JWTs, all signed by keys of this operator.
operator: {settings.operator_jwt}
system_account: {settings.system_account}
resolver {{
  type: full
  dir: {quoted(settings.resolver_dir)}
  allow_delete: false
  # How often servers of a cluster compare what they have.
  interval: "30s"
}}
# Enough to be given the other accounts, should the directory be lost.
resolver_preload: {{ {settings.system_account}: {settings.system_jwt} }}
"""


def older_settings(text: str) -> list[str]:
    """Return the settings that a hub.conf of an older hub lacks, a sentence each with its remedy."""
    found = []
    pings = _PINGS.search(text)
    if pings is None or int(pings[1]) < PING_S:
        now = f"is {pings[1]}s" if pings else "is not set in seconds"
        found.append(
            f'ping_interval {now}: this server asks idle vehicles itself. With ping_interval: "{PING_S}s" and'
            " ping_max: 2 it asks none that works: vehicles ask each 28 s. `backhaul-hub reload` has it read again"
        )
    if _LOG_FILE.search(text) is None:
        found.append(
            "log_file is not set: add log_file, logfile_size_limit: 64MB and logfile_max_num: 4, and restart the"
            " server; else vehicles that are refused fill its log"
        )
    return found
