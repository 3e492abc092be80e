"""Having servers and control plane take note of a command's changes."""

from __future__ import annotations

import json
from pathlib import Path

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_hub import questions
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.revocation_log import RevocationLog
from backhaul_hub.access.service import push_by_whom_it_is_due
from backhaul_hub.config import HubConfig
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.system_requests import reload_servers
from backhaul_hub.servers import urls
from backhaul_runtime.clock import SystemClock


async def tell_hub(directory: Path, config: HubConfig, *, files: bool = False) -> str | None:
    """Have servers and control plane take note of hub.db; return why they could not.

    `files`: of what stands in the servers' own files as well; no link is cut by that.
    """
    servers = len(urls(config.nats.url))
    try:
        system = await connect(config.nats.url, config.nats.system)
        try:
            if files:
                await reload_servers(system, servers)
            async with await Registry.open(directory / "hub.db") as registry:
                keys = read_keys(directory)
                revoked = RevocationLog(directory, keys.operator_signing)
                keeper = AccountKeeper(keys, registry, SystemClock(), servers=servers, log=revoked)
                await push_by_whom_it_is_due(keeper, system)
        finally:
            await system.close()
            await _tell_control(config)
    except HubError as error:
        return str(error)
    return None


async def _tell_control(config: HubConfig) -> None:
    """Let the control plane read hub.db again."""
    control = await connect(config.nats.url, config.nats.control)
    try:
        answer = await control.request(questions.subject("reload"), b"", timeout=10)
    except NoRespondersError:
        # No control plane runs; it reads hub.db when it starts.
        return
    except NatsError as error:
        raise HubError(f"the control plane did not take note: {error!r}") from error
    finally:
        await control.close()
    if refused := json.loads(answer.data).get("error"):
        raise HubError(f"the control plane did not take note: {refused['message']}")
