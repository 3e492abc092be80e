"""The wire between two hubs while streams of one are mirrored at the other: a nats-server for a while.

Both hubs take it for leafs in their accounts HUB and UP, so neither is told anything new, and both may
have the same domain. A mirror at the new hub asks `API` for messages of the old one, and hears them
on `deliver_subject`; nothing else goes across. Why no client can do this: ADR 21.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.programs.nats_conf import lines, quoted
from backhaul_hub import shards
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.logins import new_login
from backhaul_hub.config import Login
from backhaul_hub.errors import BackupError
from backhaul_hub.private_files import write_private
from backhaul_hub.servers import urls
from backhaul_runtime.clock import Clock

API = "migrateapi"
CONSUMER = "migrate"
"""The mirrors' consumer of each stream of the old hub."""
# What a mirror asks; and what tells that there is somebody to ask.
_RESET, _INFO = f"CONSUMER.RESET.*.{CONSUMER}", "INFO"
# Of servers up to 2.15, and with domain and account in front, as those from 2.16 on send it.
_FLOW_CONTROL = (f"$JS.FC.*.{CONSUMER}.*", f"$JS.FC.*.*.*.{CONSUMER}.*")
_CONNECT_S_MAX = 20.0
_LOOK_S = 0.05
# Ends when whoever started it ends, however: its standard input is closed then.
_RUN = '"$0" -c "$1" & read _; kill $!'


def deliver_subject(stream: str, secret: str) -> str:
    """Return where a mirror hears the messages of a stream.

    `secret` is the hub's `up_api`: what a vehicle has the server publish in account UP must not come here.
    """
    return f"{CONSUMER}.{secret}.{stream}"


def render_bridge(old: str, new: str, creds: str, up_creds: str, secret: str, ca: str = "") -> str:
    """Render the configuration of the server between two hubs. Pure.

    Args:
        old: where it takes leafs; of a cluster all URLs, separated by commas.
        new: likewise; each of its servers gets a leaf, for to the hub of a leaf a server speaks for itself alone:
            what another one of its cluster asks, or hears, it does not pass on.
        creds: file with credentials of a user of account HUB at both.
        up_creds: likewise of account UP.
        secret: what JetStream's API is called in account UP.
        ca: file with the authority of both hubs' certificates; "" where leafs come without TLS.
    """
    delivered = deliver_subject("*", secret)
    return f"""\
server_name: backhaul-migrate
listen: "127.0.0.1:-1"
max_payload: 4MB
accounts {{
{_accounts("HUB", "$JS.hub.API", delivered)}
{_accounts("UP", secret, delivered)}
}}
leafnodes {{ remotes: [
{_remote(old, "OLD_HUB", creds, ca)}
{lines((_remote(each, "NEW_HUB", creds, ca) for each in urls(new)), indent=0)}
{_remote(old, "OLD_UP", up_creds, ca)}
{lines((_remote(each, "NEW_UP", up_creds, ca) for each in urls(new)), indent=0)}
] }}
"""


def _accounts(of: str, prefix: str, delivered: str) -> str:
    """Render the two accounts between which the mirrors of one account of the hubs are served."""
    # Resets the consumer answers itself, so they have this name in account UP, too.
    api = {f"{prefix}.{_INFO}": f"{API}.{_INFO}", f"$JS.hub.API.{_RESET}": f"{API}.{_RESET}"}
    return f"""\
  OLD_{of} {{ exports: [
{lines(f"{{ service: {quoted(each)} }}" for each in (*api, *_FLOW_CONTROL))}
      {{ stream: {quoted(delivered)} }}
  ] }}
  NEW_{of} {{ imports: [
{lines(f"{{ service: {{ account: OLD_{of}, subject: {quoted(each)} }}, to: {quoted(to)} }}" for each, to in api.items())}
{lines(f"{{ service: {{ account: OLD_{of}, subject: {quoted(each)} }} }}" for each in _FLOW_CONTROL)}
      {{ stream: {{ account: OLD_{of}, subject: {quoted(delivered)} }} }}
  ] }}"""


def _remote(places: str, account: str, creds: str, ca: str) -> str:
    # As a hub to both: from one that is its hub a leaf passes nothing on to another such.
    tls = f"\n    tls {{ ca_file: {quoted(ca)} }}" if ca else ""
    return f"""\
  {{ urls: [{", ".join(quoted(url) for url in urls(places))}], account: {account}, hub: true
    credentials: {quoted(creds)}{tls} }}"""


class Bridge:
    """Runs the server between two hubs, for as long as it is entered.

    Args:
        old, new: where they take leafs; of a cluster all URLs, separated by commas.
        login: of account HUB, at both.
        keys: those of both, which make a login of account UP.
        ca: file with the authority of both hubs' certificates; where there is none, they have none.
        there: a connection to the new hub, in account HUB.
    """

    def __init__(
        self, old: str, new: str, login: Login, keys: HubKeys, clock: Clock, ca: Path, there: Client
    ) -> None:
        self._old, self._new = old, new
        self._creds = str(Path(login.creds).absolute())
        self._keys = keys
        self._clock = clock
        self._authority = str(ca.absolute()) if ca.exists() else ""
        self._there = there
        self._directory = ""
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Start it and wait until both hubs have taken it.

        Raises:
            BackupError: there is no nats-server here, or a hub does not take it.
        """
        server = _server()
        self._directory = tempfile.mkdtemp(prefix="backhaul-migrate-")
        try:
            conf, up_creds = self._file("bridge.conf"), self._file("up.creds")
            now_s = self._clock.now_ns() // 1_000_000_000
            write_private(up_creds, new_login(self._keys, "migrate", "UP", now_s=now_s).text())
            write_private(conf, self._text(up_creds))
            with self._log.open("wb") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *("sh", "-c", _RUN, server, str(conf)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                )
            await self._connected()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        await self._end()

    @property
    def _log(self) -> Path:
        return self._file("log")

    def _file(self, name: str) -> Path:
        return Path(self._directory) / name

    def _text(self, up_creds: Path) -> str:
        return render_bridge(
            self._old, self._new, self._creds, str(up_creds), self._keys.up_api, self._authority
        )

    async def _connected(self) -> None:
        """Wait until the old hub's API answers at the new hub, of each account: then both have taken us."""
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                for subject in (f"{API}.{_INFO}", f"{shards.API}.{shards.JOINED}"):
                    while not await self._answers(subject):  # noqa: ASYNC110
                        await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            logged = self._log.read_text(errors="replace")
            why = [line for line in logged.splitlines() if "[ERR]" in line or "error" in line]
            raise BackupError(
                f"{self._old} and {self._new} are not joined: {(why or ['silence'])[-1]}",
                hint="are these their leaf ports, as vehicles reach them? say --from-leaf, --to-leaf",
            ) from None

    async def _answers(self, subject: str) -> bool:
        try:
            await self._there.request(subject, b"", timeout=1)
        except NatsError:
            return False
        return True

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()
        directory, self._directory = self._directory, ""
        if directory:
            shutil.rmtree(directory, ignore_errors=True)


def _server() -> str:
    """Return the nats-server beside this Python, else the one on PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise BackupError(
            "no nats-server on this machine", hint="put it on PATH: it passes the streams on"
        )
    return found
