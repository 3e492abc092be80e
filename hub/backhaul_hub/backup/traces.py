"""Traces of devices beside hub.db: by them a lost hub.db is noticed, and rebuilt as far as they go.

devices/<VID>/identity.json    the newest document of each device that is not revoked: key, token, nodes
people/<NAME>.creds            credentials that nobody has taken away: key and rights
keys/revocations.jsonl         whom nobody may let in again, and who that was
the servers' accounts          whom they shut out
DOWN_00                        a durable for each device that may be written to: token, nodes
RELAY_00 ...                   sources of those that were connected: token (a hub of before: UP_00 ...)
UP_00 ...                      subjects of all that ever sent
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nats.errors import Error as NatsError

from backhaul_codec.protocol.credentials import CredentialsError, parse_credentials
from backhaul_codec.protocol.identity import IdentityError, decode_identity
from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.access.account_names import AccountName
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.revocations import Revocation
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.errors import HubError, RightsError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.links.down_consumers import device_of_durable
from backhaul_hub.links.sources import place_of
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.people.identity import Person
from backhaul_hub.people.login import read_person
from backhaul_hub.shards import is_passing, is_shard
from backhaul_hub.streams.streams import names, stream_names


@dataclass(slots=True)
class Trace:
    """The traces of one device."""

    public_key: str = ""
    token: str = ""
    nodes: set[str] = field(default_factory=set)
    messages: int = 0
    """In UP."""
    places: set[str] = field(default_factory=set)
    """Where it is known from."""


@dataclass(slots=True)
class Traces:
    """All that is known beside hub.db."""

    devices: dict[str, Trace] = field(default_factory=dict)
    people: dict[str, tuple[Person, str]] = field(default_factory=dict)
    """By name, with the public key."""
    revoked: dict[str, Revocation] = field(default_factory=dict)
    """By public key: those with a name, of the log."""
    shut_out: Mapping[AccountName, set[str]] = field(default_factory=dict)
    """Public keys that servers shut out."""
    unreadable: list[str] = field(default_factory=list)
    """Files and streams that could not be read, and why."""

    def of(self, device: str, place: str) -> Trace:
        """Return the traces of a device, and note that this place has one."""
        trace = self.devices.setdefault(device, Trace())
        trace.places.add(place)
        return trace

    @property
    def keys_shut_out(self) -> set[str]:
        """Every public key that is revoked, as far as anybody says."""
        return self.revoked.keys() | set().union(*self.shut_out.values())


def traces_in_files(directory: Path, keys: HubKeys) -> Traces:
    """Return the traces in the files of a hub directory. Blocking."""
    found = Traces()
    for path in sorted(directory.glob("devices/*/identity.json")):
        try:
            identity = decode_identity(path.read_bytes())
            login = body_of(identity.jwt) if identity.jwt else {}
        except (OSError, IdentityError, ValueError) as error:
            found.unreadable.append(f"{path}: {error}")
            continue
        trace = found.of(identity.device, "document")
        trace.token, trace.nodes = identity.token, set(identity.nodes)
        trace.public_key = str(login.get("sub", ""))
    for path in sorted(directory.glob("people/*.creds")):
        try:
            person = read_person(path)
            key = parse_credentials(path.read_text()).public_key
        except (OSError, HubError, RightsError, CredentialsError) as error:
            found.unreadable.append(f"{path}: {error}")
            continue
        found.people[person.name] = (person, key)
    found.revoked = dict(RevocationLog(directory, keys.operator_signing).rows())
    return found


async def traces_in_streams(api: JetStreamApi, found: Traces) -> None:
    """Add the traces in the servers' streams.

    Raises:
        HubError: the server refused, or did not answer.
    """
    there = await stream_names(api)
    if DOWN in there:
        _of_durables(await names(api, f"CONSUMER.NAMES.{DOWN}", "consumers"), found)
    for name in sorted(there):
        if is_shard(name) or is_passing(name):
            await _of_shard(api, name, found)


async def has_durables(api: JetStreamApi, devices: Collection[str]) -> bool:
    """Tell whether DOWN has a durable of one of these devices.

    Raises:
        HubError: the server refused, or did not answer.
    """
    if await api.stream_info(DOWN) is None:
        return False
    durables = map(device_of_durable, await names(api, f"CONSUMER.NAMES.{DOWN}", "consumers"))
    return any(known is not None and known[0] in devices for known in durables)


async def traces(directory: Path, keys: HubKeys, api: JetStreamApi | None) -> Traces:
    """Return the traces in files and streams; ``api``: None where nobody can ask it."""
    found = await asyncio.to_thread(traces_in_files, directory, keys)
    if api is not None:
        try:
            await traces_in_streams(api, found)
        except NatsError as error:
            raise HubError(f"the server does not answer for its streams: {error!r}") from error
    return found


def _of_durables(consumers: Iterable[str], found: Traces) -> None:
    for consumer in sorted(consumers):
        known = device_of_durable(consumer)
        if known is None:
            continue
        device, token, node = known
        trace = found.of(device, "durable")
        # A document is newer: a durable of a former token may stand beside the one of this.
        if "document" not in trace.places:
            trace.token = token
            trace.nodes |= {node} - {""}


async def _of_shard(api: JetStreamApi, name: str, found: Traces) -> None:
    info = await api.info(name)
    for source in info["config"].get("sources") or []:
        place = place_of(source)
        if DEVICE_ID.match(place.device):
            trace = found.of(place.device, "source")
            trace.token = trace.token or str((source.get("consumer") or {}).get("name", ""))
    for subject, messages in (await api.subjects(name, "up.>")).items():
        device = subject.split(".")[1]
        if DEVICE_ID.match(device):
            found.of(device, "UP").messages += messages
