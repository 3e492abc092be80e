"""A hub, an honest vehicle that works on it, and a stolen one: where attacks are tried.

The hub is what `init` and `add-device` write, with its control plane; the honest vehicle is a real
leaf server with the streams that an agent makes, whose messages have to arrive exactly once, both
ways, whatever goes on beside. `HubFacts` says what of all that is not the attacker's own; an attack has
done harm where facts have changed, or where something was heard that tells of another vehicle.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error as NatsError

from backhaul_codec import Point, encode_frame
from backhaul_codec.protocol.credentials import parse_seed
from backhaul_codec.protocol.enrolment import (
    read_answer,
    read_token,
    request_subject,
    write_request,
)
from backhaul_codec.protocol.identity import Identity, decode_identity
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.nkey import new_key
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from backhaul_hub.shards import relay_name
from backhaul_runtime.clock import SystemClock
from tests.support.hub_acts import create_device, make_token, revoke_key
from tests.support.rig.parts import HubRig

from .facts import (
    CANARY,
    EPOCH,
    HONEST,
    LAMP,
    NOBODYS,
    OWN_VALUE,
    REVOKED,
    SOURCE,
    STOLEN,
    HubFacts,
)
from .fake_source import FakeSource
from .honest import HonestVehicle
from .leaf_client import RawLeaf
from .weaknesses import MESSAGE_IDS, REAL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_codec.protocol.enrolment import Token
    from backhaul_hub.access.account_names import AccountName

    from .attack import Deed
    from .facts import Facts
    from .weaknesses import Weakness

MARK = "4242424242"
"""In what an attack sends, so that it is known again."""
SECRET = b"only VID-002 may know"
_TAKES_PUSHES_S = 10.0
_DEADLINE_S = 60.0
# Where work is meant to be kept from being done.
_DEADLINE_WEAK_S = 1.0
_LOOKS = 600
_LOOK_S = 0.01


class Ground:
    """One hub with one rule dropped, or none; all of it ends with ``stack``."""

    def __init__(self, directory: Path, weakness: Weakness, stack: AsyncExitStack) -> None:
        self.weakness = weakness
        self.hub = HubRig(directory / "hub")
        self.sent = 0
        self._directory = directory
        self._stack = stack
        self._leafs: list[RawLeaf] = []
        self._source: FakeSource | None = None
        self._patience_s = _DEADLINE_S

    async def open(self) -> Ground:
        """Make and start all of it."""
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        self.weakness.drop(patch)
        # What the hub says by itself a while after a link came up would look like an attack's work.
        patch.setattr("backhaul_hub.links.recent_setups.SETTLED_S", 3600.0)
        hub = self.hub
        layout = HubLayout(
            *("127.0.0.1", "127.0.0.1", hub.client_port, hub.leaf_port),
            *(f"nats-leaf://127.0.0.1:{hub.leaf_port}", 1, 3600.0),
        )
        create_hub(hub.directory, layout)
        config, clock = load(hub.directory), SystemClock()
        for device in (STOLEN, HONEST, REVOKED, SOURCE):
            await create_device(hub.directory, config, clock, device, DeviceSettings())
        self.stolen, self.honest, self.revoked = map(self._identity, (STOLEN, HONEST, REVOKED))
        self.keys = read_keys(hub.directory)
        made = [
            await make_token(hub.directory, config, clock, device, DeviceSettings(), 3600.0)
            for device in ("VID-005", NOBODYS, "VID-007")
        ]
        *self.tokens, self.used_token = (_asker(read_token(each.word)) for each in made)
        self._stack.push_async_callback(hub.server.stop)
        await hub.server.start()
        await hub.server.wait_listening(hub.client_port)
        # Before the control plane does: an account that two load at once has been seen without a store.
        self.control = await self._connect("control")
        self.system = await self._connect("system")
        plane = ControlPlane(hub.directory, config, clock)
        running = asyncio.create_task(plane.run())
        self._stack.push_async_callback(_stopped, plane, running)
        self.api = JetStreamApi(self.control)
        self._hub_facts = HubFacts(hub.directory, self.api, self.system, self.honest.token)
        await self._answers(running)
        await self._revoke()
        await self._use_token()
        self._vehicle = HonestVehicle(self._directory / "honest", self.honest)
        self._stack.push_async_callback(self._vehicle.stop)
        await self._vehicle.start()
        await self._takes_pushes(plane)
        await self._restore()
        await self._vehicle.send("f.lamp", SECRET)
        await self._work()
        if self.weakness is not REAL:
            self._patience_s = _DEADLINE_WEAK_S
        return self

    def account(self, name: AccountName) -> str:
        """Return an account's public key."""
        return self.keys.account(name).public

    def leaf(self, identity: Identity | None = None, **claims: Any) -> RawLeaf:
        """Return a leaf that has yet to connect, with the stolen vehicle's login and other claims."""
        # Of two of one name the server keeps the newer.
        said = {"name": f"stolen-{len(self._leafs)}"} | claims
        leaf = RawLeaf.of(identity or self.stolen, "127.0.0.1", self.hub.leaf_port, **said)
        self._leafs.append(leaf)
        return leaf

    async def source(self) -> FakeSource:
        """Return the attacker's fake source, which the hub sources; one for all attacks."""
        if self._source is None or self._source.closed:
            identity = self._identity(SOURCE)
            leaf = RawLeaf.of(identity, "127.0.0.1", self.hub.leaf_port)
            self._stack.push_async_callback(leaf.close)
            self._source = await FakeSource(leaf, identity).open()
        return self._source

    async def attacked(self, deed: Deed, expected: str = "") -> list[str]:
        """Carry an attack out beside honest work; return what harm it has done, in words.

        Where harm is ``expected``, wait for that part of the words a while.
        """
        await self._restore()
        before = await self._facts()
        self._vehicle.told.clear()
        try:
            work = asyncio.create_task(self._work())
            said = await deed(self) or []
            harm = await _lost(work)
            for leaf in self._leafs:
                await leaf.flush()
            if self._source is not None:
                await self._source.flush()
            harm = [*said, *harm, *await _lost(asyncio.create_task(self._work()))]
            found = harm + await self._seen(before)
            for _ in range(_LOOKS if expected else 0):
                if any(expected in each for each in found):
                    break
                await asyncio.sleep(0.05)
                found = harm + await self._seen(before)
        finally:
            for leaf in self._leafs:
                await leaf.close()
            self._leafs.clear()
        return found

    async def _facts(self) -> Facts:
        vehicle = {f"honest vehicle's {each}": "there" for each in await self._vehicle.facts()}
        return await self._hub_facts.read() | vehicle

    async def _seen(self, before: Facts) -> list[str]:
        """Return what has changed, and what came to ears that it was not meant for."""
        after = await self._facts()
        changed = [
            f"{key}: {before.get(key, 'was not')} -> {after.get(key, 'is not')}"
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key)
        ]
        heard = [line for leaf in self._leafs for line in leaf.heard_of(HONEST, SECRET)]
        strange = self._vehicle.told_of(STOLEN, SOURCE, MARK)
        return [*changed, *heard, *(f"told the honest one: {line}" for line in strange)]

    async def _work(self) -> None:
        """Send a reading and a setting, and see both arrive, once, and nothing in their place."""
        if not self.weakness.serves:
            return
        self.sent += 1
        number = self.sent
        point = Point("gps", "speed", number, SECRET.decode())
        body = encode_frame([point], epoch=EPOCH, seq=number)
        headers = {"Nats-Msg-Id": f"bulk-{number}"} if self.weakness is MESSAGE_IDS else None
        await self._vehicle.send("f.gps", body, headers)
        setting = b"%d" % number
        await self.api.publish(f"in.{HONEST}.p.gps.mode.%", setting)
        subject = f"up.{HONEST}.f.gps"
        async with asyncio.timeout(self._patience_s):
            newest, count = self._vehicle.newest, self._count
            await _until(lambda: _is(newest("p.gps.mode.%"), setting), self._patience_s)
            await _until(lambda: _is(count("UP_00", subject), number), self._patience_s)
        assert await self._last("UP_00", subject) == body, "another reading came"

    async def _restore(self) -> None:
        """Have what attacks destroy where they get through."""
        if await self.api.stream_info(CANARY) is None:
            await self.api.request(
                f"STREAM.CREATE.{CANARY}",
                {"name": CANARY, "subjects": ["canary.>"], "allow_direct": True},
            )
            await self.api.publish(f"canary.{HONEST}", SECRET)
            worker = {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": 3600 * 10**9}
            await self.api.request(
                f"CONSUMER.CREATE.{CANARY}.worker", {"stream_name": CANARY, "config": worker}
            )
            # Under way to whoever works on it, who has not acknowledged it yet.
            await self.control.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{CANARY}.worker", b"", reply="hub.canary"
            )
            await _until(lambda: _is(self._hub_facts.waiting(), "1"), _DEADLINE_S)
        await self.api.publish(LAMP, SECRET)
        # Empty, as of one that was deleted: as an answer it makes a request without a body.
        await self.api.publish(OWN_VALUE, b"")

    def _identity(self, device: str) -> Identity:
        path = self.hub.directory / "devices" / device / "identity.json"
        return decode_identity(path.read_text())

    async def _count(self, stream: str, subject: str) -> int:
        info = await self.api.request(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
        return int((info["state"].get("subjects") or {}).get(subject, 0))

    async def _last(self, stream: str, subject: str) -> bytes:
        ask = {"last_by_subj": subject}
        found = (await self.api.request(f"STREAM.MSG.GET.{stream}", ask))["message"]
        return base64.b64decode(found.get("data", ""))

    async def _takes_pushes(self, plane: ControlPlane) -> None:
        """Have the hub take in what is pushed in the honest vehicle's name, and source all that it sends: it never may push.

        Where a weakness keeps the hub from that, the attacks that need it find out.
        """
        mine = f"u.{HONEST}."
        with contextlib.suppress(TimeoutError, HubError):
            async with asyncio.timeout(_TAKES_PUSHES_S if self.weakness.serves else 0.0):
                while True:
                    # Nothing stays of it before the hub knows that this leaf is connected.
                    if any(device == HONEST for device, _ in plane.fleet.sources.lags):
                        plane.fleet.sources.push(HONEST, EPOCH, {"bulk": 1 << 40})
                    found = (await self.api.info(relay_name(0))).get("sources") or []
                    made = [one for each in found for one in each.get("subject_transforms") or []]
                    if any(one["src"].startswith(mine) for one in made):
                        return
                    await asyncio.sleep(0.05)
        plane.fleet.sources.push(HONEST, EPOCH, {"bulk": 1 << 40})

    async def _revoke(self) -> None:
        key = parse_seed(self.revoked.seed).public_key
        async with await Registry.open(self.hub.directory / "hub.db") as registry:
            keeper = AccountKeeper(self.keys, registry, SystemClock())
            await revoke_key(registry, keeper, self.system, key, REVOKED)

    async def _use_token(self) -> None:
        used = self.used_token
        leaf = await self.leaf(used, domain=used.token).open()
        body = write_request(used.token, parse_seed(new_key("user").seed))
        answer = None
        async with asyncio.timeout(_DEADLINE_S):
            # The control plane may not have come as far yet; the same key has the same answer.
            while answer is None:
                answer = await leaf.request(request_subject(used.token), body, wait_s=0.5)
        found = read_answer(answer.payload, used.device)
        assert isinstance(found, Identity), found
        await leaf.close()
        self._leafs.clear()

    async def _connect(self, user: str) -> Client:
        client = await self.hub.connect(user)
        self._stack.push_async_callback(client.close)
        return client

    async def _answers(self, running: asyncio.Task[None]) -> None:
        """Wait until the control plane does."""
        async with asyncio.timeout(_DEADLINE_S):
            while not running.done():
                with contextlib.suppress(NatsError):
                    await self.control.request("hub.devices", b"", timeout=1)
                    return
                await asyncio.sleep(0.05)
        running.result()


def _asker(token: Token) -> Identity:
    """Return a token as an identity, to log in with; its id stands for the device's own token."""
    return Identity(
        device=token.device,
        token=token.id,
        leaf_urls=token.leaf_urls,
        jwt=token.jwt,
        seed=token.seed,
    )


async def _until(condition: Callable[[], Awaitable[bool]], deadline_s: float) -> None:
    """Ask again and again until it is so.

    Raises:
        TimeoutError: it is not, in time. Not by `asyncio.timeout` alone: nats-py loses a cancellation
            that comes while it flushes, and this would ask for ever.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while not await condition():
        if loop.time() > end_s:
            raise TimeoutError
        await asyncio.sleep(_LOOK_S)


async def _is(found: Awaitable[object], wanted: object) -> bool:
    return await found == wanted


async def _lost(work: asyncio.Task[None]) -> list[str]:
    """Return what kept honest work from being done."""
    try:
        await work
    except (TimeoutError, AssertionError, HubError) as error:
        return [f"honest work: {error!r}"]
    return []


async def _stopped(plane: ControlPlane, running: asyncio.Task[None]) -> None:
    plane.stop()
    await asyncio.wait([running])
