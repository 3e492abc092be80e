"""The honest vehicle: a real leaf server with the streams that an agent makes, and no agent.

Not covered: what an agent makes of messages; that is other tests' matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nats.errors import NoRespondersError

from backhaul_agent.apps.accounts_text import render_apps
from backhaul_agent.apps.rights import Apps
from backhaul_agent.enrol.request import new_key
from backhaul_agent.leaf.config_text import APPS_FILE, LeafServer, render_leaf
from backhaul_codec.protocol.credentials import Credentials
from backhaul_hub.nats.jetstream import JetStreamApi
from tests.support.rig import patient
from tests.support.rig.parts import Part, program
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.msg import Msg

    from backhaul_codec.protocol.identity import Identity

_SECOND_NS = 1_000_000_000
# Where the hub speaks to this vehicle.
_FROM_THE_HUB = ("dn.>", "clkr.>", "blobr.>", "w.>")


class HonestVehicle:
    """One leaf server and its streams."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        self._identity = identity
        self._port = free_port()
        directory.mkdir()
        (directory / "leaf").mkdir()
        creds, conf = directory / "device.creds", directory / "leaf.conf"
        creds.write_text(Credentials(identity.seed, "", identity.jwt).text())
        server = LeafServer(self._port, str(directory / "leaf"), creds_file=creds)
        conf.write_text(render_leaf(identity, server))
        self._key, nobody = new_key(), new_key()
        users = render_apps(Apps(), agent_key=self._key.public_key, system_key=nobody.public_key)
        (directory / APPS_FILE).write_text(users)
        self._leaf = Part(
            "honest leaf", [program("nats-server"), "-c", str(conf)], directory / "leaf.log"
        )
        self.told: list[str] = []

    async def start(self) -> None:
        await self._leaf.start()
        await self._leaf.wait_listening(self._port)
        self._client = await patient.connect(
            f"nats://127.0.0.1:{self._port}", nkeys_seed_str=self._key.seed
        )
        self._api = JetStreamApi(self._client)
        for subject in _FROM_THE_HUB:
            await self._client.subscribe(subject, cb=self._on_told)
        device, token = self._identity.device, self._identity.token
        for lane, subjects in (("live", ["p.>", "e.>", "r.>"]), ("bulk", ["f.>", "b", "d.>"])):
            stream = f"OUT_{lane}"
            await self._make(stream, {"subjects": subjects, "first_seq": 2})
            durable = {
                "durable_name": token,
                "name": token,
                "deliver_subject": f"dlv.{device}.{token}_{lane}",
                "deliver_policy": "all",
                "ack_policy": "flow_control",
                "flow_control": True,
                "idle_heartbeat": _SECOND_NS,
                "max_ack_pending": 64,
            }
            await self._api.request(
                f"CONSUMER.CREATE.{stream}.{token}", {"stream_name": stream, "config": durable}
            )
        source = {
            "name": self._identity.down_stream,
            "external": {"api": "hubapi", "deliver": ""},
            "consumer": {"name": f"{device}-{token}", "deliver_subject": f"dn.{device}.{token}"},
            "subject_transforms": [{"src": f"in.{device}.>", "dest": ">"}],
        }
        await self._make("IN", {"max_msgs_per_subject": 1, "sources": [source]})

    async def stop(self) -> None:
        await self._client.close()
        await self._leaf.stop()

    async def send(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Store a message in OUT."""
        await self._api.publish(subject, body, headers)

    async def newest(self, subject: str) -> bytes:
        """Return the newest message of a subject in IN; empty where there is none."""
        try:
            answer = await self._client.request(f"$JS.API.DIRECT.GET.IN.{subject}", b"", timeout=30)
        except NoRespondersError:
            return b""
        return answer.data

    async def facts(self) -> list[str]:
        """Return what its streams hold beside what changes with honest work."""
        found = []
        for name in ("OUT_live", "OUT_bulk", "IN"):
            info = await self._api.request(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
            found += [f"{name} {subject}" for subject in info["state"].get("subjects") or {}]
        return found

    def told_of(self, *signs: str) -> list[str]:
        """Return what the hub has said here that shows one of these signs of another vehicle."""
        return [line for line in self.told if any(sign in line for sign in signs)]

    async def _make(self, name: str, config: dict[str, object]) -> None:
        common = {"name": name, "storage": "file", "discard": "old", "allow_direct": True}
        await self._api.request(f"STREAM.CREATE.{name}", common | config)

    async def _on_told(self, message: Msg) -> None:
        self.told.append(f"{message.subject} {message.reply} {message.data!r}")
