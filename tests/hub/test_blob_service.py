"""Objects in pieces, and uploads, against a real object store; the connection is a device's mouth."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from nats.aio.msg import Msg

from backhaul_codec.protocol import blobs
from backhaul_hub.artifacts.object_store import CHUNK_BYTES, Objects
from backhaul_hub.artifacts.service import WAITING_BYTES_MAX, BlobService
from backhaul_hub.config import ArtifactsSection
from backhaul_hub.errors import ArtifactError, HubError
from backhaul_hub.streams.twin_streams import BLOBS
from backhaul_runtime.clock import SystemClock
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.artifacts.object_store import Artifact
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats
TOKENS = {"VID-001": "tok1", "VID-002": "tok2"}


class HubClock(SystemClock):
    """Time that passes by hand, for what is allowed per time."""

    s = 0.0

    def monotonic_s(self) -> float:
        self.s += 2.0  # so that nobody asks too often
        return self.s


@dataclass
class Bench:
    client: Client
    service: BlobService
    objects: Objects
    answers: dict[str, asyncio.Queue[Any]]
    directory: Path
    asked: int = 0

    async def put(self, name: str, data: bytes) -> bytes:
        stored = await self.objects.put(name, io.BytesIO(data))
        assert stored.digest == hashlib.sha256(data).digest()
        return stored.digest

    async def ask(self, kind: type, *fields: Any, device: str = "VID-001") -> Any:
        self.asked += 1
        await self.client.publish(f"blob.{device}", blobs.encode(kind(self.asked, *fields)))
        async with asyncio.timeout(60):
            answer = await self.answers[device].get()
        assert answer.ask == self.asked
        return answer

    async def code(self, kind: type, *fields: Any, device: str = "VID-001") -> str:
        answer = await self.ask(kind, *fields, device=device)
        assert isinstance(answer, blobs.Refused), answer
        return answer.code

    async def upload(self, name: str, data: bytes, device: str = "VID-001") -> bool:
        digest = hashlib.sha256(data).digest()
        held = await self.ask(blobs.Offer, name, digest, len(data), device=device)
        while held.offset < len(data):
            piece = data[held.offset : held.offset + blobs.PIECE_BYTES_MAX]
            held = await self.ask(blobs.Write, digest, held.offset, piece, device=device)
        return bool(held.done)


@asynccontextmanager
async def bench(
    server: NatsServer,
    directory: Path,
    *,
    limits: ArtifactsSection | None = None,
    store_bytes: int = -1,
) -> AsyncIterator[Bench]:
    client = await patient.connect(server.url)
    stream = {
        "name": BLOBS,
        "subjects": ["$O.TWIN_BLOBS.C.>", "$O.TWIN_BLOBS.M.>"],
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "discard": "new",
        "max_bytes": store_bytes,
    }
    await client.request(f"$JS.API.STREAM.CREATE.{BLOBS}", json.dumps(stream).encode())
    answers: dict[str, asyncio.Queue[Any]] = {device: asyncio.Queue() for device in TOKENS}

    async def hear(message: Msg) -> None:
        _, device, token = message.subject.split(".")
        assert TOKENS[device] == token
        answers[device].put_nowait(blobs.decode_answer(message.data))

    await client.subscribe("blobr.>", cb=hear)
    service = BlobService(client, HubClock(), TOKENS.get, directory, limits or ArtifactsSection())
    running = asyncio.create_task(service.run())
    await service.listen(client)
    try:
        yield Bench(client, service, Objects(client), answers, directory)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 777])
async def test_any_piece_of_an_object_is_what_was_put(
    nats_server: NatsServer, tmp_path: Path, size: int
) -> None:
    data = noise(size)
    async with bench(nats_server, tmp_path) as it:
        await it.put("other", noise(CHUNK_BYTES))
        digest = await it.put("a.bin", data)
        found = await it.ask(blobs.Find, "a.bin")
        assert (found.digest, found.size) == (digest, size)
        chance = random.Random(7)
        for _ in range(10):
            offset, length = chance.randrange(size + 10), chance.randint(1, blobs.PIECE_BYTES_MAX)
            piece = await it.ask(blobs.Read, digest, offset, length)
            assert (piece.offset, piece.data) == (offset, data[offset : offset + length])
        read = b"".join([chunk async for chunk in it.objects.content(await required(it, "a.bin"))])
        assert read == data


async def required(it: Bench, name: str) -> Any:
    found = await it.objects.info(name)
    assert found is not None
    return found


async def test_objects_that_were_written_side_by_side_are_read_apart(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    one, two = noise(400_000, 1), noise(400_000, 2)
    async with bench(nats_server, tmp_path) as it:
        await asyncio.gather(it.put("one", one), it.put("two", two))
        for name, data in (("one", one), ("two", two)):
            digest = (await it.ask(blobs.Find, name)).digest
            piece = await it.ask(blobs.Read, digest, 300_000, 20_000)
            assert piece.data == data[300_000:320_000]


async def test_a_version_that_is_gone_is_said_to_be(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with bench(nats_server, tmp_path) as it:
        digest = await it.put("a.bin", noise(300_000))
        assert await it.code(blobs.Read, digest, 0, 10) == blobs.NOT_OPEN
        await it.ask(blobs.Find, "a.bin", digest)
        await it.put("a.bin", noise(300_000, 2))
        assert await it.code(blobs.Read, digest, 200_000, 10) == blobs.CHANGED
        assert await it.code(blobs.Find, "a.bin", digest) == blobs.CHANGED
        assert await it.objects.remove("a.bin")
        assert not await it.objects.remove("a.bin")
        assert await it.code(blobs.Find, "a.bin") == blobs.MISSING
        assert await it.objects.list() == []


async def test_an_object_with_a_chunk_missing_is_damaged(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with bench(nats_server, tmp_path) as it:
        await it.put("a.bin", noise(300_000))
        request = json.dumps({"seq": 2}).encode()
        await it.client.request(f"$JS.API.STREAM.MSG.DELETE.{BLOBS}", request)
        answer = await it.ask(blobs.Find, "a.bin")
        assert "is damaged: 168928 of 300000 bytes" in answer.message
        with pytest.raises(ArtifactError, match="damaged"):
            await it.objects.open(await required(it, "a.bin"))


async def test_an_object_that_goes_while_it_is_found_holds_nobody_up(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(nats_server, tmp_path) as it:
        await it.put("a.bin", noise(300_000))
        info = it.service._objects.info

        async def then_it_goes(name: str) -> Artifact | None:
            found = await info(name)
            await it.objects.remove(name)
            monkeypatch.setattr(
                "backhaul_hub.artifacts.object_store._SILENCE_S_MAX", 0.1
            )  # none comes any more
            return found

        monkeypatch.setattr(it.service._objects, "info", then_it_goes)
        assert await it.code(blobs.Find, "a.bin") == blobs.BUSY
        monkeypatch.undo()
        assert await it.code(blobs.Find, "a.bin") == blobs.MISSING


async def test_a_store_that_is_emptied_while_it_is_listed_holds_nobody_up(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(nats_server, tmp_path) as it:
        await it.put("a.bin", noise(1000))
        jetstream = it.objects._jetstream
        last = jetstream.get_last_msg

        async def then_it_is_empty(*args: Any) -> Any:
            found = await last(*args)
            await jetstream.purge_stream(BLOBS)
            return found

        monkeypatch.setattr(jetstream, "get_last_msg", then_it_is_empty)
        monkeypatch.setattr("backhaul_hub.artifacts.object_store._LISTED_S_MAX", 1.0)
        async with asyncio.timeout(60):
            with pytest.raises(HubError, match="does not answer"):
                await it.objects.list()


async def test_an_object_whose_digest_is_wrong_is_not_taken_for_whole(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with bench(nats_server, tmp_path) as it:
        await it.put("a.bin", noise(1000))
        meta = f"$O.TWIN_BLOBS.M.{base64.urlsafe_b64encode(b'a.bin').decode()}"
        stored = await it.client.jetstream().get_last_msg(BLOBS, meta)
        info = json.loads(stored.data or b"")
        info["digest"] = "SHA-256=" + base64.urlsafe_b64encode(bytes(32)).decode()
        await it.client.request(meta, json.dumps(info).encode(), headers={"Nats-Rollup": "sub"})
        with pytest.raises(ArtifactError, match="SHA-256 is wrong"):
            async for _ in it.objects.content(await required(it, "a.bin")):
                pass


async def test_an_upload_is_visible_once_it_is_checked_and_a_repeat_is_done_at_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    data = noise(300_000)
    digest = hashlib.sha256(data).digest()
    async with bench(nats_server, tmp_path) as it:
        assert (await it.ask(blobs.Offer, "a.log", digest, len(data))).offset == 0
        held = await it.ask(blobs.Write, digest, 0, data[:20_000])
        assert (held.offset, held.done) == (20_000, False)
        for offset in (0, 10_000, 30_000):  # a repeat, an overlap, one too early
            held = await it.ask(blobs.Write, digest, offset, data[offset : offset + 20_000])
            assert held.offset == 20_000
        assert await it.objects.list() == []
        assert await it.upload("a.log", data)
        assert await it.upload("a.log", data)
        assert it.service._uploads.stored == 1
        (stored,) = await it.objects.list()
        assert (stored.name, stored.digest) == ("uploads/VID-001/a.log", digest)
        # What another device offers alike is its own, and begins at nothing.
        held = await it.ask(blobs.Offer, "a.log", digest, len(data), device="VID-002")
        assert (held.offset, held.done) == (0, False)
        assert not list((tmp_path / "VID-001").iterdir())


async def test_a_control_plane_that_was_started_again_goes_on_where_it_was(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    data = noise(100_000)
    digest = hashlib.sha256(data).digest()
    async with bench(nats_server, tmp_path) as it:
        await it.ask(blobs.Offer, "a.log", digest, len(data))
        await it.ask(blobs.Write, digest, 0, data[:30_000])
    async with bench(nats_server, tmp_path) as it:
        assert await it.code(blobs.Write, digest, 30_000, b"x") == blobs.NOT_OPEN
        assert (await it.ask(blobs.Offer, "a.log", digest, len(data))).offset == 30_000
        assert await it.upload("a.log", data)


async def test_what_a_device_may_upload_is_bounded(nats_server: NatsServer, tmp_path: Path) -> None:
    limits = ArtifactsSection(upload_bytes_max=100_000, uploads_max=2)
    async with bench(nats_server, tmp_path, limits=limits) as it:
        assert await it.code(blobs.Offer, "a", bytes(32), 100_001) == blobs.QUOTA
        assert await it.upload("a", noise(60_000))
        assert await it.code(blobs.Offer, "b", bytes(32), 40_001) == blobs.QUOTA
        assert await it.upload("a", noise(90_000, 2)), "in place of the one before"
        assert await it.upload("b", noise(10_000, 3))
        assert await it.code(blobs.Offer, "c", bytes(32), 0) == blobs.QUOTA
        assert await it.upload("a", noise(80_000), "VID-002"), "another has its own"
        # What is begun and left is dropped for what comes.
        for number in range(9):
            await it.ask(blobs.Offer, "b", bytes([number]) * 32, 10_000)
        left = list((tmp_path / "VID-001").iterdir())
        assert len(left) <= 4


async def test_a_wrong_digest_and_too_many_bytes_are_refused(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with bench(nats_server, tmp_path) as it:
        wrong = bytes(32)
        await it.ask(blobs.Offer, "a", wrong, 4)
        assert await it.code(blobs.Write, wrong, 0, b"12345") == blobs.QUOTA
        assert await it.code(blobs.Write, wrong, 0, b"1234") == blobs.DIGEST
        assert await it.objects.list() == []
        assert (await it.ask(blobs.Offer, "a", wrong, 4)).offset == 0, "it begins anew"


async def test_a_store_that_is_full_says_so_and_takes_the_rest_of_it_later(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    data = noise(300_000)
    async with bench(nats_server, tmp_path, store_bytes=400_000) as it:
        await it.put("filler", noise(200_000, 2))
        with pytest.raises(ArtifactError, match="full"):
            await it.put("more", noise(300_000, 3))
        digest = hashlib.sha256(data).digest()
        await it.ask(blobs.Offer, "a", digest, len(data))
        for offset in range(0, len(data), 30_000):
            last = await it.ask(blobs.Write, digest, offset, data[offset : offset + 30_000])
        assert last.code == blobs.FULL  # type: ignore[possibly-undefined]
        await it.objects.remove("filler")
        held = await it.ask(blobs.Offer, "a", digest, len(data))
        assert held.done, "all of it was here"


async def test_a_device_that_asks_for_too_much_at_once_is_passed_over(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with bench(nats_server, tmp_path) as it:
        digest = await it.put("a", noise(200_000))
        await it.ask(blobs.Find, "a")
        asks = 3 * WAITING_BYTES_MAX // blobs.PIECE_BYTES_MAX
        reads = [blobs.Read(1000 + n, digest, 0, blobs.PIECE_BYTES_MAX) for n in range(asks)]
        await asyncio.gather(*(it.service._on_question(message(each)) for each in reads))
        assert it.service.refused >= asks // 2
        answer = await it.answers["VID-001"].get()
        assert answer.ask == 1000
        await it.service._on_question(message(reads[0], device="VID-404"))
        assert "VID-404" not in it.service._desks


def message(question: blobs.Question, device: str = "VID-001") -> Any:
    return Msg(
        _client=None,  # type: ignore[arg-type]
        subject=f"blob.{device}",
        data=blobs.encode(question),
    )


async def test_chunks_that_a_killed_writer_left_are_removed_later_and_no_others(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    data, now_ns, hour_ns = noise(200_000), SystemClock().now_ns(), 3600 * 10**9
    async with bench(nats_server, tmp_path) as it:
        await it.put("a", data)
        await it.client.jetstream().publish("$O.TWIN_BLOBS.C.stray", b"x" * 1000)
        assert await it.objects.sweep(now_ns) == 0, "its writer may be at it still"
        assert await it.objects.sweep(now_ns + 2 * hour_ns) == 1
        assert await it.objects.sweep(now_ns + 2 * hour_ns) == 0
        read = b"".join([chunk async for chunk in it.objects.content(await required(it, "a"))])
        assert read == data
