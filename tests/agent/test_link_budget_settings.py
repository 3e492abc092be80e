"""A link's budget in the configuration, by the command line, and by what counts its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_agent.cli.values.status import budget_lines
from backhaul_agent.config import parse
from backhaul_agent.errors import ConfigError
from backhaul_agent.leaf.link_state import LinkTraffic, traffic_in
from backhaul_agent.link_config import LinkConfig
from backhaul_agent.metered.roaming import Network, is_roaming, read_network
from tests.agent.link_budgets import NOON_NS, account, spend
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path


STATISTICS = (
    b'{"data":{"server_id":"NA","account_statz":[{"leafnodes":1,'
    b'"sent":{"msgs":9,"bytes":900,"leafs":{"msgs":2,"bytes":200}},'
    b'"received":{"msgs":9,"bytes":900,"leafs":{"msgs":1,"bytes":50}}}]}}'
)


def test_the_leaf_servers_statistics_say_what_the_link_has_carried() -> None:
    assert traffic_in(STATISTICS) == LinkTraffic("NA", 2, 200, 1, 50)
    assert traffic_in(b'{"data":{"account_statz":[{"leafnodes":1}]}}') is None
    assert traffic_in(b"no json") is None


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("interface=wwan0\nmcc=262\n", Network("wwan0", "262")),
        ('INTERFACE="wlan0"\n', Network("wlan0", "")),
        ("state: connected\nmccmnc: 20801\n", Network("", "208")),
        ('{"interface": "wwan0", "operator": 26201}', Network("wwan0", "262")),
    ],
)
def test_a_modem_managers_file_says_where_the_vehicle_is(text: str, network: Network) -> None:
    assert read_network(text) == network


@pytest.mark.parametrize("text", ["", "mcc=\n", "{", "[1]", '{"mcc": null}', "hello"])
def test_a_file_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_network(text)


def test_roaming_is_by_country_or_by_interface() -> None:
    assert is_roaming(Network("wwan0", "208"), (), ("262",))
    assert not is_roaming(Network("wwan0", "262"), (), ("262",))
    assert not is_roaming(Network("wwan0", ""), (), ("262",)), "nobody knows: home"
    assert not is_roaming(Network("wwan0", "208"), (), ())
    assert is_roaming(Network("sat0", "262"), ("sat0",), ("262",))


def test_the_command_line_shows_the_budget_where_there_is_one() -> None:
    clock = FakeClock(NOON_NS)
    of, _ = account(clock, LinkConfig())
    assert budget_lines(of.status()["budget"]) == []
    of, _ = account(clock, LinkConfig(budget_mb_day=10))
    spend(of, clock, 11)
    assert budget_lines(of.status()["budget"]) == [
        "          this day, home: 0.1 of 10 MB: telemetry 0.1",
        "          this month, home: 0.1 MB: telemetry 0.1",
        "          points wait 0.9 s for a message",
    ]


def test_an_interfaces_own_counters_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "wwan0" / "statistics"
    place.mkdir(parents=True)
    monkeypatch.setattr("backhaul_agent.metered.account.INTERFACES", tmp_path)
    of, _ = account(FakeClock(NOON_NS), LinkConfig(budget_interface="wwan0"))
    for sent, received in ((100, 50), (180, 60)):
        (place / "tx_bytes").write_text(f"{sent}\n")
        (place / "rx_bytes").write_text(f"{received}\n")
        of.take(of.read_files())
    of.on_traffic(LinkTraffic("NA", 1, 1000, 1, 1000))
    of.on_traffic(LinkTraffic("NA", 2, 2000, 2, 2000))
    assert of.status()["budget"]["day"]["bytes"] == 90
    (place / "tx_bytes").unlink()
    of.take(of.read_files())
    assert "wwan0" in of.status()["budget"]["error"]


CONFIG = '[device]\nid = "V"\ntoken = "t"\n'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[link]\nbudget_mb_day = -1", "link.budget_mb_day"),
        ("[link]\nbudget_mb_day = 50\nbudget_mb_month = 20", "link.budget_mb_day"),
        ("[link]\nbudget_mb_day = 50\nbudget_flush_s_max = 0.5", "link.budget_flush_s_max"),
        ("[link]\nbudget_mb_year = 1", "link.budget_mb_year"),
        ('[link]\nbudget_interface = "../etc"', "link.budget_interface"),
        ('[link.roaming]\nfile = "x"', "link.roaming.home_mcc"),
        ('[link.roaming]\nhome_mcc = ["262"]', "link.roaming.file"),
        ('[link.roaming]\nfile = "x"\nhome_mcc = ["26"]', "link.roaming.home_mcc"),
        ("[link.roaming]\nbudget_mb_day = 2", "link.roaming.file"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_with_its_key(
    tmp_path: Path, text: str, key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(CONFIG + text, tmp_path / "agent.toml")
    assert caught.value.key.startswith(key)


def test_a_relative_file_counts_from_the_configurations_directory(tmp_path: Path) -> None:
    text = f'{CONFIG}[link.roaming]\nfile = "modem"\nhome_mcc = ["262", "208"]\n'
    assert parse(text, tmp_path / "agent.toml").link.roaming.file == str(tmp_path / "modem")
