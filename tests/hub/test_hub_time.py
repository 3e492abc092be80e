"""The hub's clock is set: what the control plane goes by, and what the next one knows."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from backhaul_hub.hub_time import RECORD, HubTime, Record
from backhaul_runtime import clock
from backhaul_runtime.clock import boot_id

S = 10**9
DAY = 86_400 * S
NOW = 1_790_000_000 * S
CONFIRM_S = 600.0


class Machine:
    """A machine's clocks; `off_ns`: by how much the wall clock is wrong."""

    def __init__(self) -> None:
        self.off_ns = 0
        self.boot = "boot-a"
        self.steady = 5000 * S
        self.booted = NOW - self.steady

    def now_ns(self) -> int:
        return self.booted + self.steady + self.off_ns

    def monotonic_s(self) -> float:
        return self.steady / S

    def steady_ns(self) -> int:
        return self.steady

    @property
    def truth(self) -> int:
        return self.booted + self.steady

    def starts(self, before: Record | None = None) -> HubTime:
        return HubTime(self, self.boot, 10.0, CONFIRM_S, before)

    def passes(self, time: HubTime, seconds: float, every_s: float = 5.0) -> None:
        for _ in range(int(seconds / every_s)):
            self.steady += round(every_s * S)
            time.now_ns()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("off_ns", [DAY, -DAY, 11 * S, -11 * S])
def test_a_step_that_is_taken_back_has_no_effect(machine: Machine, off_ns: int) -> None:
    time = machine.starts()
    machine.off_ns = off_ns
    for _ in range(50):
        machine.steady += 11 * S
        assert time.now_ns() == machine.truth
    assert time.step is not None
    assert time.step.step_ns == off_ns
    assert time.confirms_in_s() == pytest.approx(CONFIRM_S - 49 * 11)
    machine.off_ns = 0
    assert time.now_ns() == machine.truth
    assert time.step is None
    assert time.confirms_in_s() == 0.0


def test_a_step_that_stays_is_followed(machine: Machine) -> None:
    time = machine.starts()
    machine.off_ns = -DAY
    machine.passes(time, CONFIRM_S)
    assert time.now_ns() == machine.truth
    machine.passes(time, 5)
    assert time.now_ns() == machine.truth - DAY
    assert time.step is None


def test_a_clock_that_is_set_again_and_again_is_not_followed(machine: Machine) -> None:
    time = machine.starts()
    for number in range(1, 10):
        machine.off_ns = number * DAY
        machine.passes(time, CONFIRM_S - 10)
        assert time.now_ns() == machine.truth


def test_a_clock_that_is_slewed_is_followed(machine: Machine) -> None:
    time = machine.starts()
    for _ in range(100):
        machine.off_ns += 9 * S
        assert time.now_ns() == machine.truth + machine.off_ns
    assert time.step is None


def test_a_control_plane_that_starts_while_the_clock_is_wrong_knows_it(machine: Machine) -> None:
    record = machine.starts().record()
    machine.steady += 3600 * S
    machine.off_ns = DAY
    time = machine.starts(record)
    assert time.step is not None
    assert time.now_ns() == machine.truth
    again = machine.starts(time.record())
    assert again.now_ns() == machine.truth
    machine.off_ns = 0
    assert again.now_ns() == machine.truth
    assert again.step is None


def test_a_machine_that_starts_with_an_older_time_than_was_known_goes_on_from_there(
    machine: Machine,
) -> None:
    record = machine.starts().record()
    known = machine.truth
    machine.boot, machine.steady = "boot-b", 10 * S
    machine.booted = NOW + DAY
    machine.off_ns = -20 * 365 * DAY
    time = machine.starts(record)
    assert time.step is not None
    assert time.now_ns() == known
    machine.off_ns = 0  # NTP answers
    assert time.now_ns() == machine.truth, "it was the least that it could be"
    assert time.step is None


def test_a_machine_that_starts_with_a_later_time_is_believed(machine: Machine) -> None:
    record = machine.starts().record()
    machine.boot, machine.steady, machine.booted = "boot-b", 10 * S, NOW + 30 * DAY
    time = machine.starts(record)
    assert time.step is None
    assert time.now_ns() == machine.truth


def test_a_steady_clock_behind_the_record_says_nothing(machine: Machine) -> None:
    time = machine.starts(Record("boot-a", machine.truth - DAY, machine.steady + S))
    assert time.now_ns() == machine.truth
    assert time.step is None


def test_the_record_is_a_file_of_the_hub(machine: Machine, tmp_path: Path) -> None:
    assert Record.read(tmp_path) is None
    record = machine.starts().record()
    record.write(tmp_path)
    assert Record.read(tmp_path) == record
    assert (tmp_path / RECORD).stat().st_mode & 0o077 == 0
    (tmp_path / RECORD).write_text("garbage")
    assert Record.read(tmp_path) is None


def test_the_unit_passes_on_which_start_of_the_machine_this_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a control plane that starts under systemd takes a clock that was put forward for the truth."""
    seen = boot_id({})
    assert seen == str(UUID(seen))
    monkeypatch.setattr(clock, "Path", lambda name: tmp_path / name.lstrip("/"))
    assert boot_id({"BACKHAUL_BOOT_ID": seen.replace("-", "")}) == seen
    assert boot_id({}) == ""
    assert boot_id({"BACKHAUL_BOOT_ID": "%b"}) == ""
    unit = Path(__file__).parents[2] / "deploy" / "systemd" / "backhaul-hub.service"
    assert "\nEnvironment=BACKHAUL_BOOT_ID=%b\n" in unit.read_text()
