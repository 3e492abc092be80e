"""Taking people's questions and answering them: the shell around `people.services`.

Questions come out of account PEOPLE as messages, not as calls of a service: so the hub sees where an
answer is to go, and answers into the inbox of who asked, or not at all. (With a service the server
sends answers to any subject the asker names, and checks no permission: docs/people.md.)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_hub.errors import HubError, RightsError
from backhaul_hub.nats.replies import respond_to
from backhaul_hub.people.identity import QUESTIONS, Person, person_of

log = structlog.get_logger(__name__)

AT_ONCE_MAX = 32
"""Questions of all people that are being answered."""
OF_ONE_MAX = 4
"""The same of one person; further ones of theirs are refused, and others go on."""
_QUEUE_MAX = 1000
_QUEUE_BYTES = 64 << 20


class AskService:
    """Answers questions as they come, a few at once.

    Args:
        answer: called with a person, a service, and a question; its answer is encoded by msgspec.
    """

    def __init__(
        self, client: Client, answer: Callable[[Person, str, bytes], Awaitable[Any]]
    ) -> None:
        self._client = client
        self._answer_person = answer
        self._room = asyncio.Semaphore(AT_ONCE_MAX)
        self._busy: Counter[str] = Counter()
        self._misdirected: set[str] = set()

    async def run(self) -> NoReturn:
        """Answer until cancelled. Raises: HubError: the connection has closed for good."""
        async with asyncio.TaskGroup() as group:
            # The client drops what is beyond these limits: who floods the hub gets no answer.
            subscription = await self._client.subscribe(
                QUESTIONS, pending_msgs_limit=_QUEUE_MAX, pending_bytes_limit=_QUEUE_BYTES
            )
            async for message in subscription.messages:
                person = self._asker(message)
                if person is not None:
                    await self._room.acquire()
                    self._busy[person.name] += 1
                    group.create_task(self._respond(message, person))
        raise HubError("the connection for people's questions has closed")

    def _asker(self, message: Msg) -> Person | None:
        """Return who asks and may be answered; None where nobody does."""
        try:
            person, _ = person_of(message.subject)
        except RightsError as error:
            log.warning("not_a_question", error=str(error))
            return None
        if message.reply.startswith(f"{person.inbox}."):
            return person
        # Whoever asks so wants no answer, or wants it to be heard by somebody else.
        if person.name not in self._misdirected and len(self._misdirected) < _QUEUE_MAX:
            self._misdirected.add(person.name)
            log.warning("answer_misdirected", person=person.name, reply=message.reply[:200])
        return None

    async def _respond(self, message: Msg, person: Person) -> None:
        try:
            await respond_to(self._client, message, self._answer)
        except Exception:
            # Whatever somebody has thought of to ask, the control plane goes on.
            log.exception("question_failed", subject=message.subject)
        finally:
            self._room.release()
            self._busy[person.name] -= 1
            if not self._busy[person.name]:
                del self._busy[person.name]

    async def _answer(self, message: Msg) -> Any:
        person, service = person_of(message.subject)
        if self._busy[person.name] > OF_ONE_MAX:
            raise HubError(f"{OF_ONE_MAX} questions of {person.name} are being answered already")
        return await self._answer_person(person, service, message.data)
