"""Logging in to the hub's server as a person, with the credentials of `backhaul-hub user add`."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING

from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.credentials import CredentialsError, parse_credentials

from .errors import ConfigError, HubError, RightsError
from .people import person_of
from .servers import urls

if TYPE_CHECKING:
    from pathlib import Path

    from .people import Person

_CONNECT_S_MAX = 5.0


def read_person(creds: Path) -> Person:
    """Return who the credentials in a file are for, as their JWT says; the server checks it.

    Raises:
        ConfigError: the file cannot be read, or is no credentials of a person.
    """
    try:
        jwt = parse_credentials(creds.read_text()).jwt
        claims = jwt.split(".")[1]
        said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        [questions] = said["nats"]["pub"]["allow"]
        return person_of(questions)[0]
    except OSError as error:
        raise ConfigError(f"{creds}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{creds}: no text") from error
    except CredentialsError as error:
        raise ConfigError(f"{creds}: {error}") from error
    except (ValueError, KeyError, TypeError, RightsError) as error:
        raise ConfigError(
            f"{creds}: these credentials are of no person", hint="backhaul-hub user add makes such"
        ) from error


async def connect_person(url: str, creds: Path, person: Person) -> Client:
    """Connect to the hub's server, of a cluster to any. Raises: HubError."""
    last_errors: list[Exception] = []

    async def on_error(error: Exception) -> None:
        last_errors[:] = [error]

    client = Client()
    servers = urls(url)
    try:
        async with asyncio.timeout(_CONNECT_S_MAX * len(servers)):
            await client.connect(
                servers,
                user_credentials=str(creds),
                inbox_prefix=person.inbox,
                name=f"backhaul-hub {person.name}",
                error_cb=on_error,
            )
    except (NatsError, OSError, TimeoutError) as error:
        await client.close()
        why = last_errors[0] if last_errors else error
        raise HubError(
            f"no connection to the hub's nats-server at {url} as {person.name}: {why!r}",
            hint="see --server; or the credentials were withdrawn",
        ) from error
    return client
