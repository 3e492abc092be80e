"""Shadows as a person sees them: asked of the control plane, and heard of along the tree."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from nats.aio.client import Client

from backhaul_codec import Value
from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.state.merge import HeadKey
from backhaul_hub.broadcast import events as live
from backhaul_hub.cli._ask import Visitor
from backhaul_hub.shadow.bucket import Revision
from backhaul_hub.shadow.document import PARTS, field_name


class AskedShadows:
    """The command line's `ShadowBucket`, for people."""

    def __init__(self, access: Visitor, client: Client) -> None:
        self._access = access
        self._client = client

    async def history(self, device: str, part: str) -> list[Revision]:
        """Return the revisions of a document that the bucket still has, oldest first. Raises: HubError."""
        question = {"device": device, "part": part}
        answer = await self._access.ask(self._client, "shadow", question, reads=True)
        return [Revision(**each) for each in answer["documents"][part]]

    async def change(
        self,
        device: str,
        changed: Mapping[HeadKey, Value | None],
        forgotten: set[HeadKey],
        *,
        only: bool,
        who: str,
    ) -> tuple[int, bool]:
        """Change the desired values; return the revision, and whether it is taken in. Raises: HubError.

        `who` is not asked: the hub knows.
        """
        del who
        question = {
            "device": device,
            "points": [_field(key, value) for key, value in changed.items()],
            "forget": [field_name(key) for key in forgotten],
            "only": only,
        }
        answer = await self._access.ask(self._client, "desire", question)
        return answer["revision"], answer["taken"]

    async def watch(self, device: str, part: str) -> AsyncIterator[tuple[str, Revision]]:
        """Yield each document as it is, then as it is written; `part` may be `*`."""
        which = f"{device}.{live.SHADOW}.{part}"
        news = await self._client.subscribe(self._access.person.live.replace(">", which))
        for name in PARTS if part == "*" else (part,):
            for revision in (await self.history(device, name))[-1:]:
                yield name, revision
        async for message in news.messages:
            said = json.loads(message.data)
            yield said["part"], Revision(said["number"], said["time"], said["body"])


def _field(key: HeadKey, value: Value | None) -> dict[str, Any]:
    field: dict[str, Any] = {"node": key.node, "type": key.type, "key": key.key}
    if value is None:
        return field | {"delete": True}
    said, dtype = value_to_json(value)
    return field | {"value": said, "dtype": dtype}
