"""Pushing accounts on request: a command that has written to hub.db asks the one control plane, in account SYS."""

from __future__ import annotations

import json

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.errors import HubError
from backhaul_hub.nats.connection import heard

log = structlog.get_logger(__name__)

SUBJECT = "hub.accounts"
# Servers that are away are waited for, three times three seconds, for what they have and what they are told.
_WAIT_S = 30.0


async def push_on_request(accounts: AccountKeeper, system: Client) -> None:
    """Push whenever a command asks for it, and answer with the result.

    `system`: a connection in the system account; this is done for as long as it lives.
    """

    async def answer(message: Msg) -> None:
        said = {}
        try:
            await accounts.push(system)
        except HubError as error:
            said = {"error": {"message": error.message, "hint": error.hint}}
        except NatsError as error:
            said = {"error": {"message": repr(error), "hint": ""}}
        except Exception:  # who asked is answered, and would wait half a minute
            log.exception("accounts_not_pushed")
            words = "a fault of the control plane: the servers may not know"
            said = {"error": {"message": words, "hint": "its log has the traceback"}}
        await message.respond(json.dumps(said).encode())

    await system.subscribe(SUBJECT, cb=answer)
    await heard(system)


async def push_by_whom_it_is_due(accounts: AccountKeeper, system: Client) -> None:
    """Have the control plane push the accounts; where none runs, push them.

    Args:
        accounts: of the same hub.db.
        system: a connection in the system account.

    Raises:
        HubError: a server refused or did not answer, or hub.db is older than what the servers have;
            or the control plane that runs has another hub.db.
    """
    try:
        message = await system.request(SUBJECT, b"", timeout=_WAIT_S)
    except NoRespondersError:
        await accounts.push(system)
        return
    except NatsError as error:
        raise HubError(f"the control plane did not take note: {error!r}") from error
    if refused := json.loads(message.data).get("error"):
        raise HubError(refused["message"], hint=refused["hint"])
    if await accounts.unknown_at_servers(system):
        raise HubError(
            "the servers do not know of all revocations: the control plane that runs has another hub.db",
            hint="run this in the directory of the control plane that runs, with --dir",
        )
