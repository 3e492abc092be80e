"""`repair-server` by systemd: it stops the named server's unit alone, and puts away that server's store.

systemctl is a script here; with real servers the command is run in `tests/integration/test_cluster_damage.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.server.repair_server import repair_server
from backhaul_hub.errors import ConfigError, HubError
from backhaul_hub.streams.repair_hands import BySystemd
from backhaul_runtime.clock import SystemClock
from tests.hub.made_hub import make_hub

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
#!/bin/sh
echo "$@" >> {log}
[ "$1" = show ] && echo "nats-server -c {conf}" || true
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with server b, and a systemctl that notes what it is told."""
    server = tmp_path / "hub" / "servers" / "b"
    (server / "jetstream" / "jetstream" / "AHUB" / "streams" / "UP_00").mkdir(parents=True)
    (server / "hub.conf").touch()
    script = tmp_path / "bin" / "systemctl"
    script.parent.mkdir()
    script.write_text(SCRIPT.format(log=tmp_path / "told", conf=server / "hub.conf"))
    script.chmod(0o700)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    return tmp_path


def hands(machine: Path, name: str) -> BySystemd:
    store = machine / "hub" / "servers" / name / "jetstream"
    return BySystemd("hub.service", name, store, SystemClock(), print)


def test_the_unit_of_another_server_is_not_stopped(machine: Path) -> None:
    with pytest.raises(HubError, match=r"does not start .*servers/c/hub\.conf"):
        asyncio.run(hands(machine, "c").stop())
    assert (machine / "told").read_text() == "show --property=ExecStart --value hub.service\n"


def test_the_store_is_put_away_and_has_its_accounts_directories_anew(machine: Path) -> None:
    async def act() -> None:
        await hands(machine, "b").stop()
        await hands(machine, "b").put_away(["AHUB", "AUP"])
        await hands(machine, "b").start()

    asyncio.run(act())
    told = (machine / "told").read_text().splitlines()
    assert told[1:] == ["stop hub.service", "start hub.service"]
    store = machine / "hub" / "servers" / "b" / "jetstream"
    assert [*store.glob("damaged-*/AHUB/streams/UP_00")]
    assert sorted(map(str, (each.relative_to(store) for each in store.glob("jetstream/*/*")))) == [
        "jetstream/AHUB/streams",
        "jetstream/AUP/streams",
    ]


def test_without_systemd_it_says_how_to_go_on(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(machine))
    with pytest.raises(HubError, match="--by-hand"):
        asyncio.run(hands(machine, "b").stop())


def test_a_hub_of_one_server_is_refused(tmp_path: Path) -> None:
    make_hub(tmp_path)
    done = CliRunner().invoke(repair_server, ["a", "--dir", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
