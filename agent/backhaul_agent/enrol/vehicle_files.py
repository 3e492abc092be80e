"""The files of a vehicle, as `backhaul-agent enrol` makes them of an identity document.

`files_of` decides, from the document, what was asked for and what is there; `Directory` reads and
writes. The same again changes nothing; broken off anywhere, the next run does the rest.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from backhaul_agent.apps.accounts_text import render_apps
from backhaul_agent.apps.rights import Apps, read_apps, write_apps
from backhaul_agent.config import Config, parse
from backhaul_agent.enrol.agent_toml import (
    AGENT_KEY,
    SYSTEM_KEY,
    render_agent_toml,
    wanted_by,
    with_keys,
)
from backhaul_agent.errors import VehicleFilesError
from backhaul_agent.files import write_whole
from backhaul_agent.leaf.config_text import (
    APPS_FILE,
    LINK_FILE,
    NO_LINK,
    LeafServer,
    render_leaf,
    store_dir_of,
)
from backhaul_codec.protocol.credentials import (
    Credentials,
    CredentialsError,
    parse_credentials,
    parse_seed,
)
from backhaul_codec.protocol.identity import Identity, LinkMode

AGENT_TOML = "agent.toml"
LEAF_CONF = "leaf.conf"
LEAF_CONF_BEFORE = "leaf.conf.before"
DEVICE_CREDS = "device.creds"
CA = "ca.pem"
# Of an enrolment by token: which, and the key until it is in device.creds.
ATTEMPT = "enrolment.json"
APPS_JSON = "apps.json"
_READ = (
    *(AGENT_TOML, LEAF_CONF, DEVICE_CREDS, CA, LINK_FILE, ATTEMPT),
    *(AGENT_KEY, SYSTEM_KEY, APPS_JSON, APPS_FILE),
)

DEFAULT_PORT = 4222
DEFAULT_STATE_DIR = Path("/var/lib")


@dataclass(frozen=True, slots=True)
class Wishes:
    """The command line's wishes for this vehicle; None: as it is, at first the default."""

    client_port: int | None = None
    """Where local programs reach the leaf server."""
    state_dir: Path | None = None
    """Where backhaul-agent/ (ledger) and backhaul-leaf/ (streams) are kept."""
    link_mode: LinkMode | None = None
    """When the link is up; at first as the document says."""
    open: bool = False
    """Whether programs without a key are let in; once so, until `backhaul-agent app close`."""


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is to be, and as it was (None: not there)."""

    name: str
    text: str
    mode: int
    before: str | None

    @property
    def new(self) -> bool:
        """Whether there was none."""
        return self.before is None

    @property
    def changed(self) -> bool:
        """Whether it is to be written."""
        return self.text != self.before


def files_of(
    identity: Identity,
    wishes: Wishes,
    directory: Path,
    found: Mapping[str, str],
    make_key: Callable[[], Credentials],
) -> list[File]:
    """Return every file of a vehicle, in the order in which they are to be written.

    ``found``: what is in the directory, by name.

    Raises:
        VehicleFilesError: the directory is another vehicle's, or what is there cannot be changed.
        ConfigError: agent.toml, as it is there, is not usable.
    """
    if wishes.link_mode is not None:
        identity = msgspec.structs.replace(
            identity, link=msgspec.structs.replace(identity.link, mode=wishes.link_mode)
        )
    agent_toml = _agent_toml(identity, wishes, directory, found.get(AGENT_TOML))
    config = parse(agent_toml, directory / AGENT_TOML)
    leaf_conf = render_leaf(identity, _leaf_server(identity, wishes, config, directory, found))
    keys = {name: found.get(name) or make_key().text() for name in (AGENT_KEY, SYSTEM_KEY)}
    apps = read_apps(found[APPS_JSON]) if APPS_JSON in found else Apps()
    apps = msgspec.structs.replace(apps, open=apps.open or wishes.open)
    texts = [(name, 0o600, seed) for name, seed in keys.items()]
    texts += [(DEVICE_CREDS, 0o600, _creds(identity, found.get(DEVICE_CREDS)))]
    texts += [(CA, 0o644, identity.ca), *_apps_texts(apps, keys)]
    if config.link.switched:
        texts += [(LINK_FILE, 0o644, found.get(LINK_FILE, NO_LINK))]
    if found.get(LEAF_CONF, leaf_conf) != leaf_conf:
        texts += [(LEAF_CONF_BEFORE, 0o640, found[LEAF_CONF])]
    texts += [(LEAF_CONF, 0o640, leaf_conf), (AGENT_TOML, 0o600, agent_toml)]
    return [File(name, text, mode, found.get(name)) for name, mode, text in texts if text]


def apps_files(apps: Apps, found: Mapping[str, str]) -> list[File]:
    """Return the files that say which programs there are.

    Raises:
        VehicleFilesError: this vehicle has not enrolled, or a key is damaged.
    """
    texts = _apps_texts(apps, found)
    return [File(name, text, mode, found.get(name)) for name, mode, text in texts]


def make_state_directories(files: Iterable[File], directory: Path) -> None:
    """Make those of ledger and leaf server, where systemd has not, for their user alone.

    The server makes its own, but not before it opens its log there.

    Raises:
        VehicleFilesError: it cannot be made.
    """
    texts = {file.name: file.text for file in files}
    ledger = Path(parse(texts[AGENT_TOML], directory / AGENT_TOML).ledger.path)
    for path in (ledger.parent, directory / store_dir_of(texts[LEAF_CONF])):
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise VehicleFilesError(
                f"{path} cannot be made: {error.strerror}",
                hint="run it as root, or choose another --state-dir",
            ) from error


def _apps_texts(apps: Apps, keys: Mapping[str, str]) -> list[tuple[str, int, str]]:
    text = render_apps(
        apps, agent_key=_public(keys, AGENT_KEY), system_key=_public(keys, SYSTEM_KEY)
    )
    return [(APPS_JSON, 0o640, write_apps(apps)), (APPS_FILE, 0o640, text)]


def _public(keys: Mapping[str, str], name: str) -> str:
    try:
        return parse_seed(keys.get(name, "")).public_key
    except CredentialsError as error:
        raise VehicleFilesError(
            f"{name}: {error}",
            hint="move it away: `backhaul-agent enrol` makes one where there is none",
        ) from error


def _agent_toml(
    identity: Identity,
    wishes: Wishes,
    directory: Path,
    before: str | None,
) -> str:
    path = directory / AGENT_TOML
    if before is None:
        return render_agent_toml(
            identity,
            client_port=wishes.client_port or DEFAULT_PORT,
            state_dir=wishes.state_dir or DEFAULT_STATE_DIR,
            link=identity.link,
        )
    config = parse(before, path)
    if config.device.id != identity.device:
        raise VehicleFilesError(
            f"{directory} holds the files of {config.device.id}, the document is of {identity.device}",
            hint="give --dir another directory, or move these files away",
        )
    _require_same_state(wishes, config, path)
    wanted = wanted_by(identity)
    if wishes.client_port is not None:
        wanted["nats"]["url"] = f"nats://127.0.0.1:{wishes.client_port}"
    if wishes.link_mode is not None:
        wanted["link"] = {"mode": wishes.link_mode}
        if wishes.link_mode != "always" and not config.link.switched:
            wanted["link"]["system_nkey"] = SYSTEM_KEY
    after = with_keys(before, wanted)
    if after is None:
        raise VehicleFilesError(
            f"{path} is written in a way that enrol cannot change",
            hint=f"write there by hand, then again: {wanted}",
        )
    return after


def _require_same_state(wishes: Wishes, config: Config, path: Path) -> None:
    """Refuse another place for the ledger: the one that is there would be forgotten."""
    ledger = Path(config.ledger.path)
    if wishes.state_dir not in (None, ledger.parent.parent):
        raise VehicleFilesError(
            f"the ledger of this vehicle is {ledger}",
            hint=f"stop agent and leaf server, move both directories, and change ledger.path in {path}"
            f" and store_dir in {path.with_name(LEAF_CONF)}",
        )


def _leaf_server(
    identity: Identity, wishes: Wishes, config: Config, directory: Path, found: Mapping[str, str]
) -> LeafServer:
    store_dir = store_dir_of(found.get(LEAF_CONF, ""))
    state_dir = wishes.state_dir or Path(config.ledger.path).parent.parent
    return LeafServer(
        client_port=urlsplit(config.nats.url).port or DEFAULT_PORT,
        store_dir=store_dir or str(state_dir / "backhaul-leaf"),
        ca_file=directory / CA if identity.ca else None,
        creds_file=directory / DEVICE_CREDS if identity.jwt else None,
        link_file=config.link.switched,
        pid_file=config.link.pid_file,
    )


def _creds(identity: Identity, before: str | None) -> str:
    """Return the text of device.creds; the key is the document's or the one that is there."""
    if not identity.jwt:
        return ""
    try:
        login = parse_seed(identity.seed) if identity.seed else parse_credentials(before or "")
        return parse_credentials(replace(login, jwt=identity.jwt).text()).text()
    except CredentialsError as error:
        raise VehicleFilesError(
            f"no login at the hub can be made of the document: {error}",
            hint="a document without a seed is for the vehicle that holds the key already;"
            " have the hub's operator enrol this one again",
        ) from error


class Directory:
    """A vehicle's directory, /etc/backhaul."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the directory, which is made where there is none: two commands would undo each other.

        Raises:
            VehicleFilesError: another holds it, or it cannot be made.
        """
        self.write([])
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise VehicleFilesError(
                f"{self.path} cannot be read: {error.strerror}", hint="run it as root"
            ) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise VehicleFilesError(
                    f"another backhaul-agent changes {self.path}", hint="wait for its end"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def read(self, *more: str) -> dict[str, str]:
        """Return the files that are there, these among them, by name. Raises: VehicleFilesError."""
        found = {}
        for name in (*_READ, *more):
            path = self.path / name
            try:
                found[name] = path.read_text(encoding="utf-8")
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                raise VehicleFilesError(
                    f"{path} cannot be read: {error}", hint="run it as root, or move the file away"
                ) from error
        return found

    def write(self, files: Iterable[File]) -> None:
        """Write the new and the changed files, each whole or not at all. Raises: VehicleFilesError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o755)
            for file in files:
                if file.changed:
                    path = self.path / file.name
                    path.parent.mkdir(exist_ok=True, mode=0o755)
                    write_whole(path, file.text.encode(), mode=file.mode)
        except OSError as error:
            raise VehicleFilesError(
                f"{error.filename or self.path} cannot be written: {error.strerror}",
                hint="run it as root, or choose another --dir",
            ) from error
