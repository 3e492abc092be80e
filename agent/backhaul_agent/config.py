"""The agent's configuration: one TOML file, read once, every value checked.

An unknown key is refused with its name and place, so that a typing error cannot quietly leave a
default in force.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from backhaul_agent.errors import ConfigError
from backhaul_agent.link_config import LinkConfig, budget_problem
from backhaul_codec.kinds import BULK, LIVE
from backhaul_codec.strict.toml import TomlError, read_toml
from backhaul_codec.strict.toml_values import listen_problem, odd_values, url_problem
from backhaul_codec.subjects import SubjectError, require_own_lane

KIB = 1024
MIB = 1024 * 1024
# A bulk frame of 250 points is 0.5 to 2 KB compressed on real recordings; the uplink window is
# counted in messages, so it needs one figure for how large a message is on the wire.
FRAME_BYTES_TYPICAL = 2 * KIB
LIVE_BYTES_TYPICAL = 150

DeviceId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Token = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
StreamName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}$")]
Slot = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
CommandName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}\Z", max_length=128)
]
HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")]
Url = Annotated[str, Meta(pattern=r"^(nats|tls)://[^\s/]+$")]


class DeviceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[device]: the name of this vehicle. ``down_stream`` empty means: no IN stream, nothing comes back."""

    id: DeviceId
    token: Token
    down_stream: StreamName = ""


class NatsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[nats]: the leaf server's client port and how to log in there.

    ``nkey``: file with the agent's seed. Else ``credentials``: file with a JWT too; else a password.
    """

    url: Url = "nats://127.0.0.1:4222"
    user: str = ""
    password: str = ""
    credentials: str = ""
    nkey: str = ""


class LedgerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[ledger]: where acknowledged points live, how much of it, and for how long (docs/budget.md).

    ``age_s_max`` 0: no age limit. ``when_full``: "evict" gives up the oldest and cheapest with a
    receipt, "refuse" keeps everything and refuses what is new. ``reserve_bytes``: held beside the
    ledger for the moment when the disk is full; 0: nothing is.
    """

    path: Annotated[str, Meta(min_length=1)] = "/var/lib/backhaul-agent/ledger.db"
    bytes_max: Annotated[int, Meta(ge=MIB, le=1 << 44)] = 512 * MIB
    age_s_max: Annotated[float, Meta(ge=0, le=1e10)] = 0.0
    when_full: Annotated[str, Meta(pattern="^(evict|refuse)$")] = "evict"
    reserve_bytes: Annotated[int, Meta(ge=0, le=1 << 30)] = 8 * MIB


class FrameConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[frame]: when points are packed into a message: enough points, enough bytes, or old enough."""

    points_max: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    bytes_max: Annotated[int, Meta(ge=KIB, le=512 * KIB)] = 32 * KIB
    age_s_max: Annotated[float, Meta(ge=0.01, le=3600.0)] = 0.9


class IngestConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[ingest]: limits on local programs' publishes.

    ``stage_s_max``: the longest a fire-and-forget point stays in memory only.
    """

    value_bytes_max: Annotated[int, Meta(ge=16, le=900 * KIB)] = 64 * KIB
    pending_bytes_max: Annotated[int, Meta(ge=64 * KIB, le=1 << 30)] = 4 * MIB
    pending_messages_max: Annotated[int, Meta(ge=16, le=1_000_000)] = 8192
    stage_s_max: Annotated[float, Meta(ge=0.001, le=10.0)] = 0.2


class StreamsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[streams]: which nodes have lanes of their own (docs/per-node-streams.md), and the sizes.

    ``per`` "device": all nodes share the lanes. "node": those named in ``nodes`` have their own,
    all others share. ``out_…_bytes_max``: how much of the uplink the leaf server keeps on disk,
    oldest dropped first; ``out_node_bytes_max`` is for each node's lane.
    """

    per: Literal["device", "node"] = "device"
    nodes: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    out_live_bytes_max: Annotated[int, Meta(ge=256 * KIB, le=1 << 44)] = 32 * MIB
    out_bulk_bytes_max: Annotated[int, Meta(ge=256 * KIB, le=1 << 44)] = 256 * MIB
    # The server sets aside what all its streams may need: 64 of these are 1 GiB.
    out_node_bytes_max: Annotated[int, Meta(ge=256 * KIB, le=1 << 44)] = 16 * MIB


class ArtifactsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[artifacts]: files from and to the hub (docs/artifacts.md).

    ``dir``: empty for ``artifacts`` beside the ledger. ``slots``: which are filled; empty for any.
    ``free_bytes_min`` of the disk stay free. ``visit_s_max``: how long a metered link is held for
    artifacts alone.
    """

    dir: str = ""
    slots: Annotated[list[Slot], Meta(max_length=32)] = []
    bytes_max: Annotated[int, Meta(ge=MIB, le=1 << 44)] = 2048 * MIB
    free_bytes_min: Annotated[int, Meta(ge=0, le=1 << 44)] = 64 * MIB
    visit_s_max: Annotated[float, Meta(ge=0, le=1e6)] = 600.0


class ClockConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[clock]: how far the agent believes the machine's own clock, and does without the time.

    ``trust_system``: whether the wall clock is believed until the hub has been asked ("auto": where
    it can be true at all). ``hold_s_max``: how long, link up, messages without a true time wait for
    it. ``interval_s``: between questions to the hub. ``drift_ppm``: of the machine's clock at most.
    ``max_step_s``: what the hub's clock may jump by unquestioned. ``step_confirm_s``: for how long it
    must say the same before a greater step is taken over.
    """

    trust_system: Literal["auto", "yes", "no"] = "auto"
    hold_s_max: Annotated[float, Meta(ge=0, le=1e9)] = 900.0
    interval_s: Annotated[float, Meta(ge=1, le=1e6)] = 900.0
    drift_ppm: Annotated[float, Meta(ge=0, le=10_000)] = 50.0
    max_step_s: Annotated[float, Meta(gt=0, le=1e6)] = 10.0
    step_confirm_s: Annotated[float, Meta(ge=0, le=1e6)] = 600.0


class CommandsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[commands]: the limits of operators' commands (docs/commands.md).

    ``timeout_s``: of one run. ``handler_wait_s``: for a program that answers. ``days_max`` and
    ``rows_max``: how long and how many finished ones are remembered beyond what must be.
    """

    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    handler_wait_s: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    result_bytes_max: Annotated[int, Meta(ge=256, le=256 * KIB)] = 8 * KIB
    days_max: Annotated[float, Meta(ge=0, le=3650)] = 7.0
    rows_max: Annotated[int, Meta(ge=10, le=100_000)] = 1000


class CommandConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[command]]: the program that carries out commands of a name, and how.

    ``run``: program and arguments; empty: the local program that answers on ``cmd.<name>``.
    ``timeout_s`` 0: as [commands] says. ``idempotent``: twice does no more than once.
    """

    name: CommandName
    run: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    timeout_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    idempotent: bool = False


class HealthConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[health]: when something counts as wrong (docs/health.md).

    ``patience`` multiplies the times until conditions are shown; 0: at once. ``refused_shown_s``:
    how long after the last refusal of a publish it is said that there were some.
    """

    interval_s: Annotated[float, Meta(ge=0.1, le=300)] = 5.0
    patience: Annotated[float, Meta(ge=0, le=1000)] = 1.0
    ledger_full_part: Annotated[float, Meta(gt=0, le=1)] = 0.8
    link_down_after_s: Annotated[float, Meta(ge=0, le=1e7)] = 60.0
    refused_shown_s: Annotated[float, Meta(gt=0, le=1e6)] = 600.0


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[metrics]: ``listen``: where Prometheus asks, as in 127.0.0.1:9464; empty: nowhere."""

    listen: Annotated[str, Meta(pattern=r"^$|^[^\s:]+:\d{1,5}$")] = ""


class PageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[page]: the technician's page (docs/technician.md).

    ``listen``: where browsers find it, as in 127.0.0.1:8480; empty: nowhere. ``names``: host names under which it is
    reached, beside localhost and addresses. ``session_h``: how long the code need not be typed again. ``units``: of
    series, as in ``"battery.soc" = "%"``.
    """

    listen: Annotated[str, Meta(pattern=r"^$|^[^\s:]+:\d{1,5}$")] = ""
    names: Annotated[tuple[HostName, ...], Meta(max_length=16)] = ()
    session_h: Annotated[float, Meta(gt=0, le=31 * 24)] = 12.0
    units: Annotated[dict[str, Annotated[str, Meta(max_length=16)]], Meta(max_length=1000)] = {}


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[log]: the lowest level that is written."""

    level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$")] = "info"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. Only ``[device]`` must be there; see each section for the defaults."""

    device: DeviceConfig
    nats: NatsConfig = NatsConfig()
    ledger: LedgerConfig = LedgerConfig()
    frame: FrameConfig = FrameConfig()
    ingest: IngestConfig = IngestConfig()
    link: LinkConfig = LinkConfig()
    streams: StreamsConfig = StreamsConfig()
    clock: ClockConfig = ClockConfig()
    artifacts: ArtifactsConfig = ArtifactsConfig()
    commands: CommandsConfig = CommandsConfig()
    command: tuple[CommandConfig, ...] = ()
    health: HealthConfig = HealthConfig()
    metrics: MetricsConfig = MetricsConfig()
    page: PageConfig = PageConfig()
    log: LogConfig = LogConfig()

    def message_bytes_typical(self, lane: str) -> int:
        """Return a lane's weight of a message on the wire, before any was seen."""
        return LIVE_BYTES_TYPICAL if lane == LIVE else FRAME_BYTES_TYPICAL

    def lane_bytes_max(self, lane: str) -> int:
        """Return the size limit of a lane's OUT stream."""
        streams = self.streams
        shared = {LIVE: streams.out_live_bytes_max, BULK: streams.out_bulk_bytes_max}
        return shared.get(lane, streams.out_node_bytes_max)


def parse(text: str, path: Path) -> Config:
    """Check the text of a configuration file; ``path`` is for messages and relative paths.

    A relative ledger, artifacts, link, key or credentials path counts from the file's own directory.

    Raises:
        ConfigError: with the file, the key, and what is allowed there.
    """
    try:
        raw = read_toml(text, finite=False)
    except TomlError as error:
        raise ConfigError(path, "", f"not TOML: {error}") from error
    for key, problem in odd_values(raw):
        raise ConfigError(path, key, problem)
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        key, problem = _explain(str(error))
        raise ConfigError(path, key, problem) from None
    _check_together(config, path)
    ledger_path = path.parent / config.ledger.path
    artifacts = (
        path.parent / config.artifacts.dir
        if config.artifacts.dir
        else ledger_path.parent / "artifacts"
    )
    return msgspec.structs.replace(
        config,
        ledger=msgspec.structs.replace(config.ledger, path=str(ledger_path)),
        artifacts=msgspec.structs.replace(config.artifacts, dir=str(artifacts)),
        link=msgspec.structs.replace(
            config.link,
            file=str(path.parent / config.link.file),
            pid_file=_beside(path, config.link.pid_file),
            system_nkey=_beside(path, config.link.system_nkey),
            redial_nkey=_beside(path, config.link.redial_nkey),
            roaming=msgspec.structs.replace(
                config.link.roaming, file=_beside(path, config.link.roaming.file)
            ),
        ),
        nats=msgspec.structs.replace(
            config.nats,
            credentials=_beside(path, config.nats.credentials),
            nkey=_beside(path, config.nats.nkey),
        ),
    )


def _beside(path: Path, name: str) -> str:
    """Return a relative name as it counts from the directory of ``path``; empty stays empty."""
    return name and str(path.parent / name)


def _check_together(config: Config, path: Path) -> None:
    nats = config.nats
    if problem := url_problem(nats.url):
        raise ConfigError(path, "nats.url", problem)
    if problem := listen_problem(config.metrics.listen, [nats.url]):
        raise ConfigError(path, "metrics.listen", problem)
    others = [nats.url, *([f"http://{config.metrics.listen}"] if config.metrics.listen else [])]
    if problem := listen_problem(config.page.listen, others):
        raise ConfigError(path, "page.listen", problem)
    for key in ("out_bulk_bytes_max", "out_node_bytes_max"):
        if getattr(config.streams, key) < 8 * config.frame.bytes_max:
            raise ConfigError(path, f"streams.{key}", "at least 8 times frame.bytes_max")
    _check_nodes(config.streams, path)
    if bool(nats.user) != bool(nats.password):
        missing = "nats.password" if nats.user else "nats.user"
        raise ConfigError(path, missing, "user and password go together")
    if config.link.mode != "always" and not config.link.switched:
        problem = f"mode {config.link.mode!r} needs it (or link.pid_file): docs/link.md"
        raise ConfigError(path, "link.system_nkey", problem)
    if found := budget_problem(config.link, config.frame.age_s_max):
        raise ConfigError(path, *found)
    names = [command.name for command in config.command]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(path, "command", f"name {twice!r} stands there twice")
    if sum(map(bool, (nats.user, nats.credentials, nats.nkey))) > 1:
        key = "nats.nkey" if nats.nkey else "nats.credentials"
        raise ConfigError(path, key, "give either nkey, or credentials, or user and password")


def _check_nodes(streams: StreamsConfig, path: Path) -> None:
    """Refuse names that cannot have lanes, and a list that does not go with ``per``."""
    if bool(streams.nodes) != (streams.per == "node"):
        problem = 'per = "node" and a list of nodes go together: backhaul-hub add-device --per-node'
        raise ConfigError(path, "streams.nodes", problem)
    if len(set(streams.nodes)) < len(streams.nodes):
        raise ConfigError(path, "streams.nodes", "it names a node twice")
    for node in streams.nodes:
        try:
            require_own_lane(node)
        except SubjectError as error:
            raise ConfigError(path, "streams.nodes", str(error)) from None


def _explain(message: str) -> tuple[str, str]:
    """Split msgspec's message into key path and problem, and name an unknown or missing key."""
    problem, _, place = message.partition(" - at `$")
    key = place.rstrip("`").lstrip(".")
    if found := re.search(r"(unknown field|required field) `(\w+)`", problem):
        key = f"{key}.{found[2]}" if key else found[2]
        problem = "unknown key" if found[1] == "unknown field" else "missing, and has no default"
    problem = problem.replace("matching regex", "that matches")
    return key, problem
