"""The text of nats-server configurations: the hub's, and each device's leaf.

Pure: settings in, text out. What the settings are for, and what was measured without them, stands
beside each. The permissions are the narrow set that withstood a hostile leaf.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .streams import DOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

LANES = ("live", "bulk")
# What a reader of streams asks that has one answer.
_READ_ONE = ("STREAM.INFO.*", "STREAM.LIST")
# As what account JOBS knows the API: $JS.API is each account's own, and JOBS has none.
JOBS_API = "jobsapi"
CLOCK_QUESTIONS = "clk.*"
# What the agent of a metered device uses to switch its link, and where that is said.
LEAF_SYSTEM_USER = "link"
LINK_FILE = "link.conf"
CLOCK_ANSWERS = "clkr.*.*"
BLOB_QUESTIONS, BLOB_ANSWERS = "blob.*", "blobr.*.*"


@dataclass(frozen=True, slots=True)
class HubServer:
    """Settings of the hub's nats-server."""

    client_host: str
    host: str
    client_port: int
    leaf_port: int
    store_dir: str
    control_hash: str
    spark_hash: str
    system_hash: str
    store_bytes_max: int
    sync_interval: str = "always"


@dataclass(frozen=True, slots=True)
class DeviceLogin:
    """A device as the hub's server knows it."""

    id: str
    token: str
    password_hash: str


@dataclass(frozen=True, slots=True)
class LeafServer:
    """Settings of one device's leaf nats-server."""

    device: str
    token: str
    remote_url: str
    client_port: int
    store_dir: str
    system_password: str = ""
    """Of the user with which the agent switches the link; empty: the link is always there."""


def render_hub(settings: HubServer) -> str:
    """Render `hub.conf`; it includes `devices.conf` (see `render_devices`)."""
    return f"""\
# nats-server configuration of a backhaul hub, written by `backhaul-hub init`.

server_name: hub
listen: {_text(f"{settings.client_host}:{settings.client_port}")}

# More than the leafs': a message that a leaf takes and the hub does not would cut the link, for ever.
max_payload: 4MB

jetstream {{
  store_dir: {_text(settings.store_dir)}
  domain: hub
  # What all streams together may be promised. Left to itself the server takes three quarters of the
  # disk that is free at each start, and refuses changes of streams once they have filled it.
  max_file_store: {settings.store_bytes_max}
  # A watermark is a promise: a device may forget what it covers. With any lazier interval a power
  # cut takes back messages whose source has moved on, and they never come again.
  sync_interval: {settings.sync_interval}
}}

# A half-open link is noticed in 20 s; with the defaults in 336 s.
ping_interval: "10s"
ping_max: 2

leafnodes {{
  listen: {_text(f"{settings.host}:{settings.leaf_port}")}
  # Devices dial what they were told to dial, and hear nothing of one another: interest of an
  # absent device costs every idle link 26-80 kB a minute otherwise.
  no_advertise: true
  isolate_leafnode_interest: true
  # A login over a link with 600 ms round trip needs more than the default 2 s.
  authorization {{ timeout: 10 }}
}}

system_account: SYS
accounts {{
  SYS {{ users: [{{ user: system, password: {_text(settings.system_hash)} }}] }}

  # Streams and services. No vehicle is ever in this account.
  HUB {{
    jetstream: enabled
    users: [
      {{ user: control, password: {_text(settings.control_hash)} }}
    ]
    exports: [
{_lines(f'{{ service: "{subject}" }}' for subject in _hub_services())}
      {{ stream: "dn.>" }}
      {{ stream: "{CLOCK_ANSWERS}" }}
      {{ stream: "{BLOB_ANSWERS}" }}
{_lines(f'{{ service: "$JS.API.{verb}", accounts: [JOBS] }}' for verb in _READ_ONE)}
      {{ service: "$JS.API.DIRECT.GET.*", response_type: "Stream", accounts: [JOBS] }}
    ]
    imports: [
{_lines(f'{{ service: {{ account: FLEET, subject: "{subject}" }} }}' for subject in _fleet_services())}
      {{ stream: {{ account: FLEET, subject: "dlv.*.*" }} }}
      # What time it is, and artifacts: the subject says who asks, which the permissions of FLEET
      # make true.
      {{ stream: {{ account: FLEET, subject: "{CLOCK_QUESTIONS}" }} }}
      {{ stream: {{ account: FLEET, subject: "{BLOB_QUESTIONS}" }} }}
    ]
  }}

  # Reads streams, through the account boundary and so with no reply subject of its own choosing:
  # creates nothing, deletes nothing, writes nothing.
  JOBS {{
    users: [ {{ user: spark, password: {_text(settings.spark_hash)} }} ]
    imports: [
{_lines(f'{{ service: {{ account: HUB, subject: "$JS.API.{verb}" }}, to: "{JOBS_API}.{verb}" }}' for verb in (*_READ_ONE, "DIRECT.GET.*"))}
    ]
  }}

  # Leafs only, and no JetStream: reply subjects are never permission-checked, so a device in an
  # account with JetStream could reach its API through one.
  FLEET {{
    include "devices.conf"
    exports: [
{_lines(f'{{ service: "{subject}" }}' for subject in _fleet_services())}
      {{ stream: "dlv.*.*" }}
      {{ stream: "{CLOCK_QUESTIONS}" }}
      {{ stream: "{BLOB_QUESTIONS}" }}
    ]
    imports: [
      {{ service: {{ account: HUB, subject: "$JS.API.CONSUMER.RESET.{DOWN}.*" }},
        to: "hubapi.CONSUMER.RESET.{DOWN}.*" }}
{_lines(f'{{ service: {{ account: HUB, subject: "{subject}" }} }}' for subject in _flow_control(DOWN))}
      {{ stream: {{ account: HUB, subject: "dn.>" }} }}
      {{ stream: {{ account: HUB, subject: "{CLOCK_ANSWERS}" }} }}
      {{ stream: {{ account: HUB, subject: "{BLOB_ANSWERS}" }} }}
    ]
  }}
}}
"""


def render_devices(devices: Iterable[DeviceLogin]) -> str:
    """Render `devices.conf`: the users of account FLEET, each with its own narrow permissions."""
    users = "".join(_device_user(device) for device in devices)
    return f"# The devices' users, written by `backhaul-hub add-device`.\nusers: [\n{users}]\n"


def render_leaf(settings: LeafServer) -> str:
    """Render the `leaf.conf` of one device."""
    local = ", ".join(_text(subject) for subject in LOCAL_SUBJECTS)
    system, switch = "", ""
    if password := settings.system_password:
        system = f"users: [{{ user: {LEAF_SYSTEM_USER}, password: {_text(password)} }}]"
        # Says whether the remote is disabled; the agent writes it and has it read again.
        switch = f'\n    include "{LINK_FILE}"'
    return f"""\
# nats-server configuration of {settings.device}, written by `backhaul-hub add-device`.
# It holds the device's password: keep it readable for the server alone.

# Nobody else's to know: the hub's server cuts an older leaf when one of the same name connects.
server_name: {_text(leaf_name(settings.device, settings.token))}
# Local programs only. They publish to app.<node>.<type> with any NATS client.
listen: "127.0.0.1:{settings.client_port}"

# Frames of long text or bytes may exceed the default of 1 MB.
max_payload: 2MB

jetstream {{
  store_dir: {_text(settings.store_dir)}
  domain: {_text(settings.device)}
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
    url: {_text(settings.remote_url)}
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
    "p.>",
    "e.>",
    "r.>",
    "f.>",
    "c.>",
    "s.>",
    "$JS.API.>",
    "$KV.>",
    "$O.>",
    "_INBOX.>",
)


def leaf_name(device: str, token: str) -> str:
    """Return the name of a device's leaf server."""
    return f"{device}-{token}"


def out_stream(lane: str) -> str:
    """Return the name of a lane's stream on the leaf."""
    return f"OUT_{lane}"


def deliver_subject(device: str, token: str, lane: str) -> str:
    """Return where a lane's durable on the leaf delivers to."""
    return f"dlv.{device}.{token}_{lane}"


def clock_answer_subject(device: str, token: str) -> str:
    """Return where the hub tells a device the time, and no other device can listen."""
    return f"clkr.{device}.{token}"


def blob_answer_subject(device: str, token: str) -> str:
    """Return where the hub answers a device about artifacts, and no other device can listen."""
    return f"blobr.{device}.{token}"


def _device_user(device: DeviceLogin) -> str:
    streams = [out_stream(lane) for lane in LANES]
    durable = f"{DOWN}.{device.id}-{device.token}"
    publish = [
        *(deliver_subject(device.id, device.token, lane) for lane in LANES),
        # Answers to what the hub asked, through the account boundary.
        "_R_.*.*",
        f"hubapi.CONSUMER.RESET.{durable}",
        f"$JS.FC.{durable}.*",
        f"$JS.FC.*.*.{durable}.*",
        f"clk.{device.id}",
        f"blob.{device.id}",
    ]
    subscribe = [
        *(f"$JS.{device.id}.API.CONSUMER.RESET.{stream}.{device.token}" for stream in streams),
        *(f"$JS.FC.{stream}.{device.token}.*" for stream in streams),
        *(f"$JS.FC.*.*.{stream}.{device.token}.*" for stream in streams),
        f"dn.{device.id}.{device.token}",
        clock_answer_subject(device.id, device.token),
        blob_answer_subject(device.id, device.token),
        f"$JSC.R.*.*.{durable}.*",
        f"_INBOX_{device.id}.>",
    ]
    return f"""\
  {{ user: {_text(device.id)}, password: {_text(device.password_hash)}
    allowed_connection_types: ["LEAFNODE"]
    permissions {{
      publish: [
{_lines(map(_text, publish), indent=8)}
      ]
      subscribe: [
{_lines(map(_text, subscribe), indent=8)}
      ]
    }}
  }}
"""


def _hub_services() -> list[str]:
    return [f"$JS.API.CONSUMER.RESET.{DOWN}.*", *_flow_control(DOWN)]


def _fleet_services() -> list[str]:
    streams = [out_stream(lane) for lane in LANES]
    resets = [f"$JS.*.API.CONSUMER.RESET.{stream}.*" for stream in streams]
    return resets + [subject for stream in streams for subject in _flow_control(stream)]


def _flow_control(stream: str) -> list[str]:
    # The second form carries domain and account in front, as servers from 2.16 on send it.
    return [f"$JS.FC.{stream}.*.*", f"$JS.FC.*.*.{stream}.*.*"]


def _lines(items: Iterable[str], *, indent: int = 6) -> str:
    return "\n".join(" " * indent + item for item in items)


def _text(value: str) -> str:
    """Quote for nats-server's configuration language, a superset of JSON in this."""
    return json.dumps(value, ensure_ascii=False)
