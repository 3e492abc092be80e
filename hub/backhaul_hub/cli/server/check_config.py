"""`backhaul-hub check-config`: Check hub.toml and the secrets that it names."""

from __future__ import annotations

from pathlib import Path

import click

from backhaul_hub.alerts.secret_files import check_secrets
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import load


@click.command(name="check-config")
@directory_option
def check_config(directory: Path) -> None:
    """Check hub.toml and the files of its secrets; exit 1 with the file, the key and the values allowed there."""
    config = load(directory)
    check_secrets(directory, config.alerts)
    channels = ", ".join(sorted(config.alerts.channels)) or "none"
    click.echo(f"{directory / 'hub.toml'}: good. Channels to people: {channels}")
