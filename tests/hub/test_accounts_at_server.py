"""Accounts and logins at the hub's real server: who comes in, who does not, and who is thrown out."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import NoRespondersError

from backhaul_codec.protocol.credentials import Credentials
from backhaul_hub.access.account_names import ACCOUNTS
from backhaul_hub.access.key_rotations import Rotation, begin
from backhaul_hub.access.keys import HubKeys, read_keys
from backhaul_hub.access.logins import new_login, vehicle_jwt
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.rules import PAYLOAD_BYTES_MAX, vehicle_rights
from backhaul_hub.access.up_guard import guessable_names
from backhaul_hub.config import Login as HubLogin
from backhaul_hub.config import load
from backhaul_hub.db.devices import add_device
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.errors import HubError
from backhaul_hub.lane_names import NODES_MAX
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.jwt import Account, Rights, account_jwt, body_of, user_jwt
from backhaul_hub.nats.nkey import Key, new_key
from backhaul_hub.nats.system_requests import ask_each
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_hub.streams.streams import stream_names
from backhaul_runtime.clock import SystemClock
from tests.security.leaf_client import RawLeaf
from tests.support.hub_acts import revoke_key
from tests.support.hub_layout import local_layout
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import HubRig
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = pytest.mark.nats

NOW_S = SystemClock().now_ns() // 10**9


class Login:
    """A vehicle's key and JWT."""

    def __init__(self, key: Key, jwt: str) -> None:
        self.key, self.jwt = key, jwt

    def sign(self, nonce: str) -> dict[str, Any]:
        signature = base64.urlsafe_b64encode(self.key.sign(nonce.encode())).rstrip(b"=")
        return {"sig": signature.decode()}


class Hub:
    """A hub's server, its keys and hub.db, and a connection in its system account."""

    def __init__(self, rig: HubRig, registry: Registry, system: Client) -> None:
        self.rig = rig
        self.keys = read_keys(rig.directory)
        self.registry = registry
        self.system = system
        self.keeper = AccountKeeper(self.keys, registry, SystemClock())

    def vehicle(self, device: str = "VID-001", *, keys: HubKeys | None = None) -> Login:
        key = new_key("user")
        row = Device(device, "t0", key.public, 0)
        return Login(key, vehicle_jwt(keys or self.keys, row, now_s=NOW_S))

    @asynccontextmanager
    async def leaf(self, login: Login) -> AsyncIterator[RawLeaf]:
        claims = {"jwt": login.jwt, "version": "2.15.1", "headers": True, "domain": "VID-001"}
        leaf = RawLeaf("127.0.0.1", self.rig.leaf_port, claims | {"name": login.key.public})
        leaf.sign = login.sign
        try:
            yield await leaf.open()
        finally:
            await leaf.close()

    async def lets_in(self, login: Login) -> bool:
        async with self.leaf(login) as leaf:
            return await leaf.flush()


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    monkeypatch.setattr(
        "backhaul_hub.nats.system_requests._WAIT_S", 60.0
    )  # for the one that there is
    async with AsyncExitStack() as stack:
        rig = HubRig(tmp_path / "hub")
        layout = local_layout(rig.client_port, rig.leaf_port)
        create_hub(rig.directory, layout)
        stack.push_async_callback(rig.stop)
        await rig.server.start()
        await rig.server.wait_listening(rig.client_port)
        registry = await stack.enter_async_context(await Registry.open(rig.directory / "hub.db"))
        system = await rig.connect("system")
        stack.push_async_callback(system.close)
        yield Hub(rig, registry, system)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a login that is refused fail after a second: the client tries until then."""
    monkeypatch.setattr("backhaul_hub.nats.connection._CONNECT_TIMEOUT_S", 1.0)


async def test_each_of_the_hubs_users_is_in_its_own_account(hub: Hub) -> None:
    async with hub.rig.connection("control") as control, hub.rig.connection("spark") as spark:
        answer = json.loads((await control.request("$JS.API.INFO", b"", timeout=30)).data)
        assert answer["limits"]["max_storage"] == -1
        listed = json.loads((await spark.request("jobsapi.STREAM.LIST", b"", timeout=30)).data)
        assert listed["total"] == 0
        own = json.loads((await spark.request("$JS.API.STREAM.LIST", b"", timeout=30)).data)
        assert own["error"]["err_code"] == 10039, "JOBS has no JetStream of its own"
    await hub.system.request("$SYS.REQ.SERVER.PING.IDZ", b"{}", timeout=30)


async def test_in_account_up_the_api_answers_under_its_secret_name_alone(hub: Hub) -> None:
    """What a source has the server publish there must not reach it (ADR 25)."""
    verb, secret = "STREAM.NAMES", hub.keys.up_api
    async with hub.rig.connection_in("UP") as up, hub.rig.connection("control") as control:
        api = JetStreamApi(control)
        await api.request("STREAM.CREATE.UP_00", {"name": "UP_00", "subjects": ["x"]})
        for prefix in ("$JS.API", "$JS.hub.API", "upapi", "hubapi", "jobsapi", "*"):
            with pytest.raises(NoRespondersError):
                await up.request(f"{prefix}.{verb}", b"", timeout=30)
        named = json.loads((await up.request(f"{secret}.{verb}", b"", timeout=30)).data)
        assert named["streams"] == ["UP_00"]
        with pytest.raises(NoRespondersError):
            await control.request(f"{secret}.{verb}", b"", timeout=30)
        assert (await api.request(verb))["streams"] is None
        assert await stream_names(api) == {"UP_00"}


async def test_an_account_up_that_a_server_has_opened_is_closed_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where SYS seems not to offer what stands in the API's place, the server puts its own there."""

    def written(account: Account, *rest: Any, **more: Any) -> str:
        if account.name == "SYS":
            account = replace(account, exports=account.exports[:1])
        return account_jwt(account, *rest, **more)

    async with hub.rig.connection_in("UP") as up:
        assert await guessable_names(hub.system, hub.keys, 1) == set()
        with monkeypatch.context() as patch:
            patch.setattr("backhaul_hub.access.rules.account_jwt", written)
            assert await hub.keeper.push(hub.system) == ["SYS"]
            same = hub.keeper._signed_anew((await hub.keeper.build())["UP"], NOW_S + 60)
            await up.flush()
            await hub.system.request("$SYS.REQ.CLAIMS.UPDATE", same.encode(), timeout=30)
        assert await guessable_names(hub.system, hub.keys, 1) == {"$JS.API.>"}
        await up.request("$JS.API.STREAM.NAMES", b"", timeout=30)
        # Told of SYS, the server looks at those again that import from it.
        assert await hub.keeper.push(hub.system) == ["SYS"]
        assert await guessable_names(hub.system, hub.keys, 1) == set()
        with pytest.raises(NoRespondersError):
            await up.request("$JS.API.STREAM.NAMES", b"", timeout=30)


async def test_a_server_that_has_account_up_open_is_told_of_it_once_more(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [{"$JS.API.>"}, set[str]()]

    async def found(*_: object) -> set[str]:
        return answers.pop(0)

    monkeypatch.setattr("backhaul_hub.access.push.guessable_names", found)
    assert await hub.keeper.push(hub.system) == ["UP"]
    assert await hub.keeper.push(hub.system) == []


@pytest.mark.usefixtures("impatient")
async def test_a_vehicle_comes_in_by_the_leaf_port_and_by_no_other(
    hub: Hub, tmp_path: Path
) -> None:
    login = hub.vehicle()
    assert await hub.lets_in(login)
    creds = tmp_path / "device.creds"
    creds.write_text(Credentials(login.key.seed, login.key.public, login.jwt).text())
    with pytest.raises(HubError, match="as device"):
        await connect(hub.rig.addresses()[0], HubLogin(creds=str(creds)))


def stranger(hub: Hub) -> Login:
    """A vehicle of somebody who made keys of the same kinds."""
    return hub.vehicle(keys=HubKeys.new(now_s=NOW_S)[0])


def foreign_signer(hub: Hub) -> Login:
    """A vehicle signed by a key that account FLEET does not name."""
    return hub.vehicle(keys=replace(hub.keys, vehicles=new_key("account")))


def own_rights(hub: Hub) -> Login:
    """A vehicle that brings rights of its own beside the template's."""
    key = new_key("user")
    fleet = hub.keys.account("FLEET").public
    rights = Rights(publish=[">"], subscribe=[">"])
    jwt = user_jwt("VID-001", key.public, hub.keys.vehicles, fleet, now_s=NOW_S, rights=rights)
    return Login(key, jwt)


def edited(hub: Hub) -> Login:
    """A vehicle that has changed its own name."""
    login = hub.vehicle()
    head, body, signature = login.jwt.split(".")
    text = base64.urlsafe_b64decode(body + "==").replace(b"VID-001", b"VID-002")
    body = base64.urlsafe_b64encode(text).rstrip(b"=").decode()
    return Login(login.key, f"{head}.{body}.{signature}")


def without_key(hub: Hub) -> Login:
    """Somebody who has the JWT and not the key."""
    return Login(new_key("user"), hub.vehicle().jwt)


async def test_whoever_is_no_vehicle_of_this_hub_stays_out(hub: Hub) -> None:
    for make in (stranger, foreign_signer, own_rights, edited, without_key):
        async with hub.leaf(make(hub)) as leaf:
            assert not await leaf.flush(), make.__doc__
            assert any("authorization violation" in error.lower() for error in leaf.errors)
    assert await hub.lets_in(hub.vehicle()), "and a true one comes in"


async def test_a_vehicle_is_held_to_its_limits(hub: Hub) -> None:
    rights = vehicle_rights()
    assert 5 * (2 + 2 * NODES_MAX) < rights.subs_max < 1000
    async with hub.leaf(hub.vehicle()) as leaf:
        await leaf.publish("clk.VID-001", b"x" * PAYLOAD_BYTES_MAX)
        assert await leaf.flush(), leaf.errors
        await leaf.publish("clk.VID-001", b"x" * (PAYLOAD_BYTES_MAX + 1))
        assert not await leaf.flush()
    async with hub.leaf(hub.vehicle()) as leaf:
        await leaf.listen(*(f"_INBOX_VID-001.{number}" for number in range(rights.subs_max + 5)))
        await leaf.flush()
        assert any("maximum subscriptions" in error.lower() for error in leaf.errors)


async def test_a_revoked_key_is_cut_and_stays_out_whatever_comes_later(hub: Hub) -> None:
    bad, good = hub.vehicle("VID-001"), hub.vehicle("VID-002")
    async with hub.leaf(bad) as bad_leaf, hub.leaf(good) as good_leaf:
        assert await bad_leaf.flush()
        assert await good_leaf.flush()
        before = await hub.keeper.build()
        await revoke_key(hub.registry, hub.keeper, hub.system, bad.key.public, "VID-001")
        await bad_leaf.closed.wait()
        assert await good_leaf.flush(), "only that one is cut"
    assert not await hub.lets_in(bad)
    # What was signed later for the same key is worth nothing either.
    row = Device("VID-001", "t1", bad.key.public, 0)
    again = Login(bad.key, vehicle_jwt(hub.keys, row, now_s=NOW_S + 3600))
    assert not await hub.lets_in(again)
    # Another device with lanes of its own: the account is built anew, and this one is still out.
    await add_device(hub.registry, Device("VID-003", "t3", "", 0, nodes=("gps",)))
    assert await hub.keeper.push(hub.system) == ["FLEET", "UP"]
    assert not await hub.lets_in(bad)
    assert await hub.keeper.push(hub.system) == [], "all is as it should be"
    # Somebody puts an older account back: the next look notices.
    await hub.system.request("$SYS.REQ.CLAIMS.UPDATE", before["FLEET"].encode(), timeout=30)
    assert await hub.lets_in(bad)
    assert await hub.keeper.push(hub.system) == ["FLEET"]
    assert not await hub.lets_in(bad)
    await hub.rig.server.stop()
    await hub.rig.server.start()
    await hub.rig.server.wait_listening(hub.rig.leaf_port)
    assert not await hub.lets_in(bad)
    assert await hub.lets_in(good)


@pytest.mark.usefixtures("impatient")
async def test_who_is_kept_out_comes_in_with_no_key_and_comes_back_afterwards(hub: Hub) -> None:
    old, new, good = hub.vehicle("VID-001"), hub.vehicle("VID-001"), hub.vehicle("VID-002")
    for device, login in (("VID-001", old), ("VID-002", good)):
        await add_device(hub.registry, Device(device, f"t-{device}", login.key.public, 0))
    rotation = Rotation("VID-001", "r1", "signed", 0, new.key.public, old.key.public)
    await hub.registry.write([begin(rotation)])
    async with hub.leaf(old) as old_leaf, hub.leaf(good) as good_leaf:
        assert await old_leaf.flush()
        await hub.keeper.keep_out(hub.system, frozenset({"VID-001"}))
        await old_leaf.closed.wait()
        assert [await hub.lets_in(each) for each in (old, new)] == [False, False]
        assert await hub.keeper.push(hub.system) == [], "all is as it should be"
        await hub.keeper.keep_out(hub.system, frozenset())
        assert [await hub.lets_in(each) for each in (old, new)] == [True, True]
        assert await good_leaf.flush(), "it was never cut"


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_lost_its_accounts_is_given_them_again(hub: Hub) -> None:
    await hub.rig.server.stop()
    for path in (hub.rig.directory / "accounts").iterdir():
        path.unlink()
    await hub.rig.server.start()
    await hub.rig.server.wait_listening(hub.rig.client_port)
    await until(lambda: hub.system.is_connected)
    config = load(hub.rig.directory)
    with pytest.raises(HubError, match="as control"):
        await connect(config.nats.url, config.nats.control)
    assert set(await hub.keeper.push(hub.system)) == set(ACCOUNTS) - {"SYS"}
    async with hub.rig.connection() as control:
        await control.flush()


async def test_a_server_that_was_away_knows_of_a_revocation_once_it_is_back(
    tmp_path: Path,
) -> None:
    cluster = ClusterRig(tmp_path / "hub")
    await cluster.init()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(cluster.stop)
        for name in NAMES:
            await cluster.start_server(name)
        registry = await stack.enter_async_context(
            await Registry.open(cluster.directory / "hub.db")
        )
        keys = read_keys(cluster.directory)
        keeper = AccountKeeper(keys, registry, SystemClock(), servers=len(NAMES))
        system = await connect(cluster.addresses()[0], load(cluster.directory).nats.system)
        stack.push_async_callback(system.close)

        async def have_it() -> int:
            subject = f"$SYS.REQ.ACCOUNT.{keys.account('FLEET').public}.CLAIMS.LOOKUP"
            there = [each.decode() for each in await ask_each(system, subject, b"", len(NAMES))]
            return sum("UBAD" in body_of(jwt)["nats"]["revocations"] for jwt in there)

        await push_everywhere(keeper, system)
        await cluster.servers["c"].stop()
        with pytest.raises(HubError, match="2 of 3 servers answer"):
            await revoke_key(registry, keeper, system, "UBAD", "VID-001")
        assert await have_it() == 2, "those that are there know it"
        await cluster.start_server("c")
        await push_everywhere(keeper, system)
        assert await have_it() == 3


async def push_everywhere(keeper: AccountKeeper, system: Client) -> None:
    """Push until all servers were there."""
    async with asyncio.timeout(60):
        while True:
            try:
                await keeper.push(system)
            except HubError:
                await asyncio.sleep(0.1)
            else:
                return


@pytest.mark.usefixtures("impatient")
async def test_credentials_that_are_worth_nothing_are_refused_with_the_reason(
    hub: Hub, tmp_path: Path
) -> None:
    config = load(hub.rig.directory)
    late = new_login(hub.keys, "late", "HUB", now_s=NOW_S - 60, expires_s=NOW_S - 1)
    (tmp_path / "late.creds").write_text(late.text())
    (tmp_path / "cut.creds").write_text(late.text()[:200])
    for name, why in [("late", "as late"), ("cut", "no NATS USER JWT"), ("no", "No such")]:
        with pytest.raises(HubError, match=why):
            await connect(config.nats.url, HubLogin(creds=str(tmp_path / f"{name}.creds")))
