"""Secrets of channels: one a file, which nobody but its owner may read."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

from backhaul_hub.alert_settings import AlertsSection
from backhaul_hub.errors import ConfigError

SECRET_BYTES_MAX = 4096


def read_secret(directory: Path, name: str) -> str:
    """Return the first line of a file, without spaces around it.

    It is read anew for each message: a secret that is replaced holds from then on.

    Args:
        directory: the hub directory, to which `name` is relative.
        name: of the file; empty: there is no secret, and "" is returned.

    Raises:
        ConfigError: it is missing, empty, no text, or others may read it; with the command that mends it.
    """
    if not name:
        return ""
    path = directory / name
    quoted = shlex.quote(str(path))
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            content = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        hint = f"write the secret there, then: chmod 600 {quoted}"
        raise ConfigError(f"{path}: {error.strerror or error}", hint=hint) from error
    if mode & 0o077:
        hint = f"chmod 600 {quoted}; others may have read it, so have a new secret made"
        raise ConfigError(f"{path}: its mode is {mode:04o}, so others may read it", hint=hint)
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret or len(content) > SECRET_BYTES_MAX or not secret.isprintable():
        hint = f"one line of text, in {quoted}"
        raise ConfigError(f"{path}: there is no secret in it", hint=hint)
    return secret


def check_secrets(directory: Path, alerts: AlertsSection) -> None:
    """Read the files that all channels need. Raises: ConfigError: one of them cannot be used."""
    for name, channel in alerts.channels.items():
        for file in channel.secret_files:
            try:
                read_secret(directory, file)
            except ConfigError as error:
                problem = f"alerts.channels.{name}: {error.message}"
                raise ConfigError(problem, hint=error.hint) from error
        if channel.ca and not (directory / channel.ca).is_file():
            raise ConfigError(f"alerts.channels.{name}.ca: {directory / channel.ca} is no file")
