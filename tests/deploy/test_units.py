"""The units of deploy/systemd: understood by systemd, hardened, each with its own secrets only."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
VEHICLE, HUB = 1.2, 1.5
SERVICES = {
    "backhaul-leaf.service": VEHICLE,
    "backhaul-agent.service": VEHICLE,
    "backhaul-hub-server.service": HUB,
    "backhaul-hub.service": HUB,
    "backhaul-hub-standby.service": HUB,
    "backhaul-hub-page.service": HUB,
    "backhaul-hub-backup@.service": HUB,
    "backhaul-spark-ingest.service": HUB,
    "backhaul-spark-metrics.service": HUB,
    "backhaul-spark-rollup.service": HUB,
    "backhaul-spark-places.service": HUB,
    "backhaul-spark-maintain.service": HUB,
    "backhaul-spark-anomalies.service": HUB,
    "backhaul-spark-twin.service": HUB,
    "backhaul-spark-history.service": HUB,
    # As root: they ask systemd for a restart. The first one asks at the hub's port, too.
    "backhaul-leaf-check.service": 1.8,
    "backhaul-leaf-login.service": 1.7,
}


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze: apt install systemd")
    command = ["systemd-analyze", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def test_every_service_is_rated() -> None:
    assert {path.name for path in UNITS.glob("*.service")} == set(SERVICES)


@pytest.mark.parametrize(("name", "most"), SERVICES.items())
def test_hardening(name: str, most: float) -> None:
    rated = analyze("security", "--offline=true", "--no-pager", str(UNITS / name))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert found, rated.stdout + rated.stderr
    assert float(found[1]) <= most, rated.stdout


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    made = []
    for path in UNITS.glob("backhaul-*"):
        # Their programs are not installed on this machine.
        text = re.sub(r"=/usr/lib/backhaul-\w+/bin/\S+", "=/bin/true", path.read_text())
        made.append(tmp_path / path.name)
        made[-1].write_text(text)
    checked = analyze("verify", *map(str, made))
    assert (checked.returncode, checked.stderr) == (0, "")
    broken = tmp_path / "backhaul-leaf.service"
    broken.write_text(broken.read_text().replace("ProtectHome=", "ProtectHouse="))
    assert "ProtectHouse" in analyze("verify", str(broken)).stderr


@pytest.mark.parametrize("name", SERVICES)
def test_each_secret_is_a_copy_where_its_configuration_names_it_and_nothing_else_is_there(
    name: str,
) -> None:
    text = (UNITS / name).read_text()
    given = set(re.findall(r"^LoadCredential=([^:]+):", text, re.MULTILINE))
    addressed = set(re.findall(r"^BindReadOnlyPaths=%d/([^:]+):", text, re.MULTILINE))
    assert given == addressed
    hidden = re.search(
        r"^TemporaryFileSystem=/(etc/backhaul|var/lib/backhaul-hub):ro$", text, re.MULTILINE
    )
    assert bool(given) == bool(hidden)


def test_a_login_is_on_disk_before_it_takes_the_place_of_the_one_that_works() -> None:
    text = (UNITS / "backhaul-leaf-login.service").read_text()
    steps = re.findall(r"^ExecStart=\S*/(\w+) (?:-\S+ )*(.*)$", text, re.MULTILINE)
    new = "/etc/backhaul/device.creds.new"
    written, synced, moved, _ = steps
    assert written[0] == "install"
    assert written[1].endswith(f" {new}")
    assert synced == ("sync", new)
    assert moved == ("mv", f"{new} /etc/backhaul/device.creds")


@pytest.mark.parametrize("kind", ["service", "timer", "path"])
def test_every_unit_is_in_the_list(kind: str) -> None:
    text = (UNITS / "README.md").read_text()
    for path in UNITS.glob(f"*.{kind}"):
        assert f"`{path.name}`" in text, path.name
