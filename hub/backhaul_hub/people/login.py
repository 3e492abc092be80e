"""Logging in to the hub's server as a person, with the credentials of `backhaul-hub user add`."""

from __future__ import annotations

from pathlib import Path

from nats.aio.client import Client

from backhaul_codec.protocol.credentials import CredentialsError, parse_credentials
from backhaul_hub.config import Login
from backhaul_hub.errors import ConfigError, HubError, RightsError
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.people.identity import Person, person_of


def read_person(creds: Path) -> Person:
    """Return who the credentials in a file are for, as their JWT says; the server checks it.

    Raises:
        ConfigError: the file cannot be read, or is no credentials of a person.
    """
    try:
        said = body_of(parse_credentials(creds.read_text()).jwt)
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


async def connect_person(url: str, creds: Path, person: Person, ca: Path | None = None) -> Client:
    """Connect to the hub's server, of a cluster to any.

    `ca`: the authorities by which it is known, where the URL says TLS; those of the system if None.

    Raises:
        HubError: the server is not there, is another one, or does not take these credentials.
    """
    login = Login(creds=str(creds), ca=str(ca or ""))
    try:
        return await connect(url, login, inbox_prefix=person.inbox)
    except HubError as error:
        hint = "see --server and --ca; or the credentials were withdrawn"
        raise HubError(error.message, hint=hint) from error
