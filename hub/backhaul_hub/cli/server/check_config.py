"""`backhaul-hub check-config`: Check hub.toml and the secrets that it names."""

from __future__ import annotations

from pathlib import Path

import click

from backhaul_hub.alerts.secret_files import check_secrets
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import load
from backhaul_hub.servers import server_directories
from backhaul_hub.setup.server_config import older_settings


@click.command(name="check-config")
@directory_option
def check_config(directory: Path) -> None:
    """Check hub.toml and the files of its secrets; exit 1 with the file, the key and the values allowed there.

    Of each server's hub.conf it names what an earlier `init` wrote otherwise; that is no error.
    """
    config = load(directory)
    check_secrets(directory, config.alerts)
    channels = ", ".join(sorted(config.alerts.channels)) or "none"
    click.echo(f"{directory / 'hub.toml'}: good. Channels to people: {channels}")
    for server in server_directories(directory):
        conf = server / "hub.conf"
        for sentence in older_settings(conf.read_text()) if conf.exists() else []:
            click.echo(f"{conf}: {sentence}")
