"""From a token to a device in hub.db, and out again: the hub's side, without servers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from backhaul_codec.protocol.enrolment import (
    request_subject,
    write_request,
)
from backhaul_codec.protocol.identity import Identity
from backhaul_hub.access.key_rotations import rotations
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.revocations import revocations
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.enrol.service import EnrolmentService
from backhaul_hub.errors import ConfigError, HubError, RegistryError
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.nats.rate_limit import BURST
from tests.hub.enrolling_hub import KEY, OTHER, Hub, S, _signed, code_of
from tests.support.hub_acts import begin_rotation, change_nodes, create_device, leave_for_servers
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path / "hub")


async def test_a_token_holds_no_more_than_the_right_to_ask(hub: Hub) -> None:
    token = await hub.token()
    body = body_of(token.jwt)
    assert body["exp"] == token.expires_s == hub.clock.now // S + 3600
    assert body["nats"]["pub"] == {"allow": [f"enrol.{token.id}"]}
    assert body["nats"]["sub"] == {"allow": [f"_INBOX_{token.id}.>"]}
    assert body["nats"]["allowed_connection_types"] == ["LEAFNODE"]
    assert token.leaf_urls == ("nats-leaf://hub.example.org:7422",)
    for path in hub.directory.rglob("*"):
        assert not path.is_file() or token.seed.encode() not in path.read_bytes()


async def test_the_answer_is_the_devices_document_signed_for_its_own_key(hub: Hub) -> None:
    token = await hub.token("battery")
    answer = await hub.ask(token)
    assert isinstance(answer, Identity)
    assert (answer.device, answer.nodes, answer.link.mode) == ("VID-001", ("battery",), "scheduled")
    assert (answer.seed, body_of(answer.jwt)["sub"]) == ("", KEY.public_key)
    device = (await hub.devices())["VID-001"]
    assert (device.public_key, device.token, device.nodes) == (
        KEY.public_key, answer.token, ("battery",),
    )  # fmt: skip
    assert answer.token != token.id
    assert await hub.ask(token) == answer
    assert hub.learnt == 1
    assert code_of(await hub.ask(token, OTHER)) == "used"


async def test_trouble_of_the_hubs_own_is_worth_another_try(hub: Hub) -> None:
    token = await hub.token()
    asked = (request_subject(token.id), write_request(token.id, KEY))
    async with hub.service() as service:
        hub.trouble = HubError("the server is away")
        assert code_of(await service.answer(*asked)) == "busy"
        assert code_of(await service.answer(*asked)) == "busy"
        hub.trouble = None
        assert isinstance(await service.answer(*asked), Identity)
        assert isinstance(await service.answer(*asked), Identity)
    assert hub.learnt == 1


async def test_who_was_enrolled_by_a_connection_that_closed_then_is_made_known_when_it_asks_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a flood of questions is seen to: the reception closes, whatever it is at."""
    token = await hub.token()
    asked = (request_subject(token.id), write_request(token.id, KEY))
    async with hub.service() as service:
        write = service._registry.write_decided

        async def write_and_be_closed(decide: Any) -> None:
            await write(decide)
            raise asyncio.CancelledError

        with monkeypatch.context() as patch:
            patch.setattr(service._registry, "write_decided", write_and_be_closed)
            with pytest.raises(asyncio.CancelledError):
                await service.answer(*asked)
        assert "VID-001" in await hub.devices()
        assert isinstance(await service.answer(*asked), Identity)
    assert hub.learnt == 1


async def test_garbage_and_strangers_tokens_change_nothing(hub: Hub) -> None:
    token = await hub.token()
    async with await Registry.open(hub.directory / "hub.db") as registry:
        service = EnrolmentService(registry, hub.documents, hub.clock, hub._learn)
        for body in (b"", b"{}", write_request("f" * 24, KEY)):
            assert code_of(await service.answer(request_subject(token.id), body)) == "garbage"
        unknown = write_request("f" * 24, KEY)
        assert code_of(await service.answer(request_subject("f" * 24), unknown)) == "unknown"
    assert await hub.devices() == {}
    assert hub.learnt == 0


async def test_a_token_in_vain_is_not_made(hub: Hub) -> None:
    await create_device(hub.directory, hub.config, hub.clock, "VID-001", DeviceSettings())
    with pytest.raises(RegistryError, match="enrolled already"):
        await hub.token()
    with pytest.raises(RegistryError, match="no device id"):
        await hub.token(device="a.b")
    with pytest.raises(ConfigError, match="cannot have a lane"):
        await hub.token("x" * 200, device="VID-002")


async def test_revoked_it_is_let_in_again_by_another_key_and_token_only(hub: Hub) -> None:
    first = await hub.token("battery")
    before = await hub.ask(first)
    await hub.revoke()
    assert (await hub.devices())["VID-001"].revoked_ns == hub.clock.now
    assert not hub.documents.path("VID-001").exists()
    assert code_of(await hub.ask(first)) == "revoked"
    second = await hub.token("gps")
    assert code_of(await hub.ask(second)) == "old_key"
    after = await hub.ask(second, OTHER)
    assert isinstance(before, Identity)
    assert isinstance(after, Identity)
    assert after.token != before.token
    device = (await hub.devices())["VID-001"]
    assert (device.revoked_ns, device.public_key) == (0, OTHER.public_key)
    assert (device.nodes, device.leaving) == (("gps",), ("battery",))


async def test_revoking_takes_back_what_was_never_used_too(hub: Hub) -> None:
    with pytest.raises(RegistryError, match="there is no device VID-001, and no token"):
        await hub.revoke()
    token = await hub.token()
    await hub.revoke()
    assert code_of(await hub.ask(token)) == "revoked"
    assert await hub.devices() == {}


async def test_revoking_takes_back_a_key_that_was_signed_on_the_way_to_another(hub: Hub) -> None:
    await hub.ask(await hub.token())
    rotation, begun = await begin_rotation(hub.directory, hub.clock, "VID-001")
    assert begun
    assert await begin_rotation(hub.directory, hub.clock, "VID-001") == (rotation, False)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        await registry.write([_signed(rotation.device, OTHER.public_key)])
    await hub.revoke()
    async with await Registry.open(hub.directory / "hub.db") as registry:
        spent = {each.public_key for each in await revocations(registry)}
        assert await rotations(registry) == {}
    assert spent == {KEY.public_key, OTHER.public_key}
    with pytest.raises(RegistryError, match="is revoked"):
        await begin_rotation(hub.directory, hub.clock, "VID-001")


async def test_the_key_of_a_later_rotation_is_answered_with_its_own_login(hub: Hub) -> None:
    token = await hub.token()
    await hub.ask(token)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        await registry.write([RowChange("UPDATE device SET public_key = ?", [(OTHER.public_key,)])])
    answer = await hub.ask(token, OTHER)
    assert isinstance(answer, Identity)
    assert body_of(answer.jwt)["sub"] == OTHER.public_key
    assert code_of(await hub.ask(token)) == "old_key"


async def test_to_begin_anew_gives_up_the_key_that_was_signed(hub: Hub) -> None:
    await hub.ask(await hub.token())
    first, _ = await begin_rotation(hub.directory, hub.clock, "VID-001")
    async with await Registry.open(hub.directory / "hub.db") as registry:
        await registry.write([_signed("VID-001", OTHER.public_key)])
    second, begun = await begin_rotation(hub.directory, hub.clock, "VID-001", again=True)
    assert begun
    assert second.id != first.id
    async with await Registry.open(hub.directory / "hub.db") as registry:
        assert [each.public_key for each in await revocations(registry)] == [OTHER.public_key]
    assert not (await hub.devices())["VID-001"].revoked_ns


async def test_where_no_server_runs_the_accounts_are_left_for_it(hub: Hub) -> None:
    await hub.ask(await hub.token())
    await hub.revoke()
    # Others of this machine may have a server at the usual port.
    nats = msgspec.structs.replace(hub.config.nats, url=f"nats://127.0.0.1:{free_port()}")
    config = msgspec.structs.replace(hub.config, nats=nats)
    assert await leave_for_servers(hub.directory, config, hub.clock)
    fleet = read_keys(hub.directory).account("FLEET").public
    (path,) = hub.directory.rglob(f"{fleet}.jwt")
    assert KEY.public_key in body_of(path.read_text())["nats"]["revocations"]


async def test_other_nodes_are_told_a_vehicle_that_has_its_own_key(hub: Hub) -> None:
    await hub.ask(await hub.token())
    await change_nodes(hub.directory, hub.clock, "VID-001", ["gps"])
    document = hub.documents.read("VID-001")
    assert (document.nodes, document.seed) == (("gps",), "")
    assert body_of(document.jwt)["sub"] == KEY.public_key


async def test_a_forgotten_token_is_unknown(hub: Hub) -> None:
    token = await hub.token()
    hub.clock.now += 3600 * S + enrolment_rows.KEPT_NS + S
    await hub.token(device="VID-002")
    assert code_of(await hub.ask(token)) == "unknown"


class Listening:
    """A connection that hands over what is asked."""

    async def subscribe(self, subject: str, *, cb: Any, pending_msgs_limit: int) -> None:
        assert subject == "enrol.*"
        assert pending_msgs_limit
        self.ask = cb


@dataclass
class Question:
    """A message as nats-py hands it over."""

    subject: str
    data: bytes
    reply: str = "_R_.a.b"
    answers: list[bytes] = field(default_factory=list)

    async def respond(self, body: bytes) -> None:
        self.answers.append(body)


async def test_a_forged_question_is_not_answered_and_a_token_only_so_often(hub: Hub) -> None:
    token = await hub.token()
    client: Any = Listening()
    body = write_request(token.id, KEY)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        await EnrolmentService(registry, hub.documents, hub.clock, hub._learn).listen(client)
        forged = Question(
            request_subject(token.id), body, f"$JS.ACK.a.b.1.1.1.1.0@{request_subject(token.id)}"
        )
        await client.ask(forged)
        assert forged.answers == []
        assert await hub.devices() == {}
        asked = [Question(request_subject(token.id), body) for _ in range(2 * BURST)]
        for each in asked:
            await client.ask(each)
        assert [len(each.answers) for each in asked] == [1] * BURST + [0] * BURST
        other = Question(request_subject("f" * 24), write_request("f" * 24, KEY))
        await client.ask(other)
        assert len(other.answers) == 1
