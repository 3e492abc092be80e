"""A hub directory for three servers, made of that of one: `backhaul-hub grow`, before anything moves.

The new directory has the old one's keys, revocations and settings, so that the same vehicles, people and jobs
log in there; the streams come later, by a migration.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from backhaul_codec.programs.nats_conf import quoted
from backhaul_hub.access.account_files import resolver_directories
from backhaul_hub.backup.files import place_file
from backhaul_hub.config import HubConfig, load
from backhaul_hub.errors import ConfigError
from backhaul_hub.migrate.migrate import HANDOVER
from backhaul_hub.private_files import private_directory
from backhaul_hub.servers import ServerPlace, server_directories, urls
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from backhaul_hub.tls.files import CA_KEY, TLS, has_tls
from backhaul_hub.tls.setup import TlsChoice
from backhaul_runtime.clock import Clock

_TOML = "hub.toml"
# Made anew for the new servers, brought by the migration, or of no use there.
_OWN = frozenset(
    {
        *("hub.toml", "hub.conf", "websocket.conf", "lock", "import.lock", "migration.json"),
        *("accounts", "creds", "devices", "jetstream", "keys", "servers", "tls", "uploads"),
        HANDOVER,
    }
)
_OWN_FILES = re.compile(r"hub\.db.*|.*\.log|.*\.pid|.*\.new")
_SECTION = re.compile(r"\s*\[(?P<name>[^\]]+)\]")


def waiting(places: Iterable[ServerPlace], config: HubConfig) -> list[ServerPlace]:
    """Return the servers that take the old one's addresses, so that they start when it has ended. Pure."""
    taken = _addresses(config)
    return [
        place
        for place in places
        if taken & {(place.host, port) for port in (place.client_port, place.leaf_port)}
    ]


def without(text: str, config: HubConfig) -> str:
    """Return those of a new hub's addresses that are none of the old one's: separated by commas. Pure."""
    taken = _addresses(config)
    parts = ((url, urlsplit(url)) for url in urls(text))
    return ",".join(url for url, part in parts if (part.hostname, part.port) not in taken)


def _addresses(config: HubConfig) -> set[tuple[str, int]]:
    parts = map(urlsplit, [*urls(config.nats.url), *urls(config.fleet.leaf_url)])
    return {(part.hostname, part.port) for part in parts if part.hostname and part.port}


def grown_toml(text: str, changes: Mapping[tuple[str, str], str | int]) -> str:
    """Return hub.toml with other values for these (section, key), comments and all else as they were. Pure.

    A key that is not there comes to the end of its section, and a section to the end of the file.
    """
    left = {place: _line(place[1], value) for place, value in changes.items()}
    section, lines = "", []
    for line in text.splitlines():
        if found := _SECTION.match(line):
            lines += _of_section(left, section)
            section = found["name"].strip()
        key = line.partition("=")[0].strip()
        lines.append(left.pop((section, key), line) if "=" in line else line)
    lines += _of_section(left, section)
    for name in dict.fromkeys(name for name, _ in left):
        lines += ["", f"[{name}]", *_of_section(left, name)]
    return "\n".join(lines) + "\n"


def _line(key: str, value: str | int) -> str:
    return f"{key} = {value if isinstance(value, int) else quoted(value)}"


def _of_section(left: dict[tuple[str, str], str], section: str) -> list[str]:
    """Take the changes of a section that have no line yet."""
    return [left.pop(place) for place in list(left) if place[0] == section]


def make_grown(
    old: Path,
    new: Path,
    places: Sequence[ServerPlace],
    *,
    host: str,
    leaf_url: str,
    websocket_port: int,
    clock: Clock,
) -> list[ServerPlace]:
    """Make the directory of a hub of several servers that takes the place of the one in `old`.

    Args:
        old: the hub directory of one server.
        new: where the other is made; nothing of a hub may be there.
        places: its servers.
        host: where leaf ports listen; empty: at each server's own address.
        leaf_url: where vehicles reach them, separated by commas; empty: at their own addresses.
        websocket_port: of the first server on each host, where the old hub has a page.
        clock: says when what is signed was signed.

    Returns: the servers that have the old one's addresses, and start when that has ended.

    Raises:
        ConfigError: the old hub has several servers already, has a certificate of the operator's own, or
            so many servers would have to wait for its end that the others are no majority.
    """
    config = load(old)
    if server_directories(old) != [old]:
        raise ConfigError(f"{old} is a hub of several servers already")
    if has_tls(old) and not (old / TLS / CA_KEY).exists():
        raise ConfigError(
            f"the authority of {old} is not the hub's own, so that no certificates can be made here",
            hint="backhaul-hub init NEW --keys-of OLD --server ... --tls-cert ..., then migrate",
        )
    late = waiting(places, config)
    if 2 * (len(places) - len(late)) <= len(places):
        raise ConfigError(
            f"{', '.join(place.name for place in late)} have addresses of the old server: until that has"
            " ended the others are no majority",
            hint="give all but one addresses of their own",
        )
    tls = TlsChoice() if has_tls(old) else None
    scheme = "nats-leaf" if tls is None else "tls"
    own = ",".join(f"{scheme}://{place.host}:{place.leaf_port}" for place in places)
    page_port = int(config.page.listen.rpartition(":")[2] or 0)
    layout = HubLayout(
        client_host="127.0.0.1",
        host=host,
        client_port=places[0].client_port,
        leaf_port=places[0].leaf_port,
        leaf_url=leaf_url or own,
        shards=config.fleet.shards,
        watermark_interval_s=config.watermark.interval_s,
        env=config.twin.env,
        servers=tuple(places),
        tls=tls,
        keys_of=old,
        page_port=page_port,
        websocket_port=websocket_port if page_port else 0,
    )
    changes: dict[tuple[str, str], str | int] = {
        ("nats", "url"): layout.url,
        ("fleet", "leaf_url"): layout.leaf_url,
        ("streams", "replicas"): len(places),
    }
    if page_port:
        changes["page", "websocket"] = layout.page.websocket
    text = grown_toml((old / _TOML).read_text(), changes)
    create_hub(new, layout, clock=clock, settings=text)
    _bring(old, new)
    _require_same(config, load(new))
    return late


def _bring(old: Path, new: Path) -> None:
    """Copy the revocations, the people's files and the operators' own into the new directory.

    The new servers let in from their first moment on whom the old one does.
    """
    try:
        for target in resolver_directories(new):
            for path in (old / "accounts").glob("*.jwt"):
                place_file(path, target / path.name)
        for path in sorted(old.iterdir()):
            if path.name in _OWN or _OWN_FILES.fullmatch(path.name):
                continue
            if path.is_dir():
                shutil.copytree(path, new / path.name, dirs_exist_ok=True)
            else:
                place_file(path, new / path.name)
    except OSError as error:
        raise ConfigError(f"{error.filename or new}: {error.strerror}") from error


def _require_same(old: HubConfig, new: HubConfig) -> None:
    """See that hub.toml has the same settings as before but for the changed ones: it was changed as text.

    Raises:
        ConfigError: it does not.
    """
    places = {"nats", "fleet", "streams", "page"}
    differ = [
        name
        for name in old.__struct_fields__
        if name not in places and getattr(old, name) != getattr(new, name)
    ]
    fleet = msgspec.structs.replace(new.fleet, leaf_url=old.fleet.leaf_url)
    if differ or fleet != old.fleet:
        raise ConfigError(
            f"hub.toml was not carried over: {', '.join([*differ, 'fleet'][:3])}",
            hint="tell us what yours looks like; meanwhile: init --keys-of, then migrate",
        )


def take_hand_over(old: Path, new: Path) -> None:
    """Place hub.db and the vehicles' files, as the migration has left them, into the new directory.

    Raises:
        ConfigError: a file cannot be written.
    """
    source = old / HANDOVER
    try:
        for path in sorted(each for each in source.rglob("*") if each.is_file()):
            target = new / path.relative_to(source)
            private_directory(target.parent)
            place_file(path, target)
    except OSError as error:
        raise ConfigError(f"{error.filename or new}: {error.strerror}") from error
