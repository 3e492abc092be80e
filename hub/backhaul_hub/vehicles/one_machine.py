"""Answering an operator who says that one machine alone uses a device's identity: `hub.one-machine`.

While two were heard, neither may say of what its ledger does not know that it is lost: the other one may have
it (`Identities.answerer`). Only people know that the other one is gone for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_hub import questions
from backhaul_hub.errors import HubError
from backhaul_hub.nats.replies import answering

if TYPE_CHECKING:
    from nats.aio.client import Client

    from backhaul_hub.vehicles.keeper import VehicleKeeper

SERVICE = "hub.one-machine"


async def serve_one_machine(client: Client, vehicles: VehicleKeeper) -> None:
    """Answer for as long as the connection lives."""

    async def answer(question: questions.OneMachine) -> dict[str, Any]:
        machine = await vehicles.settle(question.device)
        if machine is None:
            raise HubError(
                f"no machine of {question.device} was ever heard",
                hint="backhaul-hub devices says which devices there are, and when they were seen",
            )
        return {"device": question.device, "machine": machine.machine, "address": machine.address}

    await client.subscribe(SERVICE, cb=answering(client, questions.OneMachine, answer))
