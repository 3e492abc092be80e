"""A vehicle's files are made of the hub's document, and what was made or edited before is not lost."""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any

import msgspec
import nkeys
import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.config_file import load
from backhaul_agent.errors import ConfigError, VehicleFilesError
from backhaul_codec.protocol.credentials import parse_credentials, parse_seed
from backhaul_codec.protocol.identity import Identity, LinkCapacity, encode_identity
from tests.support.jwts import jwt_of

if TYPE_CHECKING:
    from pathlib import Path

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PLAIN = Identity(
    device="VID-001",
    token="ab12",
    leaf_urls=("nats-leaf://VID-001:secret@a:7422", "nats-leaf://VID-001:secret@b:7422"),
    down_stream="DOWN_00",
    link=LinkCapacity(kbit_s=20.0),
)


def user_seed(letter: str) -> str:
    return str(nkeys.encode_seed(letter.encode() * 32, nkeys.PREFIX_BYTE_USER), "ascii")


def user_jwt(seed: str, *, name: str = "") -> str:
    return jwt_of({"sub": parse_seed(seed).public_key, "name": name})


class Vehicle:
    """A vehicle's directory, and the command that writes it."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory / "etc"
        self.state = directory / "var"
        self._document = directory / "identity.json"

    def enrol(self, identity: Identity, *words: str) -> str:
        self._document.write_text(encode_identity(identity))
        where = ["--file", str(self._document), "--dir", str(self.dir)]
        done = CliRunner().invoke(cli, ["enrol", *where, *words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    def first(self, identity: Identity = PLAIN, *words: str) -> str:
        return self.enrol(identity, "--state-dir", str(self.state), "--port", "4300", *words)

    def toml(self) -> dict[str, Any]:
        return tomllib.loads(self.text("agent.toml"))

    def text(self, name: str) -> str:
        return (self.dir / name).read_text()

    def all(self) -> dict[str, tuple[str, int]]:
        return {name: (path.read_text(), path.stat().st_mtime_ns) for name, path in self.files()}

    def modes(self) -> dict[str, int]:
        return {name: path.stat().st_mode & 0o777 for name, path in self.files()}

    def files(self) -> list[tuple[str, Path]]:
        """Each file with its name as seen from the directory."""
        found = sorted(path for path in self.dir.rglob("*") if path.is_file())
        return [(str(path.relative_to(self.dir)), path) for path in found]


@pytest.fixture
def vehicle(tmp_path: Path) -> Vehicle:
    return Vehicle(tmp_path)


def test_files_fit_the_document_and_one_another(vehicle: Vehicle) -> None:
    said = vehicle.first()
    config = load(vehicle.dir / "agent.toml")
    assert (config.device.id, config.device.token) == ("VID-001", "ab12")
    assert config.device.down_stream == "DOWN_00"
    assert config.nats.url == "nats://127.0.0.1:4300"
    assert config.ledger.path == str(vehicle.state / "backhaul-agent" / "ledger.db")
    assert config.link.rate_kbit_s == 20.0
    leaf = vehicle.text("leaf.conf")
    assert 'listen: "127.0.0.1:4300"' in leaf
    assert f'store_dir: "{vehicle.state}/backhaul-leaf"' in leaf
    assert 'server_name: "VID-001-ab12"' in leaf
    assert all(f'"{url}"' in leaf for url in PLAIN.leaf_urls)
    assert f"nats-server -c {vehicle.dir}/leaf.conf" in said


def test_the_ledgers_directory_is_made_for_its_user_alone_and_left_as_it_is(
    vehicle: Vehicle,
) -> None:
    vehicle.first()
    made = vehicle.state / "backhaul-agent"
    assert made.stat().st_mode & 0o777 == 0o700
    (made / "ledger.db").write_text("what is kept")
    made.chmod(0o750)
    vehicle.first()
    assert made.stat().st_mode & 0o777 == 0o750
    assert (made / "ledger.db").read_text() == "what is kept"


def test_where_the_ledger_can_have_no_directory_nothing_is_written(vehicle: Vehicle) -> None:
    vehicle.state.write_text("in the way")
    with pytest.raises(VehicleFilesError, match=r"backhaul-agent cannot be made: .*--state-dir"):
        vehicle.first()
    assert vehicle.files() == []


def test_whatever_the_umask_files_have_their_modes(vehicle: Vehicle) -> None:
    before = os.umask(0o077)
    try:
        identity = msgspec.structs.replace(PLAIN, ca=PEM, link=LinkCapacity("scheduled"))
        vehicle.first(identity)
    finally:
        os.umask(before)
    assert vehicle.modes() == {
        "agent.toml": 0o600,
        "leaf.conf": 0o640,
        "ca.pem": 0o644,
        "link/link.conf": 0o644,
        "agent.nk": 0o600,
        "system.nk": 0o600,
        "apps.json": 0o640,
        "apps.conf": 0o640,
    }


def test_another_authority_of_the_hub_needs_a_restart_of_the_leaf(vehicle: Vehicle) -> None:
    """Its server reads the file at its start only: without it the vehicle is shut out in the end."""
    vehicle.first(msgspec.structs.replace(PLAIN, ca=PEM))
    said = vehicle.enrol(msgspec.structs.replace(PLAIN, ca=PEM + PEM))
    assert f"nats-server -c {vehicle.dir}/leaf.conf" in said


def test_the_same_again_changes_nothing(vehicle: Vehicle) -> None:
    vehicle.first(msgspec.structs.replace(PLAIN, link=LinkCapacity("scheduled"), nodes=("gps",)))
    before = vehicle.all()
    said = vehicle.enrol(
        msgspec.structs.replace(PLAIN, link=LinkCapacity("scheduled"), nodes=("gps",))
    )
    assert vehicle.all() == before
    assert said.count("as it was") == len(before)
    assert "Start" not in said


def test_a_run_that_was_cut_short_is_finished_by_the_next(vehicle: Vehicle) -> None:
    vehicle.first()
    whole = {name: text for name, (text, _) in vehicle.all().items()}
    for name in whole.keys() - {"agent.nk", "system.nk"}:  # these are written first
        (vehicle.dir / name).unlink()
        vehicle.first()
        assert {name: text for name, (text, _) in vehicle.all().items()} == whole


def test_what_an_operator_wrote_into_agent_toml_stays(vehicle: Vehicle) -> None:
    vehicle.first()
    path = vehicle.dir / "agent.toml"
    text = vehicle.text("agent.toml").replace("rate_kbit_s = 20.0", "rate_kbit_s = 7.0")
    path.write_text(text + "\n[streams]\n# Small.\nout_live_bytes_max = 1000000\n")
    newer = msgspec.structs.replace(PLAIN, token="cd34", nodes=("battery", "gps"))
    said = vehicle.enrol(newer)
    assert "changed    " + str(path) in said
    found = vehicle.toml()
    assert found["device"]["token"] == "cd34"
    assert found["link"]["rate_kbit_s"] == 7.0
    own = {"per": "node", "nodes": ["battery", "gps"]}
    assert found["streams"] == own | {"out_live_bytes_max": 1000000}
    assert "# Small." in vehicle.text("agent.toml")
    assert "VID-001-cd34" in vehicle.text("leaf.conf")
    vehicle.enrol(msgspec.structs.replace(PLAIN, token="cd34"))
    assert vehicle.toml()["streams"]["nodes"] == []


@pytest.mark.parametrize("streams", ["[streams] # mine", "[streams]\nnodes = [\n  'a',\n]"])
def test_an_agent_toml_that_cannot_be_changed_is_left_and_nothing_is_done(
    vehicle: Vehicle, streams: str
) -> None:
    vehicle.first()
    path = vehicle.dir / "agent.toml"
    path.write_text(f"{path.read_text()}\n{streams}\nper = 'node'\n")
    if "nodes" not in streams:
        path.write_text(f"{path.read_text()}nodes = ['a']\n")
    before = vehicle.all()
    newer = msgspec.structs.replace(PLAIN, token="cd34", nodes=("gps",))
    with pytest.raises(VehicleFilesError, match=r"write there by hand.*gps"):
        vehicle.enrol(newer)
    assert vehicle.all() == before


def test_an_agent_toml_that_is_none_is_left_and_nothing_is_done(vehicle: Vehicle) -> None:
    vehicle.first()
    (vehicle.dir / "agent.toml").write_text("[device")
    before = vehicle.all()
    with pytest.raises(ConfigError, match="not TOML"):
        vehicle.enrol(msgspec.structs.replace(PLAIN, token="cd34"))
    assert vehicle.all() == before


def test_keys_and_programs_stay(vehicle: Vehicle) -> None:
    vehicle.first(PLAIN, "--open")
    before = vehicle.all()
    vehicle.enrol(msgspec.structs.replace(PLAIN, token="cd34"))
    after = vehicle.all()
    for name in ("agent.nk", "system.nk", "apps.json", "apps.conf"):
        assert after[name] == before[name]
    assert vehicle.toml()["nats"]["nkey"] == "agent.nk"
    seed = parse_seed(vehicle.text("agent.nk"))
    assert seed.public_key in vehicle.text("apps.conf")
    assert seed.seed not in vehicle.text("apps.conf") + vehicle.text("leaf.conf")

    (vehicle.dir / "agent.nk").write_text("damaged")
    with pytest.raises(VehicleFilesError, match=r"agent\.nk.*damaged"):
        vehicle.enrol(PLAIN)


def test_a_leaf_conf_edited_by_hand_is_kept_beside_the_new_one(vehicle: Vehicle) -> None:
    vehicle.first()
    path = vehicle.dir / "leaf.conf"
    path.write_text(f"{path.read_text()}\nmax_connections: 20\n")
    said = vehicle.enrol(PLAIN)
    assert "max_connections" not in path.read_text()
    assert "max_connections" in vehicle.text("leaf.conf.before")
    assert "If you had changed leaf.conf by hand, do so again." in said


def test_another_vehicles_directory_is_left_alone(vehicle: Vehicle) -> None:
    vehicle.first()
    before = vehicle.all()
    with pytest.raises(VehicleFilesError, match=r"holds the files of VID-001.*of VID-002"):
        vehicle.enrol(msgspec.structs.replace(PLAIN, device="VID-002"))
    assert vehicle.all() == before


def test_a_ledger_is_not_left_behind(vehicle: Vehicle, tmp_path: Path) -> None:
    vehicle.first()
    before = vehicle.all()
    with pytest.raises(VehicleFilesError, match="move both directories"):
        vehicle.enrol(PLAIN, "--state-dir", str(tmp_path / "elsewhere"))
    assert vehicle.all() == before


def test_a_link_can_become_metered_later(vehicle: Vehicle) -> None:
    vehicle.first()
    vehicle.enrol(PLAIN, "--link-mode", "on-demand", "--port", "4301")
    config = load(vehicle.dir / "agent.toml")
    assert (config.link.mode, config.nats.url) == ("on-demand", "nats://127.0.0.1:4301")
    leaf = vehicle.text("leaf.conf")
    assert 'include "link/link.conf"' in leaf
    assert config.link.system_nkey == str(vehicle.dir / "system.nk")
    assert 'listen: "127.0.0.1:4301"' in leaf
    (vehicle.dir / "link" / "link.conf").write_text("disabled: false\n")
    vehicle.enrol(PLAIN)
    assert vehicle.text("link/link.conf") == "disabled: false\n", "it is the agent's"


def test_a_jwt_and_its_key_are_the_remotes_login(vehicle: Vehicle) -> None:
    seed, other = user_seed("k"), user_seed("o")
    jwt = user_jwt(seed)
    identity = msgspec.structs.replace(
        PLAIN, leaf_urls=("tls://hub:7422",), ca=PEM, jwt=jwt, seed=seed
    )
    vehicle.first(identity)
    leaf = vehicle.text("leaf.conf")
    assert f'credentials: "{vehicle.dir}/device.creds"' in leaf
    assert f'tls {{ ca_file: "{vehicle.dir}/ca.pem", timeout: 10 }}' in leaf
    assert seed not in leaf
    assert vehicle.modes()["device.creds"] == 0o600
    assert parse_credentials(vehicle.text("device.creds")).jwt == jwt

    # The hub that does not know the key sends a JWT alone: with other nodes, say.
    newer = user_jwt(seed, name="newer")
    vehicle.enrol(msgspec.structs.replace(identity, jwt=newer, seed=""))
    held = parse_credentials(vehicle.text("device.creds"))
    assert (held.jwt, held.seed) == (newer, seed)
    for wrong in ({"seed": other}, {"jwt": user_jwt(other), "seed": ""}):
        with pytest.raises(VehicleFilesError, match="not of the key"):
            vehicle.enrol(msgspec.structs.replace(identity, **wrong))
    assert parse_credentials(vehicle.text("device.creds")) == held


def test_a_jwt_without_any_key_is_refused(vehicle: Vehicle) -> None:
    jwt = user_jwt(user_seed("k"))
    with pytest.raises(VehicleFilesError, match="enrol this one again"):
        vehicle.first(msgspec.structs.replace(PLAIN, leaf_urls=("tls://hub",), jwt=jwt))
    assert not list(vehicle.dir.iterdir())


def test_a_program_that_is_let_in_as_it_is_shut_out_has_a_key_or_no_rights(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    vehicle.first()
    adds: list[BaseException | None] = []

    def app(*words: str) -> BaseException | None:
        return CliRunner().invoke(cli, ["app", *words, "--dir", str(vehicle.dir)]).exception

    def meanwhile(*_: object, wanted: bool) -> None:
        if not wanted:  # `rm` has the server asked whether it is so
            adds.append(app("add", "logger"))

    monkeypatch.setattr("backhaul_agent.cli.vehicle.app._take_over", meanwhile)
    assert app("add", "logger") is None
    assert app("rm", "logger") is None
    assert isinstance(adds[0], VehicleFilesError)
    assert ("logger" in vehicle.text("apps.json")) == (vehicle.dir / "apps/logger.nk").exists()
    assert app("add", "logger") is None
    assert "logger" in vehicle.text("apps.json")
    assert (vehicle.dir / "apps/logger.nk").exists()


def test_what_cannot_be_read_or_written_is_said(vehicle: Vehicle, tmp_path: Path) -> None:
    with pytest.raises(VehicleFilesError, match="No such file"):
        CliRunner().invoke(cli, ["enrol", "--file", "/nowhere"], catch_exceptions=False)
    garbage = tmp_path / "garbage"
    garbage.write_text("{}")
    with pytest.raises(VehicleFilesError, match="version"):
        CliRunner().invoke(cli, ["enrol", "--file", str(garbage)], catch_exceptions=False)
    vehicle.dir.write_text("in the way")
    with pytest.raises(VehicleFilesError, match="etc"):
        vehicle.first()
