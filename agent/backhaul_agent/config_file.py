"""agent.toml, read: its settings, and whether its paths fit the disk as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from backhaul_agent.config import Config, parse
from backhaul_agent.errors import ConfigError

STATE_DIRECTORY = Path("/var/lib/backhaul-agent")
# The system's own: what is not of artifacts there must not count as theirs, and slots not lie among it.
_SYSTEM = frozenset(
    Path("/", name)
    for name in (
        *("", "bin", "boot", "dev", "etc", "home", "lib", "lib64", "mnt", "opt", "proc", "root"),
        *("run", "sbin", "srv", "sys", "tmp", "usr", "var", "var/lib", "var/log"),
    )
)


def place_problems(config: Config, own: Path) -> Iterator[tuple[str, str]]:
    """Yield the key of each path that cannot serve its purpose, and why.

    Args:
        config: as read; its paths are whole.
        own: the directory of agent.toml.
    """
    ledger, artifacts = Path(config.ledger.path), Path(config.artifacts.dir)
    taken = {*_SYSTEM, ledger.parent, own.absolute()}
    # Not resolved: /var/lib/backhaul-agent itself is a link under systemd. Two slashes are a root too.
    plain = Path("/", str(artifacts.absolute()).lstrip("/"))
    if plain in taken or ".." in artifacts.parts:
        yield (
            "artifacts.dir",
            f"{artifacts} is not for artifacts alone: give them a directory of their own",
        )
    yield from _no_directory("ledger.path", ledger)
    yield from _directories("ledger.path", ledger.parent)
    yield from _directories("artifacts.dir", artifacts)
    yield from _no_directory("link.file", Path(config.link.file))
    files = {
        "nats.nkey": config.nats.nkey,
        "nats.credentials": config.nats.credentials,
        "link.system_nkey": config.link.system_nkey,
        "link.redial_nkey": config.link.redial_nkey,
        "link.pid_file": config.link.pid_file,
    }
    for key, name in files.items():
        if name:
            yield from _no_directory(key, Path(name))
    for number, command in enumerate(config.command):
        if command.run:
            yield from _no_directory(f"command[{number}].run", Path(command.run[0]))


def place_warnings(config: Config) -> Iterator[str]:
    """Yield settings that may be meant, and do not work as the packages come."""
    for key, name in (("ledger.path", config.ledger.path), ("artifacts.dir", config.artifacts.dir)):
        if not Path(name).is_relative_to(STATE_DIRECTORY):
            yield (
                f"{key}: the unit backhaul-agent.service may write below {STATE_DIRECTORY} alone:"
                f" {name} needs a drop-in with ReadWritePaths="
            )
    host = config.page.listen.rpartition(":")[0]
    if host and host != "localhost" and not host.startswith("127."):
        yield (
            "page.listen: the unit backhaul-agent.service lets this machine alone in: browsers elsewhere"
            " need a drop-in with IPAddressAllow="
        )
    for command in config.command:
        if command.run and command.run[0].startswith("/") and not _is_there(Path(command.run[0])):
            yield f"command {command.name!r}: there is no {command.run[0]}"


def _no_directory(key: str, path: Path) -> Iterator[tuple[str, str]]:
    if _is_directory(path):
        yield key, f"{path} is a directory: a file is needed"


def _directories(key: str, path: Path) -> Iterator[tuple[str, str]]:
    """Look at the nearest of a directory and those above it that is there."""
    for each in (path, *path.parents):
        try:
            if each.is_dir():
                return
            there = each.exists()
        except OSError:
            return  # as below
        if there:
            yield key, f"{each} is a file: a directory is needed"
            return


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # not ours to look into: who runs may be another user


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # nobody can say


def load(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: with the file, the key, and what is allowed there; where a path cannot be what it
            is for, too.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(path, "", "no such file; `backhaul-agent enrol` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, "", f"cannot be read: {error}") from error
    config = parse(text, path)
    for key, problem in place_problems(config, path.parent):
        raise ConfigError(path, key, problem)
    return config
