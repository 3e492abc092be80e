"""A hub for simulated fleets: its streams of UP take messages of `simulate`, as no other hub's do.

UP takes nothing but what sources bring. So the test hub is one from its first day: a directory whose
one more login, `creds/simulator.creds`, may publish in account UP, and streams with one more
subject, which they take the name of. Neither is on any other hub, and `backhaul-hub up` leaves this
one alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import new_login
from backhaul_hub.config import HubConfig, Login
from backhaul_hub.errors import ConfigError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.jwt import Rights
from backhaul_hub.private_files import write_private
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from backhaul_hub.shards import is_shard
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_runtime.clock import Clock

PREFIX = "sim"
_CREDS = "creds/simulator.creds"
INBOX = "_INBOX_simulator"
"""What begins the subjects on which the simulator hears of what was stored."""


def make_test_hub(directory: Path, layout: HubLayout, clock: Clock) -> None:
    """Write a new hub directory for simulated fleets.

    Raises:
        ConfigError: there is a hub already, or the directory cannot be written.
    """
    create_hub(directory, layout, clock=clock)
    rights = Rights(publish=(f"{PREFIX}.>",), subscribe=(f"{INBOX}.>",))
    now_s = clock.now_ns() // 1_000_000_000
    login = new_login(read_keys(directory), "simulator", "UP", now_s=now_s, rights=rights)
    write_private(directory / _CREDS, login.text())


def is_test_hub(directory: Path) -> bool:
    """Tell whether a hub was made for simulated fleets."""
    return (directory / _CREDS).exists()


def require_test_hub(directory: Path) -> None:
    """Refuse a hub that real vehicles send to, or may.

    Raises:
        ConfigError: it was not made for this, or devices were added to it since.
    """
    if not is_test_hub(directory):
        raise ConfigError(
            f"{directory} is no test hub",
            hint="make one with: backhaul-hub simulate --make-hub DIR",
        )
    devices = directory / "devices"
    if (directory / "hub.db").exists() or (devices.is_dir() and any(devices.iterdir())):
        raise ConfigError(
            f"{directory} is no longer a test hub: it knows devices",
            hint="make another with: backhaul-hub simulate --make-hub DIR",
        )


def require_real(directory: Path) -> None:
    """Refuse a test hub.

    Raises:
        ConfigError: it is one.
    """
    if is_test_hub(directory):
        raise ConfigError(
            f"{directory} is a test hub: only simulated fleets send to it",
            hint="make a hub for vehicles with: backhaul-hub init DIR",
        )


def simulator_login(directory: Path, config: HubConfig) -> Login:
    """Return the login that may publish in account UP."""
    return Login(creds=str(directory / _CREDS), ca=config.nats.ca)


def publish_subject(stream: str, device: str, leaf_subject: str) -> str:
    """Return where a message is published that `stream` is to hold as `up.<device>.<leaf_subject>`."""
    return f"{PREFIX}.{stream}.up.{device}.{leaf_subject}"


async def make_streams(api: JetStreamApi, config: HubConfig) -> None:
    """Bring the hub's streams into being, those of UP with the simulator's subject.

    Raises:
        HubError: the server refused, or nobody answered.
    """
    for declared in declared_streams(config):
        await reconcile(api, declared | _taking_in(declared["name"]))


def _taking_in(stream: str) -> dict[str, Any]:
    if not is_shard(stream):
        return {}
    begin = f"{PREFIX}.{stream}."
    return {
        "subjects": [f"{begin}up.>"],
        "subject_transform": {"src": f"{begin}up.>", "dest": "up.>"},
    }
