"""The images, made by tools/make-images and started as plain root file systems: a reading goes from agent to hub.

Each program runs as the image says: its entry point, its user, its environment, and with nothing to write to but its
volume. Not covered: a container runtime, a registry.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from backhaul_agent.client import connect
from backhaul_agent.errors import NoAgentError
from tests.support.needed import lacking
from tests.support.rig.parts import NO_PAGE, Part, run_to_end, wait_for_log
from tests.support.rig.ports import free_port
from tests.support.waiting import until

from .conftest import run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.nats, pytest.mark.timeout(1800)]

STATE = "/var/lib/backhaul"
# A runtime's share: devices and processes, names of hosts, a file system that is read only, a directory for what passes, and the volume.
RUNTIME = r"""
root=$1 volume=$2 user=$3; shift 3
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
touch "$root/etc/hosts"
mount --bind /etc/hosts "$root/etc/hosts"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
[ -z "$volume" ] || mount --bind "$volume" "$root/var/lib/backhaul"
mount -o remount,bind,ro "$root"
exec chroot --userspec="$user" "$root" "$@"
"""


@dataclass
class Image:
    """An unpacked image: its files, and what it says of itself."""

    root: Path
    process: dict[str, Any]

    def words(self, volume: Path | None, *words: str, entry: str = "") -> list[str]:
        """Return the command that runs it with these words in place of its own; `entry`: another program of it."""
        process = self.process
        entrypoint = [entry] if entry else process["args"][:1]
        user = f"{process['user']['uid']}:{process['user']['gid']}"
        return [
            *("unshare", "--mount", "--propagation", "private"),
            *("sh", "-ceu", RUNTIME, "sh", str(self.root), str(volume or ""), user),
            *("/usr/bin/env", "-i", *process["env"], *entrypoint, *words),
        ]


@dataclass
class Made:
    """The images that were made, and a directory for their volumes."""

    layout: Path
    images: dict[str, Image]
    place: Path

    def volume(self, name: str) -> Path:
        """Make a volume, of the images' user."""
        found = self.place / name
        found.mkdir(mode=0o700)
        os.chown(found, 10001, 10001)
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    for program in ("mmdebstrap", "umoci"):
        if not shutil.which(program):
            lacking(f"{program} is not installed: run tools/system-packages")
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        lacking("root file systems are started as root, in mount namespaces")
    place = tmp_path_factory.mktemp("images")
    # The image's user has to reach them.
    for each in (place, *place.parents[:3]):
        each.chmod(each.stat().st_mode | 0o011)
    layout, base = place / "layout", place / "base.tar"
    done = run(
        "tools/make-images", within_s=1500, PARTS="agent hub", OUT=str(layout), BASE=str(base)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    images = {}
    for part in ("agent", "hub"):
        done = run("umoci", "unpack", "--image", f"{layout}:{part}", str(place / part))
        assert done.returncode == 0, done.stderr
        process = json.loads((place / part / "config.json").read_text())["process"]
        images[part] = Image(place / part / "rootfs", process)
    # The jobs' image is not packed, which would take half a minute: its files are there, its words are the hub's.
    done = run(
        "tools/make-images", within_s=1500, PARTS="jobs", TREES=str(place / "trees"), BASE=str(base)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = images["hub"].process | {"args": ["/usr/bin/backhaul-spark"]}
    words["env"] = [*words["env"], "JAVA_HOME=/usr/lib/backhaul-spark/java"]
    images["jobs"] = Image(place / "trees" / "jobs", words)
    yield Made(layout, images, place)
    # Some hundred megabytes: pytest keeps the directories of three runs.
    shutil.rmtree(place)


def test_an_image_says_what_it_is_and_holds_no_tool_for_its_making(made: Made) -> None:
    for part in ("agent", "hub"):
        image = made.images[part]
        assert image.process["args"][0] == f"/usr/bin/backhaul-{part}"
        assert (image.process["user"]["uid"], image.process["user"]["gid"]) == (10001, 10001)
        labels = json.loads(
            run("umoci", "stat", "--image", f"{made.layout}:{part}", "--json").stdout
        )
        assert len(labels["history"]) == 2, "the base, and what was installed on it"
        assert (image.root / STATE[1:]).stat().st_uid == 10001
        for absent in ("usr/bin/apt-get", "usr/bin/pip", "usr/bin/pip3", "usr/bin/cc"):
            assert not (image.root / absent).exists(), absent
    index = json.loads((made.layout / "index.json").read_text())
    names = {
        each["annotations"]["org.opencontainers.image.ref.name"] for each in index["manifests"]
    }
    assert names == {"agent", "hub"}
    layers = [
        json.loads((made.layout / "blobs/sha256" / each["digest"].partition(":")[2]).read_text())[
            "layers"
        ]
        for each in index["manifests"]
    ]
    assert layers[0][0] == layers[1][0], "they share their base"


async def test_a_reading_goes_from_the_agents_image_to_the_hubs_and_into_the_jobs_table(
    made: Made,
) -> None:
    hub, agent, jobs = (made.images[part] for part in ("hub", "agent", "jobs"))
    at_hub, at_vehicle, at_jobs = (
        made.volume(name) for name in ("at-hub", "at-vehicle", "at-jobs")
    )
    client, leaf, programs = free_port(), free_port(), free_port()
    await run_to_end(
        hub.words(
            at_hub,
            "init",
            STATE,
            "--port",
            str(client),
            "--leaf-port",
            str(leaf),
            "--up-gib",
            "1",
            *NO_PAGE,
        )
    )
    server = Part(
        "server",
        hub.words(at_hub, "-c", f"{STATE}/hub.conf", entry="/usr/bin/nats-server"),
        made.place / "server.log",
    )
    # What the image does of itself.
    control = Part("hub", hub.words(at_hub, *hub.process["args"][1:]), made.place / "hub.log")
    leaf_server = Part(
        "leaf",
        agent.words(at_vehicle, "-c", f"{STATE}/leaf.conf", entry="/usr/bin/nats-server"),
        made.place / "leaf.log",
    )
    program = Part(
        "agent", agent.words(at_vehicle, *agent.process["args"][1:]), made.place / "agent.log"
    )
    running = []
    try:
        for part, port in ((server, client), (control, 0)):
            running.append(part)
            await part.start()
            if port:
                await part.wait_listening(port)
        await wait_for_log(control, '"event": "ready"')
        await run_to_end(hub.words(at_hub, "add-device", "VID-001", "--dir", STATE))
        document = at_vehicle / "identity.json"
        shutil.copy(at_hub / "devices/VID-001/identity.json", document)
        os.chown(document, 10001, 10001)
        enrol = ("enrol", "--file", f"{STATE}/identity.json", "--dir", STATE, "--state-dir", STATE)
        await run_to_end(agent.words(at_vehicle, *enrol, "--port", str(programs), "--open"))
        for part in (leaf_server, program):
            running.append(part)
            await part.start()
        await leaf_server.wait_listening(programs)
        async with connect(f"nats://127.0.0.1:{programs}") as vehicle:

            async def kept() -> bool:
                try:
                    await vehicle.publish("battery", "soc", 81.25, lane="live")
                except NoAgentError:
                    return False
                return True

            await until(kept, "the agent keeps a reading")
        get = hub.words(at_hub, "get", "VID-001", "battery.soc", "--dir", STATE)

        async def read() -> bool:
            return "81.25" in await run_to_end(get)

        await until(read, "the hub has the reading")
        for name in ("hub.toml", "creds/spark.creds"):
            (at_jobs / name).parent.mkdir(exist_ok=True)
            shutil.copy(at_hub / name, at_jobs / name)
        await run_to_end(["chown", "-R", "10001:10001", str(at_jobs)])
        tables = ("--table-root", f"{STATE}/tables")
        await run_to_end(
            jobs.words(at_jobs, "ingest", "--once", "--quiet", "--hub-dir", STATE, *tables)
        )
        found = DeltaTable(str(at_jobs / "tables/points")).to_pyarrow_table().to_pylist()
        assert [
            (row["device"], row["node"], row["type"]) for row in found if 81.25 in row.values()
        ] == [("VID-001", "battery", "soc")]
    finally:
        for part in reversed(running):
            await part.stop()
