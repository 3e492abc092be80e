"""How anything on the vehicle logs in to the leaf server: by key, by password, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nats.aio.client import RawCredentials

from backhaul_agent.errors import LoginError
from backhaul_codec.protocol.credentials import (
    TEXT_BYTES_MAX,
    Credentials,
    CredentialsError,
    parse_credentials,
    parse_seed,
)


def login_options(
    *, user: str = "", password: str = "", credentials: str = "", nkey: str = ""
) -> dict[str, Any]:
    """Return the arguments of nats-py's ``connect`` that log in; the files are read now.

    ``nkey`` and ``credentials`` are paths: of a file with a user's seed, or with a JWT too. Read
    and checked here, because nats-py takes a garbled file for a key, or reads it for ever.

    Raises:
        LoginError: a file cannot be read, or does not hold what it should.
    """
    if nkey:
        return {"nkeys_seed_str": _read(nkey, parse_seed).seed}
    if credentials:
        return {"user_credentials": RawCredentials(_read(credentials, parse_credentials).text())}
    return {"user": user, "password": password} if user else {}


def _read(path: str, parse: Callable[[str], Credentials]) -> Credentials:
    try:
        with Path(path).open(encoding="ascii") as file:
            return parse(file.read(TEXT_BYTES_MAX + 1))
    except OSError as error:
        raise LoginError(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LoginError(path, "no text") from error
    except CredentialsError as error:
        raise LoginError(path, str(error)) from error
