"""`backhaul-agent check-config`: Check a configuration file, and name its errors."""

from __future__ import annotations

from pathlib import Path

import click

from backhaul_agent.cli.options import config_option
from backhaul_agent.config_file import load, place_warnings
from backhaul_agent.leaf.streams import link_window
from backhaul_agent.ledger.lane_routing import Lanes


@click.command(name="check-config")
@config_option
def command(path: Path) -> None:
    """Check a configuration file; exit 1 with the file, the key and the values allowed there."""
    config = load(path)
    for warning in place_warnings(config):
        click.echo(f"backhaul-agent: {path}: {warning}", err=True)
    window = link_window(config, Lanes(config.streams.nodes).names)
    windows = ", ".join(f"{lane} {window.window(lane)}" for lane in window.lanes())
    click.echo(f"{path}: good. Device {config.device.id}, ledger {config.ledger.path},")
    click.echo(f"first uplink window at {config.link.rate_kbit_s:g} kbit/s: {windows} messages.")
