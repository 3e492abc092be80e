"""`backhaul-hub notify dry-run`, `notify test CHANNEL`: Show the notices to come, and try a channel."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import click

from backhaul_codec.state.point_text import shown
from backhaul_hub.alert_settings import SEVERITIES, Severity
from backhaul_hub.alerts.alert import AlertKey
from backhaul_hub.alerts.dry_run import made_up
from backhaul_hub.alerts.outbox import NoticeMessage
from backhaul_hub.alerts.plan import Notice
from backhaul_hub.alerts.senders import Sender
from backhaul_hub.cli._act import answer_pages
from backhaul_hub.cli._ask import Operator, ask
from backhaul_hub.cli._options import awaited, directory_option, json_option
from backhaul_hub.cli._printing import print_json
from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError, HubError
from backhaul_runtime.clock import SystemClock


@click.group()
def notify() -> None:
    """Show the notices to come, and try a channel to people."""


@notify.command("dry-run")
@click.option(
    "--device", metavar="VID", help="Of an alert that is not there, as if it were raised now."
)
@click.option("--severity", type=click.Choice(SEVERITIES), help="Likewise.  [default: critical]")
@click.option("--name", help="Likewise: its rule, or its condition's code.")
@click.option(
    "--source",
    type=click.Choice(["rule", "health", "anomaly"]),
    help="Likewise.  [default: rule, without --device health]",
)
@directory_option
@json_option
@awaited
async def dry_run(
    device: str | None,
    severity: Severity | None,
    name: str | None,
    source: str | None,
    directory: Path,
    as_json: bool,
) -> None:
    """Show the notices to come by hub.toml as it is now: of all open alerts, or of one that is not there.

    Nothing is sent and nothing is written; the control plane need not run.
    """
    question = {"device": device, "severity": severity, "name": name, "source": source}
    found, unknown = list[dict[str, Any]](), list[str]()
    async for page in answer_pages(directory, "dry-run", question, key="skip"):
        found += page["alerts"]
        unknown = page["unknown"]
    for group in unknown:
        click.echo(
            f"no group or device {shown(group)}, which a route names: nothing is below it", err=True
        )
    if as_json:
        print_json(found)
        return
    for each in found:
        click.echo("\n".join(_lines(each)))
    if not found:
        click.echo("no alert is open", err=True)


@notify.command()
@click.argument("channel")
@directory_option
def test(channel: str, directory: Path) -> None:
    """Send a test over CHANNEL, as hub.toml is now, and have all waiting notices sent."""
    config = load(directory)
    settings = config.alerts.channels.get(channel)
    if settings is None:
        known = ", ".join(sorted(config.alerts.channels)) or "none"
        raise ConfigError(f"hub.toml has no channel {channel!r}", hint=f"it has: {known}")
    now_ns = SystemClock().now_ns()
    key = AlertKey("health", "", "test", channel)
    alert = made_up(key, "info", now_ns)
    notice = Notice(f"{alert.id}.test.{channel}", channel, "raised", alert, now_ns)
    sender = Sender(channel, settings, directory, config.twin.env)
    delivered = asyncio.run(sender.send(NoticeMessage(secrets.token_hex(16), channel, [notice])))
    click.echo(f"{channel} has taken it")
    if delivered.refused:
        raise HubError(f"but not for all: {delivered.refused}")
    try:
        waiting = ask(Operator(directory), "notify", {"channel": channel})["waiting"]
    except HubError as error:
        click.echo(f"the control plane was not told to send what waits: {error}", err=True)
    else:
        click.echo(
            f"{waiting} notices wait for it, and go now" if waiting else "nothing waits for it"
        )


def _lines(found: dict[str, Any]) -> list[str]:
    alert = found["alert"]
    about = f" {alert['about']}" if alert["about"] else ""
    head = f"{alert['severity']} {alert['device'] or '(hub)'} {alert['name']}{about}"
    lines = [shown(f"{head}: {alert['text']}")]
    if found["nobody"]:
        return [*lines, f"    {found['nobody']}"]
    return lines + [f"    {name}: {words}" for name, words in found["channels"].items()]
