"""Configuration: what is accepted, and that every refusal names file, key and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.config import parse
from backhaul_agent.config_file import load
from backhaul_agent.errors import ConfigError
from backhaul_agent.leaf.streams import link_window
from backhaul_agent.ledger.lane_routing import Lanes

if TYPE_CHECKING:
    import os

PATH = Path("/etc/backhaul/agent.toml")
DEVICE = '[device]\nid = "VID-001"\ntoken = "tok"\n'


def test_only_the_device_is_needed() -> None:
    config = parse(DEVICE, PATH)
    assert config.device.id == "VID-001"
    assert config.frame.points_max == 1000
    assert config.frame.bytes_max == 32 * 1024
    assert config.ledger.path == "/var/lib/backhaul-agent/ledger.db"


def test_relative_paths_count_from_the_file() -> None:
    text = (
        '[ledger]\npath = "l.db"\n[nats]\ncredentials = "a.creds"\n[link]\nsystem_nkey = "s.nk"\n'
    )
    config = parse(DEVICE + text, PATH)
    assert config.ledger.path == "/etc/backhaul/l.db"
    assert config.nats.credentials == "/etc/backhaul/a.creds"
    assert config.link.system_nkey == "/etc/backhaul/s.nk"
    assert parse(DEVICE + '[nats]\nnkey = "a.nk"\n', PATH).nats.nkey == "/etc/backhaul/a.nk"
    assert parse(DEVICE, PATH).nats.nkey == ""


@pytest.mark.parametrize(
    ("rate", "live", "bulk"),
    [(20, 67, 5), (100, 333, 24), (1000, 512, 244), (1, 3, 2), (1e6, 512, 512)],
)
def test_the_window_is_four_seconds_of_the_link(rate: float, live: int, bulk: int) -> None:
    config = parse(DEVICE + f"[link]\nadaptive = false\nrate_kbit_s = {float(rate)}\n", PATH)
    window = link_window(config)
    assert (window.window("live"), window.window("bulk")) == (live, bulk)


def test_named_nodes_get_lanes_and_each_has_its_size() -> None:
    text = (
        "[streams]\nper = 'node'\nnodes = ['gps', 'front left']\nout_node_bytes_max = 9_000_000\n"
    )
    config = parse(DEVICE + text, PATH)
    lanes = Lanes(config.streams.nodes)
    assert lanes.names == ("live", "bulk", "n_gps", "n_front%20left")
    assert [config.lane_bytes_max(lane) for lane in lanes.names] == [
        32 << 20, 256 << 20, 9_000_000, 9_000_000
    ]  # fmt: skip
    assert [lane for lane in lanes.names if config.message_bytes_typical(lane) < 200] == ["live"]


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("", "device", "missing"),
        ("[device]\nid = 'VID-001'\n", "device.token", "missing"),
        ("[device]\nid = 'a b'\ntoken = 't'\n", "device.id", "A-Za-z0-9"),
        ("[device]\nid = 'V'\ntoken = 't.*'\n", "device.token", "A-Za-z0-9"),
        (DEVICE + "colour = 1\n", "device.colour", "unknown key"),
        (DEVICE + "[frame]\npoint_max = 1\n", "frame.point_max", "unknown key"),
        (DEVICE + "[frames]\n", "frames", "unknown key"),
        (DEVICE + "[frame]\npoints_max = 0\n", "frame.points_max", ">= 1"),
        (DEVICE + "[frame]\npoints_max = '9'\n", "frame.points_max", "`int`"),
        (DEVICE + "[frame]\nage_s_max = 0.0\n", "frame.age_s_max", ">= 0.01"),
        (DEVICE + "[ledger]\nbytes_max = 10\n", "ledger.bytes_max", ">= 1048576"),
        (DEVICE + "[ledger]\npath = ''\n", "ledger.path", ">= 1"),
        (DEVICE + "[nats]\nurl = 'http://x'\n", "nats.url", "nats|tls"),
        (DEVICE + "[nats]\nuser = 'x'\n", "nats.password", "together"),
        (DEVICE + "[nats]\nuser='x'\npassword='y'\ncredentials='z'\n", "nats.credentials", "either"),
        (DEVICE + "[nats]\nuser='x'\npassword='y'\nnkey='z'\n", "nats.nkey", "either"),
        (DEVICE + "[link]\nrate_kbit_s = 0\n", "link.rate_kbit_s", "> 0"),
        (DEVICE + "[nats]\nurl = 'nats://127.0.0.1:99999'\n", "nats.url", "65535"),
        (DEVICE + "[nats]\nurl = 'nats://127.0.0.1:0'\n", "nats.url", "from 1 to 65535"),
        (DEVICE + "[nats]\nurl = 'nats://:4222'\n", "nats.url", "no host"),
        (DEVICE + "[metrics]\nlisten = '127.0.0.1:99999'\n", "metrics.listen", "1 to 65535"),
        (DEVICE + "[metrics]\nlisten = '127.0.0.1:0'\n", "metrics.listen", "1 to 65535"),
        (DEVICE + "[metrics]\nlisten = '0.0.0.0:4222'\n[nats]\nurl='nats://127.0.0.1:4222'\n", "metrics.listen", "server's"),
        (DEVICE + '[ledger]\npath = "/tmp/l\\u0000"\n', "ledger.path", "U+0000"),
        (DEVICE + '[[command]]\nname = "x"\nrun = ["/bin/a", "b\\u0000"]\n', "command[0].run[1]", "U+0000"),
        (DEVICE + '[nats]\nnkey = "a\\nb"\n', "nats.nkey", "U+000A"),
        ('[device]\nid = "VID-001\\n"\ntoken = "tok"\n', "device.id", "U+000A"),
        (DEVICE + "[health]\npatience = nan\n", "health.patience", "no number"),
        (DEVICE + "[link]\nlinger_s = inf\n", "link.linger_s", "no number"),
        (DEVICE + "[link]\nlinger_s = 1e999\n", "link.linger_s", "no number"),
        (DEVICE + "[artifacts]\nbytes_max = -1\n", "artifacts.bytes_max", ">= 1048576"),
        (DEVICE + f"[artifacts]\ndir = '{'x' * 5000}'\n", "artifacts.dir", "4096"),
        (DEVICE + "[log]\nlevel = 'loud'\n", "log.level", "debug|info"),
        (DEVICE + "[streams]\nout_bulk_bytes_max = 262144\n[frame]\nbytes_max = 65536\n",
         "streams.out_bulk_bytes_max", "8 times"),
        (DEVICE + "[streams]\nout_node_bytes_max = 262144\n[frame]\nbytes_max = 65536\n",
         "streams.out_node_bytes_max", "8 times"),
        (DEVICE + "[streams]\nper = 'fleet'\n", "streams.per", "fleet"),
        (DEVICE + "[streams]\nper = 'node'\n", "streams.nodes", "go together"),
        (DEVICE + "[streams]\nnodes = ['gps']\n", "streams.nodes", "go together"),
        (DEVICE + "[streams]\nper = 'node'\nnodes = ['a', 'b', 'a']\n", "streams.nodes", "twice"),
        (DEVICE + "[streams]\nper = 'node'\nnodes = ['']\n", "streams.nodes", "0 bytes"),
        (DEVICE + f"[streams]\nper = 'node'\nnodes = ['{'ä' * 21}']\n",
         "streams.nodes", "takes 126 bytes in a subject, 1 to 124"),
        (DEVICE + f"[streams]\nper = 'node'\nnodes = {[str(n) for n in range(65)]}\n",
         "streams.nodes", "<= 64"),
    ],
)  # fmt: skip
def test_refusals_name_the_place_and_the_rule(text: str, key: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, PATH)
    assert caught.value.key == key
    assert words in caught.value.problem
    assert str(caught.value).startswith(f"{PATH}: {key}: ")


def test_text_that_is_no_toml() -> None:
    with pytest.raises(ConfigError, match=r"agent\.toml: not TOML: .*line 2"):
        parse("\n[device\n", PATH)


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; `backhaul-agent enrol` writes one"):
        load(tmp_path / "agent.toml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "agent.toml")


@pytest.mark.parametrize(
    ("lines", "key", "words"),
    [
        ("[artifacts]\ndir = '/'\n", "artifacts.dir", "directory of their own"),
        ("[artifacts]\ndir = '/etc/'\n", "artifacts.dir", "directory of their own"),
        ("[artifacts]\ndir = '//var/lib'\n", "artifacts.dir", "directory of their own"),
        ("[artifacts]\ndir = '/srv/maps/../..'\n", "artifacts.dir", "directory of their own"),
        ("[artifacts]\ndir = '.'\n", "artifacts.dir", "directory of their own"),
        (
            "[artifacts]\ndir = 'state'\n[ledger]\npath = 'state/l.db'\n",
            "artifacts.dir",
            "of their own",
        ),
        ("[artifacts]\ndir = 'file/below'\n", "artifacts.dir", "file is a file"),
        ("[ledger]\npath = 'there'\n", "ledger.path", "is a directory"),
        ("[ledger]\npath = 'file/l.db'\n", "ledger.path", "is a file"),
        ("[link]\nfile = 'there'\n", "link.file", "is a directory"),
        ("[nats]\nnkey = 'there'\n", "nats.nkey", "is a directory"),
        ("[[command]]\nname = 'x'\nrun = ['/etc']\n", "command[0].run", "is a directory"),
    ],
)
def test_a_path_that_cannot_be_what_it_is_for_is_refused(
    tmp_path: Path, lines: str, key: str, words: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    path = tmp_path / "agent.toml"
    path.write_text(DEVICE + lines)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.key == key
    assert words in caught.value.problem


def test_check_config_says_what_the_unit_of_the_packages_does_not_allow(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        DEVICE + "[ledger]\npath = 'l.db'\n[[command]]\nname = 'x'\nrun = ['/no/such']\n"
    )
    done = CliRunner().invoke(cli, ["check-config", "--config", str(path)])
    assert done.exit_code == 0
    assert "ledger.path: the unit backhaul-agent.service may write below" in done.stderr
    assert "command 'x': there is no /no/such" in done.stderr
    path.write_text(DEVICE)
    done = CliRunner().invoke(cli, ["check-config", "--config", str(path)])
    assert done.stderr == ""


def test_what_who_asks_may_not_look_into_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under systemd the state is below /var/lib/private, and `status` is not asked by root alone."""
    private, stat = tmp_path / "private", Path.stat
    path = tmp_path / "agent.toml"
    path.write_text(
        DEVICE + f"[ledger]\npath = '{private}/agent/ledger.db'\n"
        f"[artifacts]\ndir = '{private}/agent/artifacts'\n"
        f"[[command]]\nname = 'light'\nrun = ['{private}/bin/light']\n"
    )

    def shut(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if self != private and self.is_relative_to(private):
            raise PermissionError(13, "Permission denied")
        return stat(self, follow_symlinks=follow_symlinks)

    private.mkdir()
    monkeypatch.setattr(Path, "stat", shut)
    assert load(path).ledger.path == f"{private}/agent/ledger.db"
    checked = CliRunner().invoke(cli, ["check-config", "--config", str(path)])
    assert checked.exit_code == 0, checked.output
    assert "there is no" not in checked.output
