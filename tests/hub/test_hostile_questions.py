"""Whatever an operator, a person or a vehicle asks the hub: it is answered in words, and the hub lives on."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from backhaul_codec.protocol import blobs
from backhaul_codec.protocol.enrolment import EnrolmentError, read_request, read_token
from backhaul_codec.protocol.identity import IdentityError, decode_identity
from backhaul_codec.protocol.rotation import read_wish
from backhaul_hub.links.reset_service import says_too_much
from backhaul_hub.nats.replies import respond_to
from backhaul_hub.shadow.document import version_of
from tests.hub.clock_wire import serving
from tests.support.hostile_json import Hostile

if TYPE_CHECKING:
    from collections.abc import Callable


@given(st.integers(0, 1 << 32))
@settings(max_examples=40)
async def test_a_vehicles_questions_are_answered_or_passed_over(seed: int) -> None:
    wire, clock, service = await serving()
    hostile = Hostile(seed)
    forms = ('{"t1": %}', '{"t1": 1, "epoch": %, "lanes": {"bulk": %}}', '{"t1": 1, "epochs": [%]}')
    for _ in range(20):
        clock.s += 3600.0
        body = hostile.payload(*forms)
        before = service.refused, len(wire.sent)
        await wire.question("VID-001", body)
        assert (service.refused, len(wire.sent)) != before, body
    clock.s += 3600.0
    await wire.question("VID-001", b'{"t1": 7}')
    assert wire.sent[-1][1]["t1"] == 7


@given(st.integers(0, 1 << 32), st.binary())
@settings(max_examples=60)
def test_documents_of_others_are_read_or_refused_in_words(seed: int, data: bytes) -> None:
    hostile = Hostile(seed)
    forms = ('{"token": %, "public_key": %, "proof": %}', '{"id": %, "jwt": %}', '{"version": %}')
    readers: tuple[tuple[Callable[[bytes], object], type[Exception]], ...] = (
        (lambda body: read_request("enrol.x", body), EnrolmentError),
        (lambda body: read_token("backhaul-" + body.decode("latin-1")), EnrolmentError),
        (decode_identity, IdentityError),
        (read_wish, ValueError),
        (says_too_much, AssertionError),
        (version_of, AssertionError),
    )
    for body in (data, *(hostile.payload(*forms) for _ in range(20))):
        for read, refusal in readers:
            try:
                read(body)
            except refusal as error:
                assert str(error)  # noqa: PT017
        try:
            blobs.decode_question(body)
        except Exception as error:  # noqa: BLE001 - as the service passes it over
            assert isinstance(error, blobs.NOT_READ)  # noqa: PT017


async def test_a_fault_of_the_hub_is_answered_and_logged() -> None:
    said: list[bytes] = []

    async def respond(body: bytes) -> None:
        said.append(body)

    async def fail(_: object) -> Any:
        raise KeyError("unforeseen")

    async def cannot_be_written(_: object) -> Any:
        return {"what": object()}

    message: Any = SimpleNamespace(subject="hub.get", data=b"{}", respond=respond)
    client: Any = SimpleNamespace(max_payload=1 << 20)
    with capture_logs() as logged:
        for answer in (fail, cannot_be_written):
            await respond_to(client, message, answer)
    assert [json.loads(each)["error"]["message"] for each in said] == [
        "a fault of the hub, not of this question"
    ] * 2
    assert [type(each["exc_info"]) for each in logged] == [KeyError, TypeError]
