"""Which machine this is: what it is told by, and what of it is told."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from backhaul_agent.presence.machine import Machine, identify
from backhaul_runtime.clock import boot_id

ID = "0123456789abcdef0123456789abcdef"
SERIAL = "sys/firmware/devicetree/base/serial-number"


def machine(
    root: Path, *, ledger: str = "state/ledger.db", boot: str = "boot", seed: int = 1
) -> Machine:
    path = root / ledger
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    return identify(path, boot, lambda: draw.getrandbits(32), root)


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_a_machine_is_the_same_at_each_start_and_a_start_is_not(tmp_path: Path) -> None:
    write(tmp_path, "etc/machine-id", ID + "\n")
    first, again = machine(tmp_path, seed=1), machine(tmp_path, seed=2)
    other_boot = machine(tmp_path, boot="another", seed=2)
    assert first.machine == again.machine == other_boot.machine
    assert first.boot == again.boot != other_boot.boot
    assert first.run != again.run
    assert [path.name for path in (tmp_path / "state").iterdir()] == []


def test_nothing_is_told_as_it_stands(tmp_path: Path) -> None:
    write(tmp_path, "etc/machine-id", ID + "\n")
    write(tmp_path, SERIAL, "10000000abcd\0")
    told = machine(tmp_path, boot="5e0e1ad6-0000-4000-8000-000000000000")
    for secret in (ID[:8], "abcd", "5e0e1ad6"):
        assert secret not in f"{told.machine}{told.boot}{told.run}"


@pytest.mark.parametrize("file", ["etc/machine-id", "var/lib/dbus/machine-id", SERIAL])
def test_another_id_or_board_is_another_machine(tmp_path: Path, file: str) -> None:
    write(tmp_path, file, ID)
    one = machine(tmp_path).machine
    write(tmp_path, file, ID[::-1])
    assert machine(tmp_path).machine != one


def test_a_copied_card_in_another_board_is_another_machine(tmp_path: Path) -> None:
    """The image of a card has the machine-id; the board does not come along."""
    write(tmp_path, "etc/machine-id", ID)
    write(tmp_path, SERIAL, "10000000aaaa\0")
    one = machine(tmp_path).machine
    write(tmp_path, SERIAL, "10000000bbbb\0")
    assert machine(tmp_path).machine != one


def test_two_ledgers_on_one_machine_are_two(tmp_path: Path) -> None:
    write(tmp_path, "etc/machine-id", ID)
    other = machine(tmp_path, ledger="copy/ledger.db")
    assert machine(tmp_path).machine != other.machine


@pytest.mark.parametrize("text", [None, "", "uninitialized\n", "\n"])
def test_without_an_id_one_is_drawn_and_kept(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        write(tmp_path, "etc/machine-id", text)
    first, again = machine(tmp_path, seed=1), machine(tmp_path, seed=2)
    assert first.machine == again.machine
    kept = tmp_path / "state" / "ledger.db.machine"
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text("spoilt")
    assert machine(tmp_path, seed=3).machine != first.machine
    assert machine(tmp_path, seed=4).machine == machine(tmp_path, seed=5).machine


def test_what_cannot_be_kept_keeps_no_agent_from_starting(tmp_path: Path) -> None:
    told = identify(tmp_path / "nowhere" / "ledger.db", "", lambda: 7, tmp_path)
    assert len(told.machine) == 16
    assert told.run == "00000007"


def test_this_machine_has_one() -> None:
    told = identify(Path("ledger.db"), "boot", lambda: 7)
    assert (len(told.machine), len(told.boot), len(told.run)) == (16, 8, 8)


def test_the_unit_passes_on_which_start_of_the_machine_this_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same name where /proc is hidden as where it is not: else one machine would look like two."""
    seen = boot_id({})
    assert seen == str(UUID(seen))
    monkeypatch.setattr("backhaul_runtime.clock.Path", lambda name: tmp_path / name.lstrip("/"))
    assert boot_id({"BACKHAUL_BOOT_ID": seen.replace("-", "")}) == seen
    assert boot_id({}) == ""
    assert boot_id({"BACKHAUL_BOOT_ID": "%b"}) == ""
    unit = Path(__file__).parents[2] / "deploy" / "systemd" / "backhaul-agent.service"
    assert "\nEnvironment=BACKHAUL_BOOT_ID=%b\n" in unit.read_text()
