"""`backhaul-agent adopt-ledger`: Go on with a ledger of another vehicle: this machine had its identity."""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import click

from backhaul_agent.cli.options import config_option
from backhaul_agent.config import Config
from backhaul_agent.config_file import load
from backhaul_agent.enrol.vehicle_files import LEAF_CONF
from backhaul_agent.errors import LedgerError, LedgerStorageError
from backhaul_agent.handover import device_of, hand_over
from backhaul_agent.leaf.config_text import store_dir_of
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.lock import LedgerLock

_STREAMS = "jetstream"  # nats-server keeps them under this name in its store_dir


@click.command(name="adopt-ledger")
@config_option
def command(path: Path) -> None:
    """Give the ledger to the vehicle that this machine is now, with all that it holds.

    For a machine that had another vehicle's identity and was enrolled anew (backhaul-hub enrol,
    backhaul-agent enrol). What the hub has not confirmed goes on under the new identity, in a new
    epoch; what it has confirmed stays where it is, under the old one. Agent and leaf server must be
    stopped. You may run it again, whatever interrupted it. The configuration is that of the new identity.
    """
    config = load(path)
    ledger = Path(config.ledger.path)
    if not ledger.exists():
        raise LedgerError(ledger, "there is none", hint=f"see ledger.path in {path}")
    with LedgerLock(ledger):
        former = device_of(ledger)
        if former == config.device.id:
            click.echo(f"{ledger} belongs to {former} already")
            return
        _require_no_leaf(config, ledger)
        asyncio.run(_check(config, ledger, former))
        # First: the hub would read what stands in OUT under the new name.
        if moved := _set_streams_aside(path.with_name(LEAF_CONF), former):
            click.echo(f"the leaf's streams of {former} are kept in {moved}")
        lanes = Lanes(config.streams.nodes)
        done = hand_over(ledger, config.device.id, lanes, lambda: secrets.randbits(32))
    click.echo(
        f"{ledger} was {done.former}'s and is {config.device.id}'s now: {done.moved} messages that the hub has"
        f" not confirmed go on in epoch {done.epoch}, {done.left} about {done.former} itself do not"
    )


def _require_no_leaf(config: Config, ledger: Path) -> None:
    """Refuse while a leaf server runs: the messages in its streams must not move under it."""
    where = urlsplit(config.nats.url)
    with suppress(OSError), socket.create_connection((where.hostname or "", where.port or 0), 2.0):
        raise LedgerError(
            ledger,
            f"a leaf server runs at {config.nats.url}",
            hint="stop it first: systemctl stop backhaul-leaf backhaul-agent",
        )


async def _check(config: Config, path: Path, former: str) -> None:
    """Open the ledger as its device's agent does: it is brought up to date, or refused."""
    ledger = await Ledger.open(
        path,
        device=former,
        bytes_max=config.ledger.bytes_max,
        epoch=lambda: secrets.randbits(32),
    )
    await ledger.close()


def _set_streams_aside(leaf_conf: Path, former: str) -> Path | None:
    """Move the leaf's streams to a name of their own; return it, None where there are none."""
    try:
        store = Path(store_dir_of(leaf_conf.read_text()))
        streams = store / _STREAMS
        if not streams.exists():
            return None
        names = [f"{_STREAMS}.of-{former}", *(f"{_STREAMS}.of-{former}.{n}" for n in range(2, 100))]
        target = next(store / name for name in names if not (store / name).exists())
        streams.rename(target)
    except OSError as error:
        raise LedgerStorageError(leaf_conf, "setting the leaf's streams aside", error) from error
    return target
