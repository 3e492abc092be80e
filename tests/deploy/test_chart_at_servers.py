"""Pods of the chart beside servers with the settings of values-nats.yaml: real ones, on loopback.

Not covered: a Kubernetes cluster, and the official chart of NATS, which no registry within reach has. What its values
say of the servers is compared with what `backhaul-hub init` writes.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.helm_chart import HELM, ROOT, SERVERS, Chart, chart, pods_directory
from tests.support.rig.parts import Part, program, run_to_end, wait_for_log
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["chart"]

pytestmark = [pytest.mark.nats]

# The names of what the official chart's values turn on, as its README has them; nothing of it is copied.
BLOCKS = ("cluster", "jetstream", "leafnodes", "websocket", "resolver")


def told_to_servers(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that values for the official chart merge into nats.conf, by block."""
    config = values["config"]
    found = {block: dict(config[block]["merge"]) for block in BLOCKS}
    for block in ("cluster", "leafnodes", "websocket"):
        found[block]["tls"] = dict(config[block]["tls"]["merge"])
    top = dict(config["merge"])
    top.pop("$include")
    return top | found | {"tls": dict(config["nats"]["tls"]["merge"])}


def flat(settings: dict[str, Any], before: str = "") -> dict[str, str]:
    """Return values by dotted names, as text without quotes and marks."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{name}.")
        else:
            found[before + name] = re.sub(r'[<>" ]', "", json.dumps(value))
    return found


def of_hub_conf(text: str) -> dict[str, str]:
    """Return the settings of a hub.conf likewise."""
    found: dict[str, str] = {}
    blocks: list[str] = []
    for line in re.sub(r"\{ ([^{}]*) \}", r"{\n\1\n}", re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)).split("\n"):  # fmt: skip
        if opened := re.fullmatch(r"\s*(\w+)\s*:?\s*\{", line):
            blocks.append(opened[1])
        elif line.strip() == "}":
            blocks.pop()
        elif said := re.fullmatch(r"\s*(\w+): (.*)", line):
            found[".".join([*blocks, said[1]])] = re.sub(r'[" ]', "", said[2])
    return found


# Addresses, files and secrets are the chart's to say; what remains is how a hub's server behaves.
THE_CHARTS = re.compile(
    r"(.*\.)?(listen|cert_file|key_file|ca_file|store_dir|dir|log\w*|server_name|operator|system_account"
    r"|max_file_store|no_advertise|user|password|cluster\.authorization\.timeout|allowed_origins)"
    r"|cluster\.(authorization|routes).*|resolver_preload.*"
)


def test_the_values_for_nats_say_what_init_says(chart: Chart) -> None:
    values = yaml.safe_load((HELM / "values-nats.yaml").read_text())
    server = chart.hub / "servers" / "nats-0"
    text = (server / "hub.conf").read_text().replace(
        'include "websocket.conf"', (server / "websocket.conf").read_text()
    )  # fmt: skip
    by_init = {k: v for k, v in of_hub_conf(text).items() if not THE_CHARTS.fullmatch(k)}
    assert len(by_init) > 15
    by_chart = flat(told_to_servers(values))
    assert {k: v for k, v in by_chart.items() if not THE_CHARTS.fullmatch(k)} == by_init
    assert values["config"]["cluster"]["replicas"] == len(SERVERS)


class Servers:
    """Three nats-servers with the settings of values-nats.yaml, on loopback."""

    def __init__(self, chart: Chart, place: Path) -> None:
        self._chart, self._place = chart, place
        self._values = yaml.safe_load((HELM / "values-nats.yaml").read_text())
        self._routes = [free_port() for _ in SERVERS]
        self.ports = [free_port() for _ in SERVERS]
        self.parts: list[Part] = []

    async def start(self) -> None:
        secret = self._place / "secret"
        secret.mkdir()
        (secret / "hub").symlink_to(self._chart.hub)
        conf = (self._chart.hub / "servers/nats-0/hub.conf").read_text()
        # The line of docs/deployment.md.
        page = (ROOT / "docs" / "deployment.md").read_text()
        (script,) = re.findall(r"^ +(\{ grep .*?> operator\.conf)$", page, re.MULTILINE | re.DOTALL)
        await run_to_end(["/bin/sh", "-ceu", f"cd {secret}; {script}"])
        for file in (self._chart.hub / "servers/nats-0/tls").iterdir():
            (secret / file.name).write_bytes(file.read_bytes())
        for number, name in enumerate(SERVERS):
            file = self._place / f"{name}.conf"
            file.write_text(self._conf(number, name, secret, conf))
            log = self._place / f"{name}.log"
            part = Part(name, [program("nats-server"), "-c", str(file)], log)
            await part.start()
            self.parts.append(part)

    def _conf(self, number: int, name: str, secret: Path, conf: str) -> str:
        settings = told_to_servers(self._values)
        mine = self._place / name
        pem = str(secret / "server.pem")
        for block in ("cluster", "leafnodes", "websocket"):
            settings[block]["tls"] |= {"cert_file": pem, "key_file": pem}
            settings[block] |= {"host": "127.0.0.1", "port": free_port()}
        settings["tls"] |= {"cert_file": pem, "key_file": pem}
        settings["cluster"] |= {
            "port": self._routes[number],
            "no_advertise": True,
            "routes": [f"tls://127.0.0.1:{port}" for port in self._routes],
        }
        settings["cluster"]["tls"]["ca_file"] = str(secret / "ca.pem")
        settings["leafnodes"]["no_advertise"] = True
        # By the disk of this machine, as hub.toml's sizes are.
        (size,) = re.findall(r"max_file_store: (\d+)", conf)
        settings["jetstream"] |= {"store_dir": str(mine), "max_file_store": int(size)}
        settings["resolver"]["dir"] = str(mine / "resolver")
        settings |= {"server_name": name, "host": "127.0.0.1", "port": self.ports[number]}
        text = re.sub(r'"<< (.*?) >>"', r"\1", json.dumps(settings))
        return f'{{ include "secret/operator.conf"\n{text[1:]}'


async def test_pods_of_the_chart_lead_and_follow_beside_servers_of_its_values(
    chart: Chart, tmp_path: Path
) -> None:
    servers = Servers(chart, tmp_path)
    ports = {"fleet-backhaul-hub-0": free_port(), "fleet-backhaul-hub-1": free_port()}

    def pod(name: str, *words: str) -> Part:
        state = pods_directory(chart, tmp_path, name, *words)
        urls = ",".join(f"tls://127.0.0.1:{port}" for port in servers.ports)
        text = (state / "hub.toml").read_text()
        text = re.sub(r'^url = "tls:.*"$', f'url = "{urls}"', text, flags=re.MULTILINE)
        text = text.replace("0.0.0.0:9464", f"127.0.0.1:{ports[name]}")
        (state / "hub.toml").write_text(text)
        spec = chart.objects(*words)["StatefulSet fleet-backhaul-hub"]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        args = [str(state) if each == "/var/lib/backhaul" else each for each in container["args"]]
        return Part(name, [program("backhaul-hub"), *args], tmp_path / f"{name}.log")

    async def told(name: str, path: str) -> str:
        """Return what a probe or Prometheus is answered; empty where nobody listens, or it is not ready."""
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{ports[name]}{path}") as answer:
                return await answer.text() + str(answer.status) if answer.ok else ""
        except aiohttp.ClientError:
            return ""

    async def who(leads: int) -> list[str]:
        metric = f"backhaul_hub_leads {leads}.0\n"
        return [name for name in ports if metric in await told(name, "/metrics")]

    first = next(iter(ports))
    running: list[Part] = []
    try:
        await servers.start()
        begins = pod(first, "--set", "hub.replicas=1", "--set", "hub.beginJournal=true")
        running.append(begins)
        # As systemd asks for it, where deploy/systemd has WatchdogSec=.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.bind(str(chart.home.with_name("notify")))
            systemd.setblocking(False)
            begins.before = (
                "env",
                f"NOTIFY_SOCKET={systemd.getsockname()}",
                "WATCHDOG_USEC=200000",
            )
            await begins.start()
            await wait_for_log(begins, '"event": "ready"')
            heard = await asyncio.get_running_loop().sock_recv(systemd, 64)
        assert heard == b"WATCHDOG=1"
        check = [program("backhaul-hub"), "up", "--check", "--dir", str(tmp_path / first)]
        assert "all streams are as declared" in await run_to_end(check)
        await begins.stop()
        parts = {name: pod(name) for name in ports}
        for part in parts.values():
            running.append(part)
            await part.start()

        async def all_ready() -> bool:
            ready = [await told(name, "/ready") for name in ports]
            return ready == ["200", "200"] and len(await who(0)) == len(await who(1)) == 1

        await until(all_ready, "one leads, the other follows, and both answer a probe")
        (leader,), (other,) = await who(1), await who(0)
        await parts[leader].stop()

        async def other_leads() -> bool:
            return await who(1) == [other]

        await until(other_leads, "the other one leads")
    finally:
        for part in (*running, *servers.parts):
            await part.stop()
