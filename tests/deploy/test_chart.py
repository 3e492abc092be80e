"""The chart of deploy/helm, rendered by helm: valid for Kubernetes, and what cannot run is refused."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.config import load
from backhaul_hub.streams.streams import declared_streams
from tests.support.helm_chart import ROOT, Chart, chart, pods_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["chart"]

pytestmark = [pytest.mark.nats]


def validated(text: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Look at objects by Kubernetes' own schemas, unknown fields refused."""
    file = place / "rendered.yaml"
    file.write_text(text)
    tool = ROOT / ".tools/charts/bin/kubernetes-validate"
    return subprocess.run(
        [tool, "--strict", "--quiet", file], capture_output=True, text=True, check=False, timeout=240
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--set", "hub.replicas=1", "--set", "hub.beginJournal=true"),
        (
            *("--set", "jobs.tables=s3a://fleet/tables", "--set", "hub.replicas=3"),
            *("--set", "jobs.envFrom[0].secretRef.name=store", "--set", "image.tag=0.2.0"),
            *("--set", "image.prefix=registry.example.org/fleet/", "--set", "image.pullSecrets={pull}"),
            *("--set", "hub.storage.className=fast", "--set", "nodeSelector.disk=ssd"),
            *("--set", "tolerations[0].operator=Exists", "--set", "jobs.schedules.anomalies=null"),
        ),
    ],
    ids=["defaults", "the first of a journal", "all else"],
)  # fmt: skip
def test_every_object_is_one_of_kubernetes(
    chart: Chart, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = chart.helm(*words)
    assert done.returncode == 0, done.stderr
    good = validated(done.stdout, tmp_path)
    assert good.returncode == 0, good.stdout + good.stderr
    bad = validated(done.stdout.replace("readOnlyRootFilesystem", "readOnlyFilesystem"), tmp_path)
    assert bad.returncode != 0
    assert "'readOnlyFilesystem' was unexpected" in bad.stdout + bad.stderr


def test_one_switch_says_what_is_deployed(chart: Chart) -> None:
    parts = {"hub": "fleet-backhaul-hub", "page": "fleet-backhaul-page", "jobs": "fleet-backhaul-jobs-"}  # fmt: skip
    for part, begins in parts.items():
        kinds = {
            name for name in chart.objects("--set", f"deploy={{{part}}}")
            if name.split()[0] in {"StatefulSet", "Deployment", "CronJob"}
        }  # fmt: skip
        assert kinds
        assert all(name.split()[1].startswith(begins) for name in kinds)


def test_all_pods_run_without_rights(chart: Chart) -> None:
    pods = list(pods_of(chart.objects().values()))
    assert len(pods) > 8
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "env" not in container or not [
                each for each in container["env"] if "secret" in str(each).lower()
            ]


def pods_of(objects: Any) -> Iterator[dict[str, Any]]:
    for each in objects:
        spec = each.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if each["kind"] == "Pod":
            yield spec
        elif "template" in spec:
            yield spec["template"]["spec"]


@pytest.mark.parametrize(
    ("toml", "words", "said"),
    [
        ("", (), "give the hub.toml"),
        ("loopback.toml", (), '[page] listen = "0.0.0.0:PORT" is needed, it is "127.0.0.1:8470"'),
        ("hub.toml", ("--set", "hub.beginJournal=true"), "with hub.replicas=1 alone"),
        ("hub.toml", ("--set", "jobs.claim="), "jobs.claim"),
        ("hub.toml", ("--set", "deploy={hub,nats}"), "/deploy/1"),
        ("hub.toml", ("--set", "hub.replica=2"), "replica"),
        ("servers/nats-0/tls/ca.pem", (), "no hub.toml"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused(
    chart: Chart, toml: str, words: tuple[str, ...], said: str
) -> None:
    done = chart.helm(*words, toml=toml)
    assert done.returncode != 0
    assert said in done.stderr


def test_each_pod_has_a_hub_directory_and_declares_what_up_declares(
    chart: Chart, tmp_path: Path
) -> None:
    at_init = load(chart.hub)
    for number in range(3):
        state = pods_directory(
            chart, tmp_path, f"fleet-backhaul-hub-{number}", "--set", "hub.replicas=3"
        )
        config = load(state)
        assert config.standby.machine == f"hub-{number}"
        assert sorted([config.standby.machine, *config.standby.others]) == ["hub-0", "hub-1", "hub-2"]  # fmt: skip
        declared = {stream["name"]: stream for stream in declared_streams(config)}
        assert declared.pop("JOURNAL")
        assert list(declared.values()) == declared_streams(at_init)
        assert {stream["num_replicas"] for stream in declared_streams(config)} == {3}
        assert {path.stat().st_mode & 0o077 for path in state.rglob("*")} == {0}
    alone = pods_directory(chart, tmp_path, "alone-0", "--set", "hub.replicas=1")
    assert not load(alone).standby.machine
