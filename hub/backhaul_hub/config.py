"""hub.toml: the control plane's settings, checked once, then frozen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from backhaul_codec.strict.toml import TomlError, read_toml
from backhaul_codec.strict.toml_values import listen_problem, odd_values, url_problem
from backhaul_hub.alert_settings import AlertsSection, alert_problems, odd_channel
from backhaul_hub.errors import ConfigError
from backhaul_hub.page_settings import PageSection, page_problems
from backhaul_hub.servers import urls
from backhaul_runtime.jetstream import API

Positive = Annotated[float, Meta(gt=0)]
Bytes = Annotated[int, Meta(ge=1 << 20)]

ENV_PATTERN = "^[A-Za-z0-9_-]{1,32}$"
TWIN_BYTES_MAX = {
    "state_bytes_max": 10 << 30,
    "events_bytes_max": 100 << 30,
    "commands_bytes_max": 256 << 20,
    "shadow_bytes_max": 1 << 30,
    "blobs_bytes_max": 10 << 30,
}
"""What the twin's streams hold where the disk has room; `init` writes less where it has not."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of hub.toml."""


class Login(_Section, frozen=True):
    """A user of the hub's server."""

    creds: str
    """Its credentials file; in hub.toml relative to the hub directory."""
    ca: str = ""
    """The authorities by which the server is known, where it speaks TLS: a file likewise; empty:
    that of [nats]."""
    api: str = API
    """Prefix of JetStream's API as this user sees it."""


class Nats(_Section, frozen=True):
    """The hub's own nats-server."""

    url: str
    """Client port, as in nats://127.0.0.1:4222; of a cluster all of them, separated by commas."""
    control: Login
    """Account HUB, everything: the control plane."""
    spark: Login
    """Account JOBS, reading UP only: the jobs."""
    system: Login
    """The system account: connect events, reloads."""
    twin: Login = Login(creds="creds/twin.creds", api="jobsapi")
    """Account TWIN, reading UP and DOWN, publishing alerts and commands: the twin job."""
    history: Login = Login(creds="creds/history.creds", api="jobsapi")
    """Account HISTORY, reading UP and answering questions about the past: `backhaul-spark serve-history`."""
    ca: str = ""
    """The authorities by which the servers are known: a PEM file, relative to the hub directory;
    empty: those of the system."""


class FleetSection(_Section, frozen=True):
    """The settings for devices, and how they are spread."""

    leaf_url: str
    """Where leafs connect, as seen from a vehicle: nats-leaf://hub.example.org:7422. Of a cluster
    all of them, separated by commas."""
    shards: Annotated[int, Meta(ge=1, le=64)] = 1
    """UP streams. About 500 devices each."""


class Up(_Section, frozen=True):
    """The UP streams: Spark reads them."""

    bytes_max: Bytes = 4 << 30
    age_days_max: Annotated[int, Meta(ge=1, le=3650)] = 30


class Down(_Section, frozen=True):
    """The DOWN stream."""

    bytes_max: Bytes = 256 << 20


class QuarantineSection(_Section, frozen=True):
    """Where unreadable messages are set aside."""

    bytes_max: Bytes = 256 << 20


class WatermarkSection(_Section, frozen=True):
    """How often a device is told how far the hub holds everything."""

    interval_s: Positive = 5.0
    """At most one message a lane in this time. Each costs the link about 140 bytes."""


class LinkSection(_Section, frozen=True):
    """When a source counts as stalled."""

    stalled_after_s: Positive = 15.0
    """A connected device's source without heartbeat for so long is set up again."""
    stuck_after_s: Positive = 10.0
    """So is one that lags, by its own account, and has taken nothing for so long."""


class ClockRule(_Section, frozen=True):
    """The hub's treatment of the vehicles' clocks."""

    max_future_skew_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """A config point stamped further ahead of the hub's now is refused, and stamped again."""
    max_step_s: Annotated[float, Meta(gt=0, le=1e9)] = 10.0
    """What this machine's clock may jump by unquestioned."""
    step_confirm_s: Annotated[float, Meta(ge=0, le=1e6)] = 600.0
    """For how long a greater step must last before the hub goes by it."""


class ConflictsSection(_Section, frozen=True):
    """The conflict ledger."""

    rows_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Beyond it the oldest that is settled is forgotten, then the oldest. They are in memory."""


class CommandsSection(_Section, frozen=True):
    """Operators' commands (docs/commands.md)."""

    deadline_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 300.0
    """Of a command that brings none: no vehicle starts it later."""
    deadline_s_max: Annotated[float, Meta(gt=0, le=365 * 86_400)] = 30 * 86_400.0
    result_wait_s: Annotated[float, Meta(ge=0, le=365 * 86_400)] = 7 * 86_400.0
    """A started command without a result for so long after its deadline counts as interrupted."""
    rows_max: Annotated[int, Meta(ge=10, le=1_000_000)] = 10_000
    """So many may be unfinished, and so many of the newest are remembered."""
    days_max: Annotated[float, Meta(gt=0, le=3650)] = 30.0
    """Finished ones are forgotten after that."""


class Tree(_Section, frozen=True):
    """The messages to listeners along the tree, on `up.<ancestor>.<node>.<type>.<key>`."""

    rebroadcast: Literal["all", "live", "off"] = "all"
    """`live`: heads that change. `all`: the newest telemetry of each frame too, which doubles what
    a frame costs the control plane, listeners or not (docs/benchmarks.md)."""


class StreamsSection(_Section, frozen=True):
    """The settings common to all streams."""

    replicas: Literal[1, 3, 5] = 1
    """Servers of a cluster that each hold every stream."""


class Twin(_Section, frozen=True):
    """The hub's picture of each device."""

    env: Annotated[str, Meta(pattern=ENV_PATTERN)] = "prod"
    """Stands in all subjects: fleet.<env>.veh.<device>. Fixed once the hub's streams are made."""
    state_bytes_max: Bytes = TWIN_BYTES_MAX["state_bytes_max"]
    state_age_s_max: Annotated[int, Meta(ge=60, le=30 * 86_400)] = 3600
    events_bytes_max: Bytes = TWIN_BYTES_MAX["events_bytes_max"]
    events_age_days_max: Annotated[int, Meta(ge=1, le=3650)] = 90
    commands_bytes_max: Bytes = TWIN_BYTES_MAX["commands_bytes_max"]
    shadow_bytes_max: Bytes = TWIN_BYTES_MAX["shadow_bytes_max"]
    blobs_bytes_max: Bytes = TWIN_BYTES_MAX["blobs_bytes_max"]
    newest: bool = True
    """Keep the newest reading of every series, in memory. Without it `[tree] rebroadcast = "all"`
    and `state` have nothing to tell."""
    state: bool = True
    """Publish it to TWIN_STATE."""
    shadow_interval_s: Annotated[float, Meta(ge=0.1, le=3600)] = 1.0
    """A device's documents in TWIN_SHADOW are written anew at most so often."""


class ArtifactsSection(_Section, frozen=True):
    """The limits of vehicles' uploads (docs/artifacts.md)."""

    upload_bytes_max: Annotated[int, Meta(ge=0)] = 256 << 20
    """Of one device: all its uploads together. 0: none are taken."""
    uploads_max: Annotated[int, Meta(ge=0, le=100_000)] = 64
    """Of one device: so many files."""


class Health(_Section, frozen=True):
    """When something counts as wrong (docs/health.md)."""

    interval_s: Annotated[float, Meta(ge=0.1, le=300)] = 5.0
    """Between two looks."""
    patience: Annotated[float, Meta(ge=0, le=1000)] = 1.0
    """Multiplies the times until conditions are shown; 0: at once."""
    consumer_lag_max: Annotated[int, Meta(ge=0)] = 10_000
    ack_pending_max: Annotated[int, Meta(ge=0)] = 1_000
    reader_lag_max: Annotated[int, Meta(ge=0)] = 10_000
    """Messages of an UP stream that the control plane has not read."""
    replica_lag_max: Annotated[int, Meta(ge=0)] = 10_000
    stream_full_part: Annotated[float, Meta(gt=0, le=1)] = 0.8
    link_down_after_s: Annotated[float, Meta(ge=0)] = 300.0
    """More than vehicles with metered links are away by their plan."""
    agent_down_after_s: Annotated[float, Meta(ge=0)] = 120.0
    """For so long a link may be up without an agent, as while that is started anew."""
    certificate_days_min: Annotated[float, Meta(ge=0, le=3650)] = 30.0
    quarantine_shown_s: Positive = 3600.0
    """For so long after the last unreadable message it is said that there were some."""
    history: bool = False
    """Whether a server of history is expected to answer."""
    job_still_s: Positive = 1800.0
    """A job that is behind and has not moved for so long stands still."""


class Flood(_Section, frozen=True):
    """The limits of one vehicle's traffic before it is kept out for a while (docs/flood.md)."""

    messages_s_max: Positive = 20_000.0
    """On and on, of all kinds, as the server counts them."""
    messages_burst: Positive = 100_000.0
    """At once, beyond that; likewise below."""
    bytes_s_max: Positive = float(4 << 20)
    bytes_burst: Positive = float(2 << 30)
    """More than a vehicle's ledger and streams hold: a backlog of weeks is no flood."""
    questions_s_max: Positive = 500.0
    """To the control plane: the time, artifacts, resets."""
    questions_burst: Positive = 5_000.0
    unreadable_s_max: Positive = 1.0
    unreadable_burst: Positive = 1_000.0
    points_s_max: Positive = 2_000_000.0
    """In messages that were stored. A backlog drains at that."""
    points_burst: Positive = 500_000_000.0
    expanded_s_max: Positive = float(4 << 20)
    """Bytes that frames come to as rows, beyond 256 times their size, and 64 KiB: an agent's never do."""
    expanded_burst: Positive = float(256 << 20)
    suspend_s: Positive = 60.0
    """How long the first time; twice as long each time within an hour after the last."""
    suspend_s_max: Positive = 3600.0


class StandbySection(_Section, frozen=True):
    """Several machines with a control plane each, of which one leads (docs/cluster.md)."""

    machine: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{0,32}$")] = ""
    """This machine's name among them; empty: this hub has one control plane, and no journal."""
    others: list[Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,32}$")]] = []
    """The names of the other machines: the leader names those that it does not hear."""
    patience_s: Annotated[float, Meta(ge=1, le=3600)] = 3.0
    """A machine that leads and writes nothing for so long is taken for gone, though the servers answer."""
    journal_bytes_max: Bytes = 256 << 20
    """The journal holds so much; a machine that is further behind takes a whole copy of hub.db."""


class Metrics(_Section, frozen=True):
    """Where Prometheus asks (docs/metrics.md)."""

    listen: Annotated[str, Meta(pattern=r"^$|^[^\s:]+:\d{1,5}$")] = ""
    """As in 127.0.0.1:9464; empty: nowhere. Whoever reaches it may read it."""


class HubConfig(_Section, frozen=True):
    """The whole of hub.toml."""

    nats: Nats
    fleet: FleetSection
    up: Up = Up()
    down: Down = Down()
    quarantine: QuarantineSection = QuarantineSection()
    watermark: WatermarkSection = WatermarkSection()
    link: LinkSection = LinkSection()
    clock: ClockRule = ClockRule()
    conflicts: ConflictsSection = ConflictsSection()
    commands: CommandsSection = CommandsSection()
    tree: Tree = Tree()
    streams: StreamsSection = StreamsSection()
    twin: Twin = Twin()
    artifacts: ArtifactsSection = ArtifactsSection()
    health: Health = Health()
    alerts: AlertsSection = AlertsSection()
    flood: Flood = Flood()
    metrics: Metrics = Metrics()
    page: PageSection = PageSection()
    standby: StandbySection = StandbySection()


def load(directory: Path) -> HubConfig:
    """Read `hub.toml` in a hub directory.

    Raises:
        ConfigError: it is missing, is no TOML, holds an unknown key or a value out of range.
    """
    path = directory / "hub.toml"
    try:
        raw = read_toml(path.read_text(), finite=False)
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist", hint=f"make it with: backhaul-hub init {directory}"
        ) from None
    except (OSError, UnicodeDecodeError, TomlError) as error:
        raise ConfigError(f"{path}: {error}") from error
    for key, problem in odd_values(raw):
        raise ConfigError(f"{path}: {key}: {problem}")
    try:
        config = msgspec.convert(raw, HubConfig)
    except msgspec.ValidationError as error:
        hint = ""
        if "password" in raw.get("nats", {}).get("control", {}):
            hint = "made by an older backhaul: make a new hub with init, then migrate"
        problem = odd_channel(raw.get("alerts")) or str(error)
        raise ConfigError(f"{path}: {problem}", hint=hint) from error
    nats = config.nats
    for key, problem in _problems(config):
        raise ConfigError(f"{path}: {key}: {problem}")
    users = ("control", "spark", "twin", "history", "system")
    here = {name: _in(directory, getattr(nats, name), nats.ca) for name in users}
    return msgspec.structs.replace(config, nats=msgspec.structs.replace(nats, **here))


def _problems(config: HubConfig) -> Iterator[tuple[str, str]]:
    """Yield the key of each value that no type refuses and nothing can be done with, and why."""
    nats, fleet = config.nats, config.fleet
    for key, text in (("nats.url", nats.url), ("fleet.leaf_url", fleet.leaf_url)):
        found = urls(text)
        if not found:
            yield key, "an address is needed, as in tls://hub.example.org:7422"
        for url in found:
            if problem := url_problem(url):
                yield key, problem
        if twice := next((url for url in found if found.count(url) > 1), ""):
            yield key, f"{twice} stands there twice"
    both = {urlsplit(url).netloc for url in urls(nats.url)}
    if shared := next((url for url in urls(fleet.leaf_url) if urlsplit(url).netloc in both), ""):
        yield (
            "fleet.leaf_url",
            f"{shared} is the port for clients, of nats.url; leafs have their own",
        )
    if problem := listen_problem(config.metrics.listen, [*urls(nats.url), *urls(fleet.leaf_url)]):
        yield "metrics.listen", problem
    for user in ("control", "spark", "twin", "history", "system"):
        if not getattr(nats, user).creds:
            yield f"nats.{user}.creds", "a file is needed"
    if config.commands.deadline_s > config.commands.deadline_s_max:
        yield "commands.deadline_s", f"at most deadline_s_max, {config.commands.deadline_s_max:g}"
    if config.standby.machine in config.standby.others:
        yield "standby.others", f"{config.standby.machine} is this machine's own name"
    yield from alert_problems(config.alerts)
    yield from page_problems(config.page, [*urls(nats.url), *urls(fleet.leaf_url)])
    if config.flood.suspend_s > config.flood.suspend_s_max:
        yield "flood.suspend_s", f"at most suspend_s_max, {config.flood.suspend_s_max:g}"


def _in(directory: Path, login: Login, ca: str) -> Login:
    ca = login.ca or ca
    return msgspec.structs.replace(
        login, creds=str(directory / login.creds), ca=ca and str(directory / ca)
    )
