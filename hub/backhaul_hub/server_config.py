"""The text of the hub server's configuration: hub.conf and what it includes.

Pure: settings in, text out. What the settings are for, and what was measured without them, stands
beside each. The permissions are the narrow set that withstood a hostile leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backhaul_codec.subjects import SHARED_LANES

from .lanes import (
    deliver_subject,
    down_deliver_subject,
    down_durable,
    lanes_of,
    node_lanes,
    out_stream,
)
from .reset_service import RESETS
from .server_text import lines, quoted
from .streams import DOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from backhaul_codec.subjects import Lane

    from .registry import Device

# What a reader of streams asks that has one answer. One message, as a stream's leader has it: of a
# cluster any server answers a direct get, and may be behind.
_READ_ONE = ("STREAM.INFO.*", "STREAM.LIST", "STREAM.MSG.GET.*")
# As what account JOBS knows the API: $JS.API is each account's own, and JOBS has none.
JOBS_API = "jobsapi"
CLOCK_QUESTIONS = "clk.*"
CLOCK_ANSWERS = "clkr.*.*"
BLOB_QUESTIONS, BLOB_ANSWERS = "blob.*", "blobr.*.*"
# What hub.conf includes, and adding a device writes anew.
DEVICES = "devices.conf"
FLEET_EXPORTS = "fleet-exports.conf"
HUB_IMPORTS = "hub-imports.conf"


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
    name: str = "hub"
    cluster: str = ""
    """What makes it one of several (servers.py)."""


def render_hub(settings: HubServer) -> str:
    """Render `hub.conf`, which includes three files that devices change: see `fleet_files`."""
    return f"""\
# nats-server configuration of a backhaul hub, written by `backhaul-hub init`.

server_name: {settings.name}
listen: {quoted(f"{settings.client_host}:{settings.client_port}")}

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

# A half-open link is noticed in 20 s; with the defaults in 336 s.
ping_interval: "10s"
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
}}

system_account: SYS
accounts {{
  SYS {{ users: [{{ user: system, password: {quoted(settings.system_hash)} }}] }}

  # Streams and services. No vehicle is ever in this account.
  HUB {{
    jetstream: enabled
    users: [
      {{ user: control, password: {quoted(settings.control_hash)} }}
    ]
    exports: [
{lines(f'{{ service: "{subject}" }}' for subject in _hub_services())}
      {{ stream: "dn.>" }}
      {{ stream: "{CLOCK_ANSWERS}" }}
      {{ stream: "{BLOB_ANSWERS}" }}
{lines(f'{{ service: "$JS.API.{verb}", accounts: [JOBS] }}' for verb in _READ_ONE)}
      {{ service: "$JS.API.DIRECT.GET.*", response_type: "Stream", accounts: [JOBS] }}
    ]
    include "{HUB_IMPORTS}"
  }}

  # Reads streams, through the account boundary and so with no reply subject of its own choosing:
  # creates nothing, deletes nothing, writes nothing.
  JOBS {{
    users: [ {{ user: spark, password: {quoted(settings.spark_hash)} }} ]
    imports: [
{lines(f'{{ service: {{ account: HUB, subject: "$JS.API.{verb}" }}, to: "{JOBS_API}.{verb}" }}' for verb in (*_READ_ONE, "DIRECT.GET.*"))}
    ]
  }}

  # Leafs only, and no JetStream: reply subjects are never permission-checked, so a device in an
  # account with JetStream could reach its API through one.
  FLEET {{
    include "{DEVICES}"
    include "{FLEET_EXPORTS}"
    imports: [
      # The control plane's, and never the API's: a leaf's reply can have that told any subject.
      {{ service: {{ account: HUB, subject: "{RESETS}" }} }}
{lines(f'{{ service: {{ account: HUB, subject: "{subject}" }} }}' for subject in _flow_control(DOWN))}
      {{ stream: {{ account: HUB, subject: "dn.>" }} }}
      {{ stream: {{ account: HUB, subject: "{CLOCK_ANSWERS}" }} }}
      {{ stream: {{ account: HUB, subject: "{BLOB_ANSWERS}" }} }}
    ]
  }}
}}
"""


def fleet_files(devices: Collection[Device]) -> dict[str, str]:
    """Render what hub.conf includes, by name: who the devices are, and what their lanes need."""
    lanes = [*SHARED_LANES, *sorted({lane for device in devices for lane in node_lanes(device)})]
    return {
        DEVICES: render_devices(devices),
        FLEET_EXPORTS: _render_fleet_exports(lanes),
        HUB_IMPORTS: _render_hub_imports(lanes),
    }


def render_devices(devices: Iterable[Device]) -> str:
    """Render the users of account FLEET, each with its own narrow permissions."""
    users = "".join(_device_user(device) for device in devices)
    return f"# The devices' users, written by `backhaul-hub add-device`.\nusers: [\n{users}]\n"


def _render_fleet_exports(lanes: Iterable[Lane]) -> str:
    """Render what the devices' leafs offer account HUB, for all lanes that any of them has.

    Lane by lane, since a wildcard would stand for a whole stream's name: `$JS.FC.*.*.*` from here to
    HUB beside the flow control of DOWN from HUB to here is a cycle, which the server refuses.
    """
    return f"""\
# What leafs offer the hub, written by `backhaul-hub add-device`.
exports: [
{lines((f'{{ service: "{subject}" }}' for subject in _fleet_services(lanes)), indent=2)}
  {{ stream: "dlv.*.*" }}
  {{ stream: "{CLOCK_QUESTIONS}" }}
  {{ stream: "{BLOB_QUESTIONS}" }}
]
"""


def _render_hub_imports(lanes: Iterable[Lane]) -> str:
    """Render what account HUB takes of that."""
    services = (
        f'{{ service: {{ account: FLEET, subject: "{subject}" }} }}'
        for subject in _fleet_services(lanes)
    )
    return f"""\
# What the hub takes from leafs, written by `backhaul-hub add-device`.
imports: [
{lines(services, indent=2)}
  {{ stream: {{ account: FLEET, subject: "dlv.*.*" }} }}
  # What time it is, and artifacts: the subject says who asks, which the permissions of FLEET
  # make true.
  {{ stream: {{ account: FLEET, subject: "{CLOCK_QUESTIONS}" }} }}
  {{ stream: {{ account: FLEET, subject: "{BLOB_QUESTIONS}" }} }}
]
"""


def clock_answer_subject(device: str, token: str) -> str:
    """Return where the hub tells a device the time, and no other device can listen."""
    return f"clkr.{device}.{token}"


def blob_answer_subject(device: str, token: str) -> str:
    """Return where the hub answers a device about artifacts, and no other device can listen."""
    return f"blobr.{device}.{token}"


def _device_user(device: Device) -> str:
    lanes = lanes_of(device)
    streams = [out_stream(lane) for lane in lanes]
    inward = ["", *node_lanes(device)]
    durables = [f"{DOWN}.{down_durable(device.id, device.token, lane)}" for lane in inward]
    publish = [
        *(deliver_subject(device.id, device.token, lane) for lane in lanes),
        # Answers to what the hub asked, through the account boundary.
        "_R_.*.*",
        *(f"hubapi.CONSUMER.RESET.{durable}" for durable in durables),
        # With ">" where "*" would do: a server that reads its configuration again tells a connected
        # leaf anew of what FLEET imports, and 2.15.1 then takes "*.*" and "<durable>.*" for two
        # subjects that have nothing in common: no acknowledgement of flow control would come any more.
        *(f"$JS.FC.{durable}.>" for durable in durables),
        *(f"$JS.FC.*.*.{durable}.>" for durable in durables),
        f"clk.{device.id}",
        f"blob.{device.id}",
    ]
    subscribe = [
        *(f"$JS.{device.id}.API.CONSUMER.RESET.{stream}.{device.token}" for stream in streams),
        *(f"$JS.FC.{stream}.{device.token}.*" for stream in streams),
        *(f"$JS.FC.*.*.{stream}.{device.token}.*" for stream in streams),
        *(down_deliver_subject(device.id, device.token, lane) for lane in inward),
        clock_answer_subject(device.id, device.token),
        blob_answer_subject(device.id, device.token),
        *(f"$JSC.R.*.*.{durable}.*" for durable in durables),
        f"_INBOX_{device.id}.>",
    ]
    return f"""\
  {{ user: {quoted(device.id)}, password: {quoted(device.password_hash)}
    allowed_connection_types: ["LEAFNODE"]
    permissions {{
      publish: [
{lines(map(quoted, publish), indent=8)}
      ]
      subscribe: [
{lines(map(quoted, subscribe), indent=8)}
      ]
    }}
  }}
"""


def _hub_services() -> list[str]:
    return [RESETS, *_flow_control(DOWN)]


def _fleet_services(lanes: Iterable[Lane]) -> list[str]:
    streams = [out_stream(lane) for lane in lanes]
    resets = [f"$JS.*.API.CONSUMER.RESET.{stream}.*" for stream in streams]
    return resets + [subject for stream in streams for subject in _flow_control(stream)]


def _flow_control(stream: str) -> list[str]:
    # The second form carries domain and account in front, as servers from 2.16 on send it.
    return [f"$JS.FC.{stream}.*.*", f"$JS.FC.*.*.{stream}.*.*"]
