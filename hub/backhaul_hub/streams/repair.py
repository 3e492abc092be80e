"""A server's store put away, so that the server copies every stream anew from the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import Json
from backhaul_hub.nats.system_requests import ask_all
from backhaul_hub.streams.repair_rules import (
    QUESTION,
    RepairPlan,
    answering,
    compared,
    last_held,
    missing,
    plan,
)
from backhaul_hub.streams.replicas import ReplicaJudge, replicas

_LOOK_S, _LAST_S = 1.0, 1.0
# After a stop the streams that the server led have leaders again within 4 to 10 s.
_STEADY_S_MAX = 120.0
# Two looks in a row name a damage, and the first has nothing to compare with.
_LOOKS = 3


class Hands(Protocol):
    """The one who stops and starts the server, and moves its store."""

    async def stop(self) -> None:
        """Have the server end; it need not have ended yet. Raises: HubError: nothing was done."""

    async def put_away(self, accounts: Sequence[str]) -> None:
        """Take its store out of its way, and make one that has the directories of the accounts alone.

        A server that finds no directory of an account makes one to try it, and removes it, with a stream that came
        into it meanwhile.

        Raises:
            OSError: it cannot be moved.
        """

    async def start(self) -> None:
        """Have it run. Raises: HubError."""


class ServerRepair:
    """Repairs one server.

    Args:
        system: a connection in the system account, which does not end with that server.
        server: its name.
        servers: how many the hub has.
        hands: those that act at the server's machine.
        tell: is given each step, in words.
    """

    def __init__(
        self,
        system: Client,
        server: str,
        servers: int,
        hands: Hands,
        tell: Callable[[str], None],
    ) -> None:
        self._system = system
        self._server = server
        self._servers = servers
        self._hands = hands
        self._tell = tell

    async def plan(self) -> RepairPlan:
        """Look at all servers for some seconds; return the plan. Raises: HubError: no server answers."""
        answers = await self._ask()
        every, newest_only = compared(answers)
        judge = ReplicaJudge(newest_only)
        judge.look(replicas(answers, every))
        for _ in range(_LOOKS - 1):
            await asyncio.sleep(_LOOK_S)
            answers = await self._ask()
            judge.look(replicas(answers, every))
        return plan(answers, judge.damages, self._server, self._servers)

    async def carry_out(self) -> None:
        """Stop the server, have its store put away, start it, and return when it holds everything again.

        Where the others are not found whole once it stands still, it is started with the store that it had.

        Raises:
            HubError: the others are not whole, or it still lacks messages in the end.
            OSError: its store cannot be moved.
        """
        await self._hands.stop()
        put_away = False
        try:
            await self._gone()
            self._tell(f"{self._server} has ended; the others are looked at once more")
            found = await self._require_others()
            await self._hands.put_away(found.accounts)
            put_away = True
        finally:
            # Also where somebody ends this command: two of three servers are one too few to lose another.
            if not put_away:
                self._tell(f"{self._server} is started with the store that it had")
            await self._hands.start()
        await self._copied()

    async def _gone(self) -> None:
        while True:
            there = {each["server"]["name"] for each in await self._answers()}
            if there and self._server not in there:
                return
            await asyncio.sleep(_LOOK_S)

    async def _require_others(self) -> RepairPlan:
        """Return the plan once the others are whole without it.

        Raises:
            HubError: they are not for longer than elections take.
        """
        end_s = asyncio.get_running_loop().time() + _STEADY_S_MAX
        while (found := await self._plan_or_none()) is None or found.against:
            if asyncio.get_running_loop().time() > end_s:
                why = "; ".join(found.against) if found else "no server answers"
                raise HubError(f"nothing was changed: {why}", hint="mend that first, then again")
            await asyncio.sleep(_LOOK_S)
        return found

    async def _plan_or_none(self) -> RepairPlan | None:
        try:
            return await self.plan()
        except (HubError, NatsError):
            return None

    async def _copied(self) -> None:
        """Return once the server holds all that the others held when it was first seen. Raises: HubError."""
        wanted: dict[str, int] = {}
        left: list[str] | None = None
        while left != []:
            answers = await self._answers()
            if self._server in answering(answers):
                wanted = wanted or last_held(answers, self._server)
                now = missing(answers, self._server, wanted)
                if wanted and now != left:
                    left = now
                    self._tell(
                        f"{self._server} holds {len(wanted) - len(left)} of {len(wanted)} streams"
                    )
            if left != []:
                await asyncio.sleep(_LOOK_S)
        end_s = asyncio.get_running_loop().time() + _STEADY_S_MAX
        while (found := await self._plan_or_none()) is None or found.lacks or found.against:
            if found and found.lacks and asyncio.get_running_loop().time() > end_s:
                raise HubError(
                    f"{self._server} lacks {', '.join(found.lacks)} still",
                    hint="its store was not put away before it was started: again",
                )
            await asyncio.sleep(_LOOK_S)

    async def _answers(self) -> list[Json]:
        """Return the answers; none while the connection goes over to another server."""
        try:
            return await self._ask()
        except (HubError, NatsError):
            return []

    async def _ask(self) -> list[Json]:
        return await ask_all(self._system, "JSZ", self._servers, QUESTION, last_s=_LAST_S)
