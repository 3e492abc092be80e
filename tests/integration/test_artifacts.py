"""Files between hub and vehicle, with real servers: whole or not there, whatever is cut or killed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import signal
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.client.artifacts import ArtifactClient
from backhaul_agent.errors import RefusedError
from backhaul_codec.protocol import blobs
from backhaul_hub.artifacts.object_store import Objects
from tests.support.rig.parts import program, run_to_end
from tests.support.rig.shaped_relay import ShapedRelay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.support.rig.parts import DeviceRig

    from .conftest import World

pytestmark = [pytest.mark.nats]


def content(path: Path, size: int, seed: int = 1) -> Path:
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def hub(world: World, *arguments: str) -> str:
    directory = str(world.hub.directory)
    return await run_to_end(
        [program("backhaul-hub"), *arguments[:2], "--dir", directory, *arguments[2:]]
    )


async def vehicle(rig: DeviceRig, *arguments: str) -> str:
    return await run_to_end([program("backhaul-agent"), "artifact", *arguments, "--url", rig.url])


async def until(
    look: Callable[[], Awaitable[Any]], fits: Callable[[Any], bool], deadline_s: float = 120
) -> Any:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while True:
        found = await look()
        if fits(found):
            return found
        assert loop.time() < end_s, found
        await asyncio.sleep(0.1)


async def test_an_artifact_comes_and_an_upload_goes(world: World, tmp_path: Path) -> None:
    rig, _ = await world.vehicle()
    source = content(tmp_path / "maps-1.db", 3_000_001)
    said = json.loads(await hub(world, "artifact", "put", str(source), "--json"))
    (stored,) = said["artifacts"]
    assert stored["version"] == f"maps-1.db@{digest_of(source)}"
    target = tmp_path / "there"
    assert digest_of(source) in await vehicle(rig, "get", "maps-1.db", str(target))
    assert target.read_bytes() == source.read_bytes()

    log = content(tmp_path / "can.log", 700_000, seed=2)
    assert "stored" in await vehicle(rig, "put", str(log), "--name", "can-7.log")
    assert stored["version"] in await hub(world, "artifact", "ls")
    assert "can-7.log" not in await hub(world, "artifact", "ls")
    assert "can-7.log" in await hub(world, "artifact", "ls", "--device", "VID-001")
    back = tmp_path / "back"
    await hub(world, "artifact", "get", "can-7.log", str(back), "--device", "VID-001")
    assert back.read_bytes() == log.read_bytes()
    # A stock client reads it too.
    client = await world.hub_client()
    store = await client.jetstream().object_store("TWIN_BLOBS")
    found = await store.get("uploads/VID-001/can-7.log")
    assert found.data == log.read_bytes()


async def fetching(rig: DeviceRig, target: Path, name: str = "a.bin") -> Any:
    async with connect(rig.url) as agent:
        return await ArtifactClient(agent).fetch(name, target)


async def files_of(rig: DeviceRig) -> dict[str, Any]:
    async with connect(rig.url) as agent:
        return await ArtifactClient(agent).status()


async def test_cut_and_killed_again_and_again_nothing_is_fetched_twice(
    world: World, tmp_path: Path
) -> None:
    size = 1_500_000
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port, rate_bytes_s=150_000, round_trip_s=0.02)
    rig, relay = await world.vehicle_behind(link)
    source = content(tmp_path / "a.bin", size)
    await hub(world, "artifact", "put", str(source))
    target = tmp_path / "there"
    fetch = asyncio.create_task(fetching(rig, target))
    part = tmp_path / "VID-001" / "backhaul-agent" / "artifacts" / ".work"
    part /= f"{digest_of(source)}.part"

    async def held() -> int:
        with contextlib.suppress(FileNotFoundError):
            return part.stat().st_size
        return size if target.exists() else 0

    await until(held, lambda held: held > 200_000)
    await relay.cut()
    before = await held()
    await relay.heal()
    await until(held, lambda held: held > before + 100_000)
    status = await files_of(rig)
    twice = status["asked_bytes"] - status["moved_bytes"]
    assert twice < size // 2, "under way now, lost with the link, or answered late"

    await rig.agent.stop(signal.SIGKILL)
    before = await held()
    await rig.start_agent()
    await until(held, lambda held: held > before + 100_000)

    await world.hub.control.stop(signal.SIGKILL)
    await world.hub.start_control()
    job = await fetch
    assert target.read_bytes() == source.read_bytes()
    assert job["bytes"] == size
    status = await files_of(rig)
    assert status["moved_bytes"] == size - before, "it went on from the last byte that was here"
    assert status["asked_bytes"] - status["moved_bytes"] < size // 2
    assert not part.exists()


async def test_an_upload_goes_on_after_kills_on_both_sides(world: World, tmp_path: Path) -> None:
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port, rate_bytes_s=150_000, round_trip_s=0.02)
    rig, relay = await world.vehicle_behind(link)
    source = content(tmp_path / "trace.log", 1_200_000)
    # Not by the command line: on a busy machine that starts for as long as the upload takes.
    client = await world.hub_client()

    async def stored() -> Any:
        return await Objects(client).info("uploads/VID-001/trace.log")

    await vehicle(rig, "put", str(source), "--no-wait")
    part = world.hub.directory / "uploads" / "VID-001" / digest_of(source)

    async def held() -> int:
        with contextlib.suppress(FileNotFoundError):
            return part.stat().st_size
        return source.stat().st_size if await stored() else 0

    await until(held, lambda held: held > 200_000)
    assert await stored() is None, "not checked yet"
    await rig.agent.stop(signal.SIGKILL)
    before = await held()
    await rig.start_agent()
    await until(held, lambda held: held > before + 100_000)
    await world.hub.control.stop(signal.SIGKILL)
    await relay.cut()
    await world.hub.start_control()
    await relay.heal()

    await until(
        stored,
        lambda found: found is not None and found.digest.hex() == digest_of(source),
    )
    # The hub has it before the vehicle hears that it has.
    status = await until(lambda: files_of(rig), lambda found: found["files"][0]["state"] == "ready")
    assert status["moved_bytes"] < 1_200_000, "the first 200,000 bytes were not sent again"
    (job,) = status["files"]
    assert (job["kind"], job["state"]) == ("upload", "ready")
    assert list((tmp_path / "VID-001" / "backhaul-agent" / "artifacts" / ".work").iterdir()) == []
    assert not part.exists()


async def state_of(world: World, slot: str) -> dict[str, Any]:
    client = await world.hub_client()
    question = {"device": "VID-001", "paths": ["artifact"]}
    answer = await client.request("hub.get", json.dumps(question).encode(), timeout=30)
    for point in json.loads(answer.data)["points"]:
        if (point["type"], point["key"]) == (slot, "state"):
            found: dict[str, Any] = point["value"]
            return found
    return {}


async def test_a_slot_holds_what_it_is_told(world: World, tmp_path: Path) -> None:
    await world.vehicle()
    place = tmp_path / "VID-001" / "backhaul-agent" / "artifacts" / "firmware"

    async def told(value: str) -> None:
        await hub(world, "set", "VID-001", f"artifact.firmware:text={value}")

    async def reported(**wanted: str) -> dict[str, Any]:
        found: dict[str, Any] = await until(
            lambda: state_of(world, "firmware"),
            lambda said: all(said.get(key) == value for key, value in wanted.items()),
        )
        return found

    async def failed(why: str) -> None:
        await until(lambda: state_of(world, "firmware"), lambda said: why in said.get("error", ""))

    one, two = content(tmp_path / "fw.bin", 300_000, seed=1), tmp_path / "new"
    version = f"fw.bin@{digest_of(one)}"
    await told(version)
    await reported(state="failed", error="the hub has no artifact fw.bin")
    assert not place.exists()

    await hub(world, "artifact", "put", str(one))
    # Tried again by itself, within seconds the first times.
    assert (await reported(state="ready"))["bytes"] == 300_000
    assert place.read_bytes() == one.read_bytes()

    content(two, 200_000, seed=2)
    await hub(world, "artifact", "put", str(two), "--name", "fw.bin")
    assert place.read_bytes() == one.read_bytes(), "nobody told the slot"
    await told(f"fw.bin@{digest_of(two)}")
    await reported(state="ready", digest=digest_of(two))
    assert place.read_bytes() == two.read_bytes()

    await told(version)
    await failed(f"another version: fw.bin@{digest_of(two)}")
    assert place.read_bytes() == two.read_bytes(), "what was there stays"

    await told("fw.bin")
    await failed("is no NAME@SHA256")
    await hub(world, "set", "VID-001", "--delete", "artifact.firmware")
    await reported(state="empty")
    assert not place.exists()


async def test_what_cannot_be_had_is_said_at_once(world: World, tmp_path: Path) -> None:
    rig, _ = await world.vehicle()
    with pytest.raises(RefusedError, match="missing: the hub has no artifact"):
        await fetching(rig, tmp_path / "there")
    with pytest.raises(RefusedError, match="bad_field"):
        await fetching(rig, tmp_path / "there", "uploads/VID-002/a.log")
    assert not (tmp_path / "there").exists()
    async with connect(rig.url) as agent:
        await ArtifactClient(agent).hand_over(content(tmp_path / "b.log", 10))


async def test_a_vehicle_reads_no_uploads_writes_none_of_another_and_hears_its_own_answers(
    world: World, tmp_path: Path
) -> None:
    a, _ = await world.vehicle("VID-A")
    b, _ = await world.vehicle("VID-B")
    for rig in (a, b):
        log = content(tmp_path / "own.log", 5000, seed=ord(rig.device[-1]))
        assert "stored" in await vehicle(rig, "put", str(log))
    leaf, control = await world.leaf_client(a), await world.hub_client()
    heard: list[tuple[str, Any]] = []
    asked: list[str] = []
    news = asyncio.Event()

    async def hear(message: Msg) -> None:
        heard.append((message.subject, blobs.decode_answer(message.data)))
        news.set()

    async def note(message: Msg) -> None:
        asked.append(message.subject)

    for subject in ("blobr.>", answers_of(a), answers_of(b)):
        await leaf.subscribe(subject, cb=hear)
    for subject in ("blob.>", "hub.abused", "$JS.API.STREAM.DELETE.>"):
        await control.subscribe(subject, cb=note)
    await asyncio.gather(leaf.flush(), control.flush())

    async def ask(question: blobs.Question, *, device: str = "VID-A", reply: str = "") -> None:
        await leaf.publish(f"blob.{device}", blobs.encode(question), reply=reply)

    async def answer(question: blobs.Question, reply: str = "") -> Any:
        await ask(question, reply=reply)
        async with asyncio.timeout(60):
            while not (found := [each for _, each in heard if each.ask == question.ask]):
                news.clear()
                await news.wait()
        return found[0]

    digest = bytes(32)
    # As another device, and with reply subjects that would do harm.
    await ask(blobs.Find(1, "own.log"), device="VID-B")
    await ask(blobs.Offer(2, "own.log", digest, 9), device="VID-B")
    harmful = "$JS.API.STREAM.DELETE.OBJ_TWIN_BLOBS"
    refused = await answer(blobs.Find(3, "x"), harmful)
    assert refused.code == blobs.MISSING
    # Names that lead out of where a device may look or write.
    for number, name in enumerate(
        ["uploads/VID-B/own.log", "uploads/VID-A/own.log", "../own.log", "", "a/../b", "*", ">"], 10
    ):
        assert (await answer(blobs.Find(number, name))).code == blobs.BAD_NAME
        assert (await answer(blobs.Offer(100 + number, name, digest, 9))).code == blobs.BAD_NAME
    # What was not found, or offered, cannot be read or written.
    assert (await answer(blobs.Read(30, digest, 0, 10))).code == blobs.NOT_OPEN
    assert (await answer(blobs.Write(31, digest, 0, b"x"))).code == blobs.NOT_OPEN
    # More than a device may have.
    assert (await answer(blobs.Offer(32, "big", digest, 1 << 40))).code == blobs.QUOTA
    # More bytes than were offered, and others than the digest says.
    assert (await answer(blobs.Offer(33, "bad", digest, 4))).offset == 0
    assert (await answer(blobs.Write(34, digest, 0, b"12345"))).code == blobs.QUOTA
    assert (await answer(blobs.Write(35, digest, 2, b"12"))).offset == 0, "out of turn"
    assert (await answer(blobs.Write(36, digest, 0, b"1234"))).code == blobs.DIGEST
    # Garbage is not answered, and asking without end is.
    for garbage in (b"", b"x" * 1000, b"\x94\xa4read", blobs.encode(blobs.Held(40, 1))):
        await leaf.publish("blob.VID-A", garbage)
    # All at once: who takes his time is answered now and then.
    answers = await asyncio.gather(*(answer(blobs.Find(n, "x")) for n in range(1000, 1030)))
    assert blobs.BUSY in [each.code for each in answers]

    assert {subject for subject, _ in heard} == {answers_of(a)}
    assert {each.ask for _, each in heard} & {1, 2, 40} == set()
    assert set(asked) == {"blob.VID-A"}
    listed = await hub(world, "artifact", "ls", "--uploads")
    assert listed.count("own.log") == 2
    assert "bad" not in listed


def answers_of(rig: DeviceRig) -> str:
    device = tomllib.loads(rig.agent_toml.read_text())["device"]
    return f"blobr.{device['id']}.{device['token']}"


async def test_on_a_metered_link_a_visit_lasts_until_the_file_is_there(
    world: World, tmp_path: Path
) -> None:
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port, rate_bytes_s=100_000, round_trip_s=0.02)
    rig, _ = await world.vehicle_behind(link, link_mode="on-demand", linger_s=1.0)
    leaf = await world.leaf_client(rig)

    async def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (await leaf.request("agent.status", b"", timeout=30)).data
        )["link"]
        return found

    def away(visits: int) -> Callable[[dict[str, Any]], bool]:
        return lambda link: (link["visits"], link["phase"], link["up"]) == (visits, "idle", False)

    await until(status, away(1))
    source = content(tmp_path / "maps.db", 500_000)
    await hub(world, "artifact", "put", str(source))
    await hub(world, "set", "VID-001", f"artifact.maps=maps.db@{digest_of(source)}")
    assert away(1)(await status()), "a file is no reason to connect"
    # An agent that is started again begins with a visit, and this one is all that it takes.
    await rig.agent.stop()
    await rig.start_agent()
    await until(status, away(1))
    place = tmp_path / "VID-001" / "backhaul-agent" / "artifacts" / "maps"
    assert place.read_bytes() == source.read_bytes()
