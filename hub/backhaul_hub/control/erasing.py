"""Erasures: asked for as an act, carried out at the next start of the control plane, which is at once.

Nothing of a device may be in memory as it goes: heads, lanes, alerts, commands that wait. At a start there is nothing
yet, so there is one way for an erasure, for one that was cut short, and for one that is done again after a restore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub import questions as q
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.backup.last_backup import last_backup
from backhaul_hub.backup.retention import holding
from backhaul_hub.config import HubConfig
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.db.devices import known_ids
from backhaul_hub.db.erased import Erasure, erasure_of, erasures, put_erasures
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.revoke import revoke_device
from backhaul_hub.erase.eraser import Eraser
from backhaul_hub.erase.log import ErasureLog
from backhaul_hub.erase.people import erase_person, forget_in_file
from backhaul_hub.erase.plan import TABLES, plan_of, plan_of_person
from backhaul_hub.erase.rows import first_of
from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.people.credentials import remove_person
from backhaul_hub.people.rows import known_people
from backhaul_runtime.clock import Clock

log = structlog.get_logger(__name__)

# What was on its way as a link was cut is in UP within moments.
_STRAY_S = 60.0


@dataclass(eq=False)
class ErasureActs:
    """The acts of command lines on erasures.

    Args:
        client: a connection in account HUB, None where no control plane runs.
        learn: has servers know who is shut out.
        again: has the control plane start again, once this is answered.
    """

    _directory: Path
    _config: Callable[[], HubConfig]
    _keys: HubKeys
    _registry: Registry
    _clock: Clock
    _client: Client | None
    _learn: Callable[[bool], Awaitable[str]]
    _again: Callable[[], None] = lambda: None

    async def plan(self, asked: q.Erase) -> dict[str, Any]:
        """Return the places that an erasure would take something from."""
        if bool(asked.device) == bool(asked.person):
            raise HubError("say a device, or a person")
        if asked.person:
            return await plan_of_person(self._registry, asked.person)
        config = self._config()
        return await plan_of(
            *(self._client, self._registry, self._directory),
            env=config.twin.env,
            shards=config.fleet.shards,
            device=asked.device,
        )

    async def erase(self, asked: q.Erase) -> dict[str, Any]:
        """Begin an erasure: a device is shut out, and the control plane starts again. A person's name goes now."""
        plan = await self.plan(asked)
        if asked.person:
            return {"plan": plan} | await self._person(asked.person)
        problem = await self._begin(asked.device, self._config())
        self._again()
        return {"plan": plan, "problem": problem, "restarts": self._client is not None}

    async def erasures(self, _: q.Nothing) -> dict[str, Any]:
        """Return all erasures, and the open part of each."""
        rows = (await erasures(self._registry)).values()
        waits = await asyncio.to_thread(waiting, self._directory, list(rows))
        return {"erasures": [asdict(each) | {"waits": waits[each.device]} for each in rows]}

    async def tables_erased(self, asked: q.OneDevice) -> dict[str, Any]:
        """Take in that the tables hold nothing of an erased device."""
        known = await erasure_of(self._registry, asked.device)
        if known is None:
            raise RegistryError(f"{asked.device} was not erased")
        done = replace(known, tables_ns=known.tables_ns or self._clock.now_ns())
        await self._registry.write([put_erasures([done])])
        return asdict(done)

    async def _begin(self, device: str, config: HubConfig) -> str:
        """Shut a device out, and note that it is to be erased, also beside the keys; return why not all servers know."""
        now_ns = self._clock.now_ns()
        if await known_ids(self._registry, [device]):
            documents = Documents(self._directory, config, self._keys)
            await revoke_device(self._registry, documents, self._clock, device)
        problem = await self._learn(False)
        before = await erasure_of(self._registry, device)
        first_ns = (before and before.first_ns) or await first_of(self._registry, device)
        asked_ns = before.asked_ns if before else now_ns
        await self._registry.write([put_erasures([Erasure(device, asked_ns, first_ns)])])
        await self._noted()
        log.info("erasure_begun", device=device)
        return problem

    async def _person(self, name: str) -> dict[str, Any]:
        if name in await known_people(self._registry):
            await remove_person(self._registry, self._clock, name)
        signer = self._keys.operator_signing
        person = await erase_person(self._registry, signer, name, self._clock.now_ns())
        await self._noted()
        await forget_in_file(self._registry, self._directory, signer)
        await self._registry.compact()
        (self._directory / "people" / f"{name}.creds").unlink(missing_ok=True)
        problem = await self._learn(False)
        self._again()  # alerts and commands in memory name people, too
        return {"pseudonym": person.pseudonym, "problem": problem}

    async def _noted(self) -> None:
        await ErasureLog(self._directory, self._keys.operator_signing).merge(self._registry)


@dataclass(eq=False)
class Erasing(Subsystem):
    """Carries out erasures before anything is read, and looks whether more of the devices comes.

    Args:
        again: has the control plane start again.
    """

    _ground: Ground
    _again: Callable[[], None]

    async def start(self) -> None:
        """Erase."""
        ground = self._ground
        self._eraser = Eraser(
            *(ground.client, ground.api, ground.registry, ground.keys, ground.directory),
            ground.clock,
            env=ground.config.twin.env,
            shards=ground.config.fleet.shards,
        )
        await self._eraser.run()

    def tasks(self) -> Tasks:
        """Return the look for messages that were on their way."""
        yield self._watch()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_STRAY_S)
            try:
                if stray := await self._eraser.stray():
                    log.warning("erased_devices_are_here_again", devices=stray)
                    await self._eraser.again(stray)
                    self._again()
            except (HubError, NatsError) as error:
                log.warning("erased_devices_not_looked_for", error=str(error))


async def owed(directory: Path, registry: Registry, elsewhere: Iterable[str]) -> dict[str, str]:
    """Return by device the open part of its erasure, for people; devices whose tables are done are noted.

    Args:
        directory: the hub's.
        registry: hub.db.
        elsewhere: devices that the tables hold nothing of, as the server of history says.

    Raises:
        RegistryError: hub.db refused.
    """
    rows, said = await erasures(registry), set(elsewhere)
    heard = [
        replace(each, tables_ns=each.done_ns)
        for each in rows.values()
        if not each.tables_ns and each.done_ns and each.device in said
    ]
    if heard:
        await registry.write([put_erasures(heard)])
        rows |= {each.device: each for each in heard}
    waits = await asyncio.to_thread(waiting, directory, list(rows.values()))
    return {device: "; ".join(some) for device, some in waits.items() if some}


def waiting(directory: Path, rows: Iterable[Erasure]) -> dict[str, list[str]]:
    """Return by device where it is not erased yet, with the command that does it."""
    rows, newest, found = list(rows), last_backup(directory), dict[str, list[str]]()
    names = [each.device for each in rows]
    held = set().union(*holding(Path(newest.path), names).values()) if newest and names else set()
    for each in rows:
        said = found[each.device] = []
        if not each.done_ns:
            said.append("the hub: it is erased as the control plane starts")
        if newest is not None and each.device in held:
            said.append(f"backups beside {newest.path}: the next backhaul-hub backup --keep")
        if not each.tables_ns:
            said.append(f"the tables: {TABLES.format(device=each.device)}")
    return found
