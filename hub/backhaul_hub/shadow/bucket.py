"""The bucket of shadows as the command line uses it: like any client of NATS key-value buckets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple, Self

from nats.aio.client import Client
from nats.js.errors import NoKeysError, NotFoundError
from nats.js.kv import KeyValue

from backhaul_codec import Value
from backhaul_codec.state.merge import HeadKey
from backhaul_hub.errors import HubError, JetStreamError, WriteRefusedError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.shadow.document import (
    DESIRED,
    META,
    edited,
    read_desired,
    read_object,
    shadow_key,
)
from backhaul_hub.shadow.service import IF_LAST_HEADER, WHO_HEADER
from backhaul_hub.streams.twin_streams import SHADOW, SHADOW_BUCKET
from backhaul_runtime.jetstream import WRONG_LAST_SEQUENCE

_ATTEMPTS = 5
_TAKEN_S = 5.0
_LOOK_S = 0.1


class Revision(NamedTuple):
    """One revision of a document."""

    number: int
    time: str
    """When the bucket took it in, in UTC."""
    body: str | None
    """None where the key was deleted."""

    @property
    def document(self) -> dict[str, Any]:
        """Return the JSON object; an empty one where it is none."""
        try:
            return read_object((self.body or "{}").encode())
        except WriteRefusedError:
            return {}


class ShadowBucket:
    """Reads shadows, and writes desired values."""

    def __init__(self, client: Client, kv: KeyValue, env: str) -> None:
        self._js = client.jetstream()
        self._api = JetStreamApi(client)
        self._kv = kv
        self._env = env

    @classmethod
    async def open(cls, client: Client, env: str) -> Self:
        """Look the bucket up. Raises: NatsError: there is none."""
        return cls(client, await client.jetstream().key_value(SHADOW_BUCKET), env)

    async def history(self, device: str, part: str) -> list[Revision]:
        """Return the revisions of a document that the bucket still has, oldest first."""
        try:
            return [_revision(each) for each in await self._kv.history(self._key(device, part))]
        except NoKeysError:
            return []

    async def watch(self, device: str, part: str) -> AsyncIterator[tuple[str, Revision]]:
        """Yield each document as it is, then as it is written; `part` may be `*`."""
        watcher = await self._kv.watch(f"{self._key(device, '')}{part}")
        async for entry in watcher:
            if entry is not None:
                yield entry.key.rpartition(".")[2], _revision(entry)

    async def desire(
        self,
        device: str,
        edit: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        anew: bool = False,
        who: str = "",
        based_on: int | None = None,
    ) -> int:
        """Edit the desired values, also while others do; return the new revision.

        `anew` edits an empty document, whatever is there. `based_on` is the revision that the writer saw.

        Raises:
            WriteRefusedError: it would be refused, or what is there cannot be edited, or is another
                revision than the writer saw.
            HubError: the server did not take it.
        """
        subject = f"$KV.{SHADOW_BUCKET}.{self._key(device, DESIRED)}"
        for _ in range(_ATTEMPTS):
            number, document = await self._desired(subject, anew=anew)
            if based_on is not None and number != based_on:
                raise WriteRefusedError(
                    f"somebody else changed what is desired of {device}: revision {number} is the newest, not {based_on}",
                    hint="look at it again, then change it",
                )
            body = json.dumps(edit(document), ensure_ascii=False).encode()
            read_desired(body)
            headers = {IF_LAST_HEADER: str(number)} | ({WHO_HEADER: who} if who else {})
            try:
                return int((await self._api.publish(subject, body, headers))["seq"])
            except JetStreamError as error:
                if error.err_code != WRONG_LAST_SEQUENCE:
                    raise
        raise HubError(f"others changed what is desired of {device}, {_ATTEMPTS} times in a row")

    async def change(
        self,
        device: str,
        changed: Mapping[HeadKey, Value | None],
        forgotten: set[HeadKey],
        *,
        only: bool,
        who: str,
        based_on: int | None = None,
    ) -> tuple[int, bool]:
        """Change desired fields; return the revision, and whether it is taken in.

        Raises:
            WriteRefusedError, HubError: as `desire` and `taken`.
        """
        revision = await self.desire(
            device,
            lambda document: edited(document, changed, forgotten),
            anew=only,
            who=who,
            based_on=based_on,
        )
        return revision, await self.taken(device, revision)

    async def taken(self, device: str, revision: int) -> bool:
        """Wait a little for the control plane; return whether it has taken a revision in.

        Raises:
            WriteRefusedError: it has refused it.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _TAKEN_S
        while loop.time() < end_s:
            history = await self.history(device, META)
            meta = history[-1].document if history else {}
            refused = meta.get("refused") or {}
            if refused.get("revision") == revision:
                raise WriteRefusedError(f"revision {revision} is refused: {refused['reason']}")
            if (meta.get("desired") or {}).get("revision", 0) >= revision:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def _desired(self, subject: str, *, anew: bool) -> tuple[int, dict[str, Any]]:
        try:
            message = await self._js.get_last_msg(SHADOW, subject)
        except NotFoundError:
            return 0, {}
        anew = anew or "KV-Operation" in (message.headers or {})
        try:
            return message.seq or 0, {} if anew else read_object(message.data or b"")
        except WriteRefusedError as error:
            hint = "begin anew with --only"
            raise WriteRefusedError(f"what is desired now: {error.message}", hint=hint) from error

    def _key(self, device: str, part: str) -> str:
        return shadow_key(self._env, device, part)


def _revision(entry: KeyValue.Entry) -> Revision:
    body = (entry.value or b"").decode(errors="replace")
    return Revision(entry.revision or 0, _utc(entry.created), None if entry.operation else body)


def _utc(created: Any) -> str:
    # nats-py says it is a number, and gives a datetime.
    return f"{created:%Y-%m-%dT%H:%M:%S}Z"
