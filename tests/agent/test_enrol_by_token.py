"""`backhaul-agent enrol TOKEN`, broken off at every write of a file: the next run ends it alike.

Not covered here: the temporary server (test_enrolment.py); what the hub does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from backhaul_agent.cli.vehicle import enrol
from backhaul_agent.enrol import systemd_units as units
from backhaul_agent.enrol import vehicle_files
from backhaul_agent.enrol.by_token import begin
from backhaul_agent.enrol.vehicle_files import Directory, Wishes
from backhaul_agent.errors import EnrolmentFailedError, UnitsError, VehicleFilesError
from backhaul_codec.protocol.credentials import parse_credentials
from backhaul_codec.protocol.enrolment import write_token
from backhaul_codec.protocol.identity import Identity
from tests.support.enrolment_tokens import some_token, unsigned_jwt
from tests.support.fatal_write import FatalWrite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from backhaul_codec.protocol.credentials import Credentials
    from backhaul_codec.protocol.enrolment import Token

TOKEN = some_token()


@dataclass
class FakeHub:
    """Enrols the first key that asks, as the real one; asked in the place of `ask_hub`."""

    used_by: str = ""
    asked: list[str] = field(default_factory=list)

    async def ask(self, token: Token, key: Credentials, *_: Any, **__: Any) -> Identity:
        self.asked.append(key.public_key)
        self.used_by = self.used_by or key.public_key
        if self.used_by != key.public_key:
            raise EnrolmentFailedError("the hub refuses: used", hint="", code="used")
        return Identity(
            device=token.device, token="ab", leaf_urls=token.leaf_urls, jwt=unsigned_jwt(key),
            seed=key.seed,
        )  # fmt: skip


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    hub = FakeHub()
    monkeypatch.setattr(enrol, "ask_hub", hub.ask)
    return hub


def run(directory: Path, *more: str, token: Token = TOKEN) -> Any:
    where = ["--dir", str(directory), "--state-dir", str(directory / "var")]
    arguments = [write_token(token), *where, *more]
    return CliRunner().invoke(enrol.command, arguments, catch_exceptions=True)


def key_of(directory: Path) -> str:
    return parse_credentials((directory / "device.creds").read_text()).public_key


def test_the_key_is_made_here_and_is_in_the_files_at_the_end(tmp_path: Path, hub: FakeHub) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert key_of(tmp_path) == hub.used_by
    assert f"nats-server -c {tmp_path}/leaf.conf" in result.stdout
    assert 'token = "ab"' in (tmp_path / "agent.toml").read_text()
    attempt = tmp_path / "enrolment.json"
    assert attempt.stat().st_mode & 0o777 == 0o600
    assert "SU" not in attempt.read_text()


def test_killed_at_any_write_the_next_run_ends_it_with_the_same_key(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FatalWrite()
    monkeypatch.setattr(vehicle_files, "write_whole", write)
    ended = False
    fatal = 0
    while not ended:
        fatal += 1
        assert fatal < 20
        directory = tmp_path / str(fatal)
        hub.used_by = ""
        write.at(fatal)
        ended = run(directory).exit_code == 0
        write.at(0)
        again = run(directory)
        assert again.exit_code == 0, (fatal, again.output, again.exception)
        assert key_of(directory) == hub.used_by
        assert "SU" not in (directory / "enrolment.json").read_text()
    assert fatal > 4  # the key, three files at least, and that it is done


def test_run_again_when_all_is_done_it_asks_by_the_same_key_and_mends(
    tmp_path: Path, hub: FakeHub
) -> None:
    assert run(tmp_path).exit_code == 0
    (tmp_path / "agent.toml").unlink()
    assert run(tmp_path).exit_code == 0
    assert (tmp_path / "agent.toml").exists()
    assert len(hub.asked) == 2
    assert len(set(hub.asked)) == 1


def test_a_later_token_is_asked_with_by_a_new_key(tmp_path: Path, hub: FakeHub) -> None:
    assert run(tmp_path).exit_code == 0
    later = msgspec.structs.replace(TOKEN, id="f" * 24)
    hub.used_by = ""
    assert run(tmp_path, token=later).exit_code == 0
    assert len(set(hub.asked)) == 2
    assert key_of(tmp_path) == hub.asked[1]


def test_a_directory_of_another_vehicle_does_not_use_the_token_up(
    tmp_path: Path, hub: FakeHub
) -> None:
    assert run(tmp_path).exit_code == 0
    other = msgspec.structs.replace(TOKEN, id="f" * 24, device="VID-002")
    result = run(tmp_path, token=other)
    assert isinstance(result.exception, VehicleFilesError)
    assert len(hub.asked) == 1


def test_nor_does_a_directory_that_cannot_be_written(tmp_path: Path, hub: FakeHub) -> None:
    (tmp_path / "file").touch()
    assert isinstance(run(tmp_path / "file").exception, VehicleFilesError)
    assert hub.asked == []


def test_nor_does_a_place_where_the_ledger_can_have_no_directory(
    tmp_path: Path, hub: FakeHub
) -> None:
    (tmp_path / "var").touch()
    result = run(tmp_path)
    assert isinstance(result.exception, VehicleFilesError)
    assert "backhaul-agent cannot be made" in str(result.exception)
    assert hub.asked == []


def test_a_refusal_leaves_no_files_of_a_vehicle(tmp_path: Path, hub: FakeHub) -> None:
    hub.used_by = "U" * 56
    assert isinstance(run(tmp_path).exception, EnrolmentFailedError)
    assert {path.name for path in tmp_path.iterdir()} == {"enrolment.json", "var"}


def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    with Directory(tmp_path).alone():
        begin(TOKEN, Directory(tmp_path), Wishes(state_dir=tmp_path / "var"))
        with (
            pytest.raises(VehicleFilesError, match="another backhaul-agent"),
            Directory(tmp_path).alone(),
        ):
            pass
    with Directory(tmp_path).alone():
        pass


@pytest.mark.parametrize("name", ["token", "-"])
def test_the_token_may_come_from_a_file_or_standard_input(
    tmp_path: Path, hub: FakeHub, name: str
) -> None:
    (tmp_path / "token").write_text(write_token(TOKEN) + "\n")
    source = str(tmp_path / "token") if name == "token" else "-"
    result = CliRunner().invoke(
        enrol.command,
        ["--token-file", source, "--dir", str(tmp_path), "--state-dir", str(tmp_path / "var")],
        input=write_token(TOKEN) + "\n",
    )
    assert result.exit_code == 0, result.output
    assert hub.asked


def test_one_way_to_be_enrolled_has_to_be_chosen(tmp_path: Path, hub: FakeHub) -> None:
    for arguments in ([], ["backhaul1_x", "--file", "identity.json"]):
        result = CliRunner().invoke(enrol.command, [*arguments, "--dir", str(tmp_path)])
        assert result.exit_code == 2
        assert "one of TOKEN, --token-file and --file" in result.stderr
    assert hub.asked == []


def test_garbage_is_no_token_and_is_not_repeated(tmp_path: Path, hub: FakeHub) -> None:
    result = CliRunner().invoke(enrol.command, ["backhaul1_secret", "--dir", str(tmp_path)])
    assert isinstance(result.exception, EnrolmentFailedError)
    assert "damaged token" in str(result.exception)
    assert "secret" not in str(result.exception)


def test_the_units_are_enabled_and_started(tmp_path: Path) -> None:
    ran: list[str] = []

    def runs(words: Sequence[str]) -> tuple[int, str]:
        ran.append(" ".join(words))
        return 0, ""

    units.start_units(runs, tmp_path)
    assert ran[1:] == [
        "systemctl enable backhaul-leaf.service backhaul-agent.service",
        "systemctl restart backhaul-leaf.service backhaul-agent.service",
    ]


def test_units_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnitsError, match=r"enable .* failed: no such unit"):
        units.start_units(lambda words: (int("enable" in words), "no such unit\n"), tmp_path)
    with pytest.raises(UnitsError, match="systemd does not run here"):
        units.start_units(lambda words: (0, ""), tmp_path / "nowhere")
