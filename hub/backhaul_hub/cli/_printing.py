"""Printing answers, for the subcommands that do: points for people, JSON for programs."""

from __future__ import annotations

import json
from typing import Any

import click

from backhaul_codec.state.point_text import table


def print_json(answer: object) -> None:
    """Print an answer for programs."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def print_points(answer: dict[str, Any], *, as_json: bool) -> None:
    """Print an answer that has `points` as the hub's services give them: those, or all of it as JSON."""
    if as_json:
        print_json(answer)
    elif points := answer["points"]:
        click.echo("\n".join(table(points)))
    else:
        click.echo("no points", err=True)
