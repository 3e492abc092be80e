"""The chart of deploy/helm, and a hub directory that its values are about."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.needed import lacking
from tests.support.rig.parts import program

ROOT = Path(__file__).parents[2]
HELM = ROOT / "deploy" / "helm"
SERVERS = [f"nats-{number}" for number in range(3)]


@dataclass
class Chart:
    """The chart, and a hub that its values are about."""

    hub: Path
    home: Path

    def helm(self, *words: str, toml: str = "hub.toml") -> subprocess.CompletedProcess[str]:
        """Render it with these words more."""
        given = ["--set-file", f"hubToml={self.hub / toml}"] if toml else []
        places = {f"HELM_{kind}_HOME": str(self.home) for kind in ("CACHE", "CONFIG", "DATA")}
        return subprocess.run(
            [ROOT / ".tools/helm", "template", "fleet", HELM / "backhaul", *given, *words],
            env={"PATH": os.defpath, "HOME": str(self.home), **places},
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip

    def objects(self, *words: str) -> dict[str, Any]:
        """Return what it renders, each by its kind and name."""
        done = self.helm(*words)
        assert done.returncode == 0, done.stderr
        found = [each for each in yaml.safe_load_all(done.stdout) if each]
        return {f"{each['kind']} {each['metadata']['name']}": each for each in found}


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    if not (ROOT / ".tools/helm").exists():
        lacking("there is no .tools/helm: run tools/go-program helm")
    if not (ROOT / ".tools/charts").exists():
        lacking("there is no .tools/charts: run tools/setup-beside charts")
    place = tmp_path_factory.mktemp("chart")
    hosts = [f"{name}.nats-headless" for name in SERVERS]
    words = [word for name, host in zip(SERVERS, hosts, strict=True) for word in ("--server", f"{name}={host}", "--tls-name", host)]  # fmt: skip
    words += ["--host", "0.0.0.0", "--leaf-url", "tls://hub.example.org:7422"]
    subprocess.run(
        [program("backhaul-hub"), "init", str(place / "hub"), *words],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    toml = place / "hub" / "hub.toml"
    # As docs/deployment.md has it.
    beyond = 'listen = "0.0.0.0:8470"\nurl = "https://fleet.example.org"'
    text = toml.read_text().replace('listen = "127.0.0.1:8470"', beyond)
    toml.with_name("loopback.toml").write_text(toml.read_text())
    toml.write_text(text + '\n[metrics]\nlisten = "0.0.0.0:9464"\n')
    return Chart(place / "hub", place / "helm")


def pods_directory(chart: Chart, place: Path, pod: str, *words: str) -> Path:
    """Have a pod's first container make its hub directory, as a plain shell; return where."""
    made = chart.objects(*words)["StatefulSet fleet-backhaul-hub"]["spec"]["template"]["spec"]
    (container,) = made["initContainers"]
    state = place / pod
    given = Path(tempfile.mkdtemp(dir=place))
    state.mkdir(exist_ok=True)
    (given / "config").mkdir(parents=True)
    text = chart.objects(*words)["ConfigMap fleet-backhaul-hub"]["data"]["hub.toml"]
    (given / "config" / "hub.toml").write_text(text)
    for room in ("keys", "creds", "tls"):
        (given / room).symlink_to(chart.hub / room)
    script = container["command"][-1].replace("/var/lib/backhaul", str(state))
    script = script.replace("/given/", f"{given}/")
    subprocess.run(
        [*container["command"][:-1], script],
        env={"PATH": os.defpath, "POD": pod}, check=True, timeout=240,
    )  # fmt: skip
    return state
