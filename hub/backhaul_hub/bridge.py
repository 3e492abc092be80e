"""The wire between two hubs while streams of one are mirrored at the other: a nats-server for a while.

Both hubs take it for a leaf in account HUB, so neither is told anything new, and both may have the
same domain. A mirror at the new hub asks `API` for messages of the old one, and hears them on
`deliver_subject`; nothing else goes across. Why no client can do this: ADR 21.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nats.errors import Error as NatsError

from .errors import BackupError
from .private_files import write_private
from .server_text import lines, quoted
from .servers import urls

if TYPE_CHECKING:
    from types import TracebackType

    from nats.aio.client import Client

    from .config import Login

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


def deliver_subject(stream: str) -> str:
    """Return where a mirror hears the messages of a stream."""
    return f"{CONSUMER}.{stream}"


def render_bridge(old: str, new: str, creds: str, ca: str = "") -> str:
    """Render the configuration of the server between two hubs. Pure.

    Args:
        old: where it takes leafs; of a cluster all URLs, separated by commas.
        new: likewise.
        creds: file with credentials of a user of account HUB at both.
        ca: file with the authority of both hubs' certificates; "" where leafs come without TLS.
    """
    api = {f"$JS.hub.API.{verb}": f"{API}.{verb}" for verb in (_INFO, _RESET)}
    return f"""\
server_name: backhaul-migrate
listen: "127.0.0.1:-1"
max_payload: 4MB
accounts {{
  OLD {{ exports: [
{lines(f"{{ service: {quoted(each)} }}" for each in (*api, *_FLOW_CONTROL))}
      {{ stream: {quoted(deliver_subject("*"))} }}
  ] }}
  NEW {{ imports: [
{lines(f"{{ service: {{ account: OLD, subject: {quoted(each)} }}, to: {quoted(to)} }}" for each, to in api.items())}
{lines(f"{{ service: {{ account: OLD, subject: {quoted(each)} }} }}" for each in _FLOW_CONTROL)}
      {{ stream: {{ account: OLD, subject: {quoted(deliver_subject("*"))} }} }}
  ] }}
}}
leafnodes {{ remotes: [
{_remote(old, "OLD", creds, ca)}
{_remote(new, "NEW", creds, ca)}
] }}
"""


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
        ca: file with the authority of both hubs' certificates; where there is none, they have none.
        there: a connection to the new hub, in that account.
    """

    def __init__(self, old: str, new: str, login: Login, ca: Path, there: Client) -> None:
        authority = str(ca.absolute()) if ca.exists() else ""
        self._text = render_bridge(old, new, str(Path(login.creds).absolute()), authority)
        self._places = (old, new)
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
            conf = Path(self._directory) / "bridge.conf"
            write_private(conf, self._text)
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
        return Path(self._directory) / "log"

    async def _connected(self) -> None:
        """Wait until the old hub's API answers at the new hub: then both have taken us."""
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                while not await self._answers():  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            logged = self._log.read_text(errors="replace")
            why = [line for line in logged.splitlines() if "[ERR]" in line or "error" in line]
            raise BackupError(
                f"{self._places[0]} and {self._places[1]} are not joined: {(why or ['silence'])[-1]}",
                hint="are these their leaf ports, as vehicles reach them? say --from-leaf, --to-leaf",
            ) from None

    async def _answers(self) -> bool:
        try:
            await self._there.request(f"{API}.{_INFO}", b"", timeout=1)
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
