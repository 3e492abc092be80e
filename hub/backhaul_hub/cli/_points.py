"""Printing points, for the subcommands that do."""

from __future__ import annotations

from typing import Any

import click

from backhaul_codec.state.point_text import table


def print_points(points: list[dict[str, Any]]) -> None:
    """Print points as the hub's services give them."""
    if points:
        click.echo("\n".join(table(points)))
    else:
        click.echo("no points", err=True)
