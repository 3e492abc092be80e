"""A hub that answers requests to be enrolled."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from backhaul_codec.protocol.enrolment import (
    EnrolmentRefused,
    Token,
    read_token,
    request_subject,
    write_answer,
    write_request,
)
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.keys import read_keys
from backhaul_hub.config import load
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.enrol.service import EnrolmentService
from backhaul_hub.setup.hub_directory import create_hub
from tests.hub.layouts import layout
from tests.support.enrolment_tokens import user_key
from tests.support.hub_acts import make_token, revoke_device
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_codec.protocol.credentials import Credentials
    from backhaul_codec.protocol.identity import Identity
    from backhaul_hub.device import Device


S = 1_000_000_000


KEY, OTHER = user_key(1), user_key(2)


class Clock:
    now = 1_700_000_000 * S

    def now_ns(self) -> int:
        return self.now

    def monotonic_s(self) -> float:
        return 0.0


class Hub:
    """A hub's directory, and what the command lines and the service do in it."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.directory = directory
        self.learnt = 0
        self.trouble: Exception | None = None
        # Whether a server runs is asked there.
        create_hub(directory, replace(layout(), client_port=free_port()), clock=self.clock)
        self.config = load(directory)
        self.documents = Documents(directory, self.config, read_keys(directory))

    async def token(self, *nodes: str, device: str = "VID-001") -> Token:
        settings = DeviceSettings(20.0, "scheduled", nodes)
        made = await make_token(self.directory, self.config, self.clock, device, settings, 3600.0)
        return read_token(made.word)

    async def _learn(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.learnt += 1

    async def ask(self, token: Token, key: Credentials = KEY) -> Identity | EnrolmentRefused:
        async with self.service() as service:
            return await service.answer(request_subject(token.id), write_request(token.id, key))

    @asynccontextmanager
    async def service(self) -> AsyncIterator[EnrolmentService]:
        """Answer for as long as one control plane lives."""
        async with await Registry.open(self.directory / "hub.db") as registry:
            yield EnrolmentService(registry, self.documents, self.clock, self._learn)

    async def devices(self) -> dict[str, Device]:
        async with await Registry.open(self.directory / "hub.db") as registry:
            return await read_devices(registry)

    async def revoke(self, device: str = "VID-001") -> None:
        await revoke_device(self.directory, self.config, self.clock, device)


def code_of(answer: Identity | EnrolmentRefused) -> str:
    assert isinstance(answer, EnrolmentRefused), answer
    write_answer(answer)
    return answer.code


def _signed(device: str, public_key: str) -> RowChange:
    return RowChange(
        "UPDATE rotation SET public_key = ?, state = 'signed' WHERE device = ?",
        [(public_key, device)],
    )
