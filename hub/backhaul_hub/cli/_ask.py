"""Asking the running control plane, for the subcommands that do: as the hub's operator, or as a person.

An operator has the hub directory (`--dir`) and asks `hub.<service>`. A person has credentials
(`--creds`), asks `ask.<…>.<service>` and is answered within the rights that they stand for.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_hub import questions
from backhaul_hub.config import load
from backhaul_hub.errors import HubError, NobodyAnswersError
from backhaul_hub.nats.connection import connected
from backhaul_hub.people.login import connect_person, read_person

_TIMEOUT_S = 30.0
# Of one that answers already: while a server of a cluster is away, each that is told of accounts is waited for.
_ACT_S = 90.0
# Through a cluster an answer may come before its server knows who waits for it, and is gone then.
# Each time twice as long after: a person's question that takes long is one of the few of theirs that are
# answered at once (OF_ONE_MAX), and so is each that is asked again beside it.
_AGAIN_S = 2.0


class Access(ABC):
    """The way to the control plane, and the user's name there."""

    def __init__(self, hint: str, silent: str = "") -> None:
        self._hint = hint
        self._hint_silent = silent or hint

    @abstractmethod
    def client(self) -> AbstractAsyncContextManager[Client]:
        """Connect, and close the connection at the end. Raises: HubError."""

    @abstractmethod
    def subject(self, service: str) -> str:
        """Return where a service is asked."""

    def headers(self) -> dict[str, str]:
        """Return the headers of each question."""
        return {}

    async def ask(
        self,
        client: Client,
        service: str,
        question: dict[str, Any],
        *,
        reads: bool = False,
        first: str = "",
    ) -> dict[str, Any]:
        """Ask one question and return the answer; one that only `reads` is asked again while none comes.

        `first`: a service that reads. Once it has answered, an answer to the question finds its way, too.

        Raises:
            NobodyAnswersError: no control plane; nothing was asked.
            HubError: it does not answer; or it refused, in its own words.
        """
        body = json.dumps(question).encode()
        again_s = _AGAIN_S if reads else None
        before = self.subject(first) if first else ""
        try:
            message = await _request(
                client, self.subject(service), body, again_s, before, self.headers()
            )
        except NoRespondersError as error:
            what = f"the control plane does not answer: {error!r}"
            raise NobodyAnswersError(what, hint=self._hint) from error
        except (NatsError, TimeoutError) as error:
            what = f"the control plane does not answer: {error!r}"
            raise HubError(what, hint=self._hint_silent) from error
        answer: dict[str, Any] = json.loads(message.data)
        if refused := answer.get("error"):
            raise HubError(refused["message"], hint=refused.get("hint", ""))
        return answer


class Operator(Access):
    """The holder of the hub directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"start it with: backhaul-hub up --dir {directory}",
            "it is there and silent: see its log, then: systemctl restart backhaul-hub.service",
        )
        self.directory = directory

    def client(self) -> AbstractAsyncContextManager[Client]:
        """Connect as the control plane does."""
        return hub_client(self.directory)

    def subject(self, service: str) -> str:
        """Return where the control plane answers in account HUB."""
        return questions.subject(service)

    def headers(self) -> dict[str, str]:
        """Return who runs the command line, for the audit log."""
        return {questions.WHO_HEADER: this_user()}


class Visitor(Access):
    """A person with credentials.

    Raises:
        HubError: the file is no credentials of a person.
    """

    def __init__(self, creds: Path, server: str, ca: Path | None) -> None:
        super().__init__("the control plane does not run, or these credentials were withdrawn")
        self._creds = creds
        self._server = server
        self._ca = ca
        self.person = read_person(creds)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Connect with the credentials."""
        client = await connect_person(self._server, self._creds, self.person, self._ca)
        try:
            yield client
        finally:
            await client.close()

    def subject(self, service: str) -> str:
        """Return where this person's questions go."""
        return self.person.ask(service)


def ask(
    access: Access, service: str, question: dict[str, Any] | None = None, *, reads: bool = False
) -> dict[str, Any]:
    """Ask one question and return the answer; one that only `reads` is asked again while none comes.

    Raises:
        HubError: no server, no control plane; or the control plane refused, in its own words.
    """
    return asyncio.run(_ask(access, service, question or {}, reads=reads))


def hub_client(directory: Path) -> AbstractAsyncContextManager[Client]:
    """Connect to the hub's server as the control plane does, and close it at the end."""
    nats = load(directory).nats
    return connected(nats.url, nats.control)


async def _request(
    client: Client,
    subject: str,
    body: bytes,
    again_s: float | None,
    before: str,
    headers: dict[str, str],
) -> Msg:
    """Ask, and every so often again (None: once), until the first answer; `before` that, ask there (empty: do not).

    Raises:
        NatsError, TimeoutError: nobody answers.
        HubError: the question at `before` was answered, and this one was not.
    """
    inbox = client.new_inbox()
    answers = await client.subscribe(f"{inbox}.*")
    try:
        if not before:
            return await _first(
                *(client, answers, subject, body, f"{inbox}.answer", again_s, _TIMEOUT_S), headers
            )
        await _first(client, answers, before, b"", f"{inbox}.before", _AGAIN_S, _TIMEOUT_S, {})
        try:
            return await _first(
                *(client, answers, subject, body, f"{inbox}.answer", again_s, _ACT_S), headers
            )
        except TimeoutError as error:
            raise HubError(
                f"the control plane was asked, and has not answered for {_ACT_S:g} s",
                hint="whether it was done is not known: look, then again",
            ) from error
    finally:
        if not client.is_closed:
            await answers.unsubscribe()


async def _first(
    client: Client,
    answers: Subscription,
    subject: str,
    body: bytes,
    reply: str,
    again_s: float | None,
    timeout_s: float,
    headers: dict[str, str],
) -> Msg:
    """Return the first answer that comes to `reply`. Raises: NatsError, TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while True:
            await client.publish(subject, body, reply=reply, headers=headers or None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    while (message := await answers.next_msg(timeout=None)).subject != reply:
                        pass  # a later answer to what was asked before
                    break
            again_s = None if again_s is None else 2 * again_s
    if message.headers and message.headers.get("Status") == "503":
        raise NoRespondersError
    return message


def this_user() -> str:
    """Return the name of the user on this machine; of one without a name the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


async def _ask(
    access: Access, service: str, question: dict[str, Any], *, reads: bool
) -> dict[str, Any]:
    async with access.client() as client:
        return await access.ask(client, service, question, reads=reads)
