"""Having an act on hub.db done: by the control plane, wherever it leads; where none does, here.

Nobody else opens hub.db. So where somebody has it and does not answer, the command is refused, and says who that is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.strict.json import Reader
from backhaul_hub.access.keys import HubKeys, read_keys
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.audit.acts import act_of
from backhaul_hub.audit.entry import OPERATOR
from backhaul_hub.audit.rows import put_pending
from backhaul_hub.cli._ask import Operator, this_user
from backhaul_hub.config import HubConfig, load
from backhaul_hub.control.acts import HERE, Acts
from backhaul_hub.control.erasing import ErasureActs
from backhaul_hub.db.lock import alone_with
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.revoke import leave_for_servers
from backhaul_hub.errors import HubError, NobodyAnswersError, RegistryHeldError
from backhaul_hub.migrate.stopping import answers
from backhaul_hub.nats.connection import any_listens, connect, connected
from backhaul_hub.nats.system_requests import reload_servers
from backhaul_hub.servers import urls
from backhaul_hub.start_guard import require_here
from backhaul_hub.unfinished import require_finished
from backhaul_runtime.clock import SystemClock

# A control plane that starts has hub.db before it answers.
_PATIENCE_S = 20.0
_LOOK_S = 0.2


def act(
    directory: Path, service: str, question: dict[str, Any] | None = None, *, reads: bool = False
) -> dict[str, Any]:
    """Have an act done (`control.acts`), and return its answer; one that only `reads` may be asked for twice.

    Raises:
        HubError: it was refused; or somebody has hub.db and does not answer.
    """
    return asyncio.run(done(directory, service, question or {}, reads=reads))


async def done(
    directory: Path,
    service: str,
    question: dict[str, Any],
    *,
    reads: bool = False,
    client: Client | None = None,
) -> dict[str, Any]:
    """Return the same; `client`: a connection in account HUB, if there is one. Raises: HubError."""
    until_s = asyncio.get_running_loop().time() + _PATIENCE_S
    while True:
        try:
            return await _asked(directory, service, question, client, reads=reads)
        except NobodyAnswersError as nobody:
            if not (directory / "keys").exists():
                what = f"{nobody.message}; and {directory} is no hub's directory, only a way to it"
                raise HubError(what, hint="start the control plane: backhaul-hub up") from nobody
            try:
                async with alone_with(directory, f"backhaul-hub {service}"):
                    return await _by_ourselves(directory, service, question, reads=reads)
            except RegistryHeldError as held:
                if asyncio.get_running_loop().time() >= until_s:
                    raise HubError(
                        f"{held.message}, and does not answer: {nobody.message}",
                        hint=f"see its log; once it has ended, or answers: backhaul-hub up --dir {directory}, then again",
                    ) from nobody
        await _look_again()


async def answer_pages(
    directory: Path,
    service: str,
    question: dict[str, Any],
    client: Client | None = None,
    *,
    key: str = "after",
) -> AsyncIterator[dict[str, Any]]:
    """Yield the pages of an answer: each names the `key` of the question for the next. Raises: HubError."""
    following: Any = None
    while True:
        where = {} if following is None else {key: following}
        page = await done(directory, service, question | where, reads=True, client=client)
        yield page
        following = page["next"]
        if following is None:
            return


async def pages(directory: Path, service: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of all pages, which stand under the service's name. Raises: HubError."""
    return [
        row async for page in answer_pages(directory, service, question) for row in page[service]
    ]


async def _look_again() -> None:
    await asyncio.sleep(_LOOK_S)


async def _asked(
    directory: Path,
    service: str,
    question: dict[str, Any],
    client: Client | None,
    *,
    reads: bool,
) -> dict[str, Any]:
    if client is not None:
        return await _answered(directory, service, question, client, reads=reads)
    config = load(directory)
    if not await any_listens(config.nats.url):
        raise NobodyAnswersError(not_there(config))
    try:
        client = await connect(config.nats.url, config.nats.control)
    except HubError as error:
        raise NobodyAnswersError(error.message, hint=error.hint) from error
    try:
        return await _answered(directory, service, question, client, reads=reads)
    finally:
        await client.close()


async def _answered(
    directory: Path, service: str, question: dict[str, Any], client: Client, *, reads: bool
) -> dict[str, Any]:
    access, first = Operator(directory), "" if reads else HERE
    ask = partial(access.ask, client, service, question, reads=reads, first=first)
    try:
        return await ask()
    except NobodyAnswersError:
        if not await answers(client):
            raise
    # It has just begun to answer, or is of a version that writes hub.db without a lock.
    try:
        return await ask()
    except NobodyAnswersError as error:
        raise HubError(
            "the control plane that runs is older than this command line",
            hint="restart it: systemctl restart backhaul-hub.service",
        ) from error


def not_there(config: HubConfig) -> str:
    """Return that no server is there, for people."""
    return f"no connection to the hub's nats-server at {config.nats.url}: nobody listens there"


async def _by_ourselves(
    directory: Path, service: str, question: dict[str, Any], *, reads: bool
) -> dict[str, Any]:
    """Do it, with hub.db in our hands."""
    require_finished(directory)
    require_here(directory)
    config, keys, clock = load(directory), read_keys(directory), SystemClock()
    # An act that only reads makes no hub.db.
    opening = Registry.open_existing if reads else Registry.open
    async with await opening(directory / "hub.db") as registry:

        async def learn(files: bool) -> str:
            problem = await told(directory, config, keys, registry, files=files)
            # Where no server runs, each is to know at its start whom to refuse.
            if problem and service in ("revoke", "erase"):
                left = await leave_for_servers(directory, registry, config, clock)
                return "" if left else problem
            return problem

        place = (directory, lambda: config, keys, registry)
        acts = Acts(
            *(directory, keys, registry, clock, learn),
            ErasureActs(*place, clock, None, learn),
        )
        [found] = [each for each in acts.table() if each.service == service]
        asked = Reader(found.question).read(json.dumps(question))
        refused = ""
        try:
            answer = await found.answer(asked)
        except HubError as error:
            refused = error.message
            raise
        finally:
            noted = act_of(service, f"{OPERATOR} {this_user()}", asked, refused)
            if noted is not None and not reads:
                await registry.write([put_pending(clock.now_ns(), noted)])
    said: dict[str, Any] = json.loads(msgspec.json.encode(answer))
    return said


async def told(
    directory: Path, config: HubConfig, keys: HubKeys, registry: Registry, *, files: bool = False
) -> str:
    """Have the servers know hub.db, where no control plane runs; return why not all do, or nothing.

    `files`: have them read their own files as well; no link is cut by that.
    """
    if not await any_listens(config.nats.url):
        return not_there(config)
    servers = len(urls(config.nats.url))
    log = RevocationLog(directory, keys.operator_signing)
    try:
        async with connected(config.nats.url, config.nats.system) as system:
            if files:
                await reload_servers(system, servers)
            keeper = AccountKeeper(keys, registry, SystemClock(), servers=servers, log=log)
            await keeper.push(system)
    except HubError as error:
        return str(error)
    except NatsError as error:
        return repr(error)
    return ""
