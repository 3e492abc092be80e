"""Answers which files devices have sent: those of one device, to a person who sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from backhaul_hub import questions
from backhaul_hub.artifacts.object_store import Artifact, Objects
from backhaul_hub.artifacts.uploads import PREFIX
from backhaul_hub.people.scope import Scope
from backhaul_runtime.clock import Clock

_KEPT_S = 5.0


class FileServices:
    """Answers from a list of the whole store, which is kept for some seconds: the store lists nothing less.

    Args:
        objects: returns the store, over the connection that there is now.
        clock: for how long the list is kept.
    """

    def __init__(self, objects: Callable[[], Objects], clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._turn = asyncio.Lock()
        self._listed: list[Artifact] = []
        self._listed_s: float | None = None

    async def files(self, scope: Scope, question: questions.OneDevice) -> dict[str, Any]:
        """Return the files that a device has sent, by name; sizes in bytes.

        Raises:
            HubError: there is no such device, or the store does not answer.
        """
        scope.require_device(question.device)
        own = f"{PREFIX}{question.device}/"
        return {
            "device": question.device,
            "uploads": [
                {
                    "name": each.name.removeprefix(own),
                    "bytes": each.size,
                    "digest": each.digest.hex(),
                    "stored": each.stored,
                }
                for each in await self._all()
                if each.name.startswith(own)
            ],
        }

    async def _all(self) -> list[Artifact]:
        async with self._turn:
            now_s = self._clock.monotonic_s()
            if self._listed_s is None or now_s - self._listed_s > _KEPT_S:
                self._listed = await self._objects().list()
                self._listed_s = now_s
            return self._listed
