"""Connecting to the hub's nats-server, as the control plane and the command line do."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from backhaul_codec.protocol.credentials import CredentialsError, parse_credentials
from backhaul_hub.config import Login
from backhaul_hub.errors import HubError
from backhaul_hub.servers import urls
from backhaul_runtime.patched_client import PatchedClient

log = structlog.get_logger(__name__)

_RETRY_S = 1.0
_CONNECT_TIMEOUT_S = 5.0
# For one attempt; whole seconds.
_ATTEMPT_S = 2
# For a server that is there and silent, as where its disk or machine has much to do.
_SILENT_S_MAX = 30.0
# A server whose machine is gone is noticed in 20 to 30 s.
_PING_S = 10
_LISTENS_S_MAX = 3.0


async def connect(url: str, login: Login, *, inbox_prefix: str = "_INBOX") -> Client:
    """Connect to the hub's server, of a cluster to any; once connected, reconnect for ever.

    One that is there and does not answer is waited for longer than one that is not there.

    ``url``: as in hub.toml.

    Raises:
        HubError: the server is not there, or does not take these credentials, or there are none.
    """
    last_errors: list[Exception] = []
    connecting: list[asyncio.Timeout] = []
    user = Path(login.creds).stem
    tls = _trust(login) if url.startswith("tls://") else None
    await asyncio.to_thread(_check, Path(login.creds))

    async def on_error(error: Exception) -> None:
        # Of a flood each message that is dropped is an error.
        again = isinstance(error, SlowConsumerError) and type(error) in map(type, last_errors)
        last_errors[:] = [error]
        if client.is_connected and not again:
            log.warning("nats_error", user=user, error=repr(error))
        for limit in connecting:
            if (
                limit.expired()
            ):  # asyncio before 3.12 forgets it where an answer comes in the same moment
                raise TimeoutError from error
            # Judged when an attempt has failed: who stands still himself for so long has not tried.
            silent = isinstance(error, TimeoutError)
            limit.reschedule(began_s + (silent_s if silent else patience_s))

    client = PatchedClient()
    servers = urls(url)
    patience_s = _CONNECT_TIMEOUT_S * max(1, len(servers))
    silent_s = max(patience_s, _SILENT_S_MAX)
    began_s = asyncio.get_running_loop().time()
    try:
        # The client itself would try for ever, the first time too.
        async with asyncio.timeout(silent_s) as limit:
            connecting.append(limit)
            try:
                await client.connect(
                    servers,
                    user_credentials=login.creds,
                    inbox_prefix=inbox_prefix,
                    tls=tls,
                    name=f"backhaul-hub {user}",
                    connect_timeout=_ATTEMPT_S,
                    max_reconnect_attempts=-1,
                    ping_interval=_PING_S,
                    max_outstanding_pings=2,
                    reconnect_time_wait=0.5,  # seconds; a float is fine
                    error_cb=on_error,
                )
            finally:
                connecting.clear()
    except (NatsError, OSError, TimeoutError) as error:
        await client.close()
        why = last_errors[0] if last_errors else error
        raise HubError(
            f"no connection to the hub's nats-server at {url} as {user}: {why!r}",
            hint="start it with: nats-server -c hub.conf",
        ) from error
    return client


@contextlib.asynccontextmanager
async def connected(
    url: str, login: Login, *, inbox_prefix: str = "_INBOX"
) -> AsyncIterator[Client]:
    """Connect, and close the connection at the end. Raises: as `connect`."""
    client = await connect(url, login, inbox_prefix=inbox_prefix)
    try:
        yield client
    finally:
        await client.close()


async def any_listens(url: str) -> bool:
    """Tell whether any of the hub's servers is there; one that is silent is.

    ``url``: as in hub.toml.
    """
    for each in urls(url):
        if await _listens(each):
            return True
    return False


async def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_LISTENS_S_MAX):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
    except TimeoutError:
        return True  # not refused, at least
    except OSError:
        return False
    writer.close()
    return True


async def heard(client: Client) -> None:
    """Return when the server has taken in all subscriptions so far; at once if it is not there.

    Until then it tells whoever asks that nobody is there.
    """
    with contextlib.suppress(NatsError):
        await client.flush()


def _trust(login: Login) -> ssl.SSLContext:
    """Return the TLS context by which the client proves that it is the hub. Raises: HubError: there is no such file."""
    try:
        return ssl.create_default_context(cafile=login.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise HubError(
            f"no certificates in {login.ca}: {error}",
            hint="say in hub.toml, [nats] ca, where they are",
        ) from error


def _check(path: Path) -> None:
    """Refuse credentials that the client would only stumble over."""
    try:
        parse_credentials(path.read_text())
    except (OSError, UnicodeDecodeError, CredentialsError) as error:
        raise HubError(
            f"no login with {path}: {error}", hint="put it back as backhaul-hub init wrote it"
        ) from error


async def watch_connections(*clients: Client) -> None:
    """End with an error where a connection has closed for good, which only our own close should.

    A service manager starts the control plane again; going on would be going on deaf. nats-py's
    closed callback is left out now and then, its state is right.
    """
    while not any(client.is_closed for client in clients):  # noqa: ASYNC110
        await asyncio.sleep(_RETRY_S)
    raise HubError("a connection to the hub's nats-server has closed for good")
