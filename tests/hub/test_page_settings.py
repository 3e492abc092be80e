"""Where the page is, as hub.toml says it; its policy; its files; letters of hours. No server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec.assurance.completeness import NO_MARK_AFTER, HourReport, Missing
from backhaul_codec.programs.page_policy import headers
from backhaul_hub.errors import ConfigError
from backhaul_hub.page.map_file import MapFile
from backhaul_hub.page.page_files import read_files
from backhaul_hub.page_settings import PageSection, connects, origins, page_problems, page_url
from backhaul_hub.people.hours import letter
from backhaul_hub.setup.websocket_config import write_listener
from tests.support.own_map import shapes_tile, write_map

if TYPE_CHECKING:
    from pathlib import Path

SECTION = PageSection(listen="127.0.0.1:8470", websocket="ws://127.0.0.1:8471")


def test_a_browser_comes_from_where_the_page_is() -> None:
    assert origins(SECTION, tls=False) == ["http://127.0.0.1:8470", "http://localhost:8470"]
    elsewhere = PageSection(listen="10.0.0.1:443", websocket="wss://a:1, wss://b:1")
    assert origins(elsewhere, tls=True) == ["https://10.0.0.1:443"]
    assert connects(elsewhere) == ["wss://a:1", "wss://b:1"]
    proxied = PageSection(listen="127.0.0.1:1", url="https://fleet.example.org/", websocket="x")
    assert origins(proxied, tls=False) == ["https://fleet.example.org"]
    assert page_url(proxied, tls=False) == "https://fleet.example.org"


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"listen": "0.0.0.0:1", "websocket": "ws://a:2"}, "page.url"),
        ({"listen": "127.0.0.1:1"}, "page.websocket"),
        ({"listen": "127.0.0.1:1", "websocket": "nats://a:2"}, "page.websocket"),
        ({"listen": "127.0.0.1:1", "websocket": "ws://a;script-src *:2"}, "page.websocket"),
        ({"listen": "127.0.0.1:4222", "websocket": "ws://a:2"}, "page.listen"),
        ({"listen": "127.0.0.1:1", "websocket": "ws://127.0.0.1:1"}, "page.listen"),
        ({"listen": "127.0.0.1:1", "websocket": "ws://a:2", "url": "ftp://a"}, "page.url"),
    ],
)
def test_places_with_which_nothing_can_be_done_are_refused(
    section: dict[str, Any], key: str
) -> None:
    found = [key for key, _ in page_problems(PageSection(**section), ["nats://127.0.0.1:4222"])]
    assert found == [key]
    assert list(page_problems(SECTION, ["nats://127.0.0.1:4222"])) == []
    assert list(page_problems(PageSection(), [])) == [], "nowhere"


def test_others_are_not_reached_without_tls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no TLS"):
        write_listener(tmp_path, "0.0.0.0", 1, ["https://a"], tls=False)


def test_the_policy_lets_the_page_connect_to_its_server_alone() -> None:
    policy = headers(["wss://a:1"])["Content-Security-Policy"]
    assert "connect-src 'self' wss://a:1;" in policy
    assert "unsafe" not in policy


def test_a_page_that_is_not_built_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "page-1.js").write_text("x")
    assert read_files(tmp_path) == {}
    (tmp_path / "index.html").write_text("y")
    (tmp_path / "index.html.br").write_text("z")
    found = read_files(tmp_path)
    assert found["index.html"].forms == {"br": b"z"}
    assert (found["page-1.js"].lasting, found["index.html"].lasting) == (True, False)


def test_an_hour_is_a_letter() -> None:
    def of(state: Any, why: str = "", *missing: Missing) -> HourReport:
        return HourReport(0, state, (1,), missing=missing, why=why)

    gap = Missing("bulk", 1, 2, 3)
    reports = (
        of("complete"), of("explained"), of("waiting"), of("imported"),
        of("waiting", NO_MARK_AFTER), of("waiting", NO_MARK_AFTER, gap), None,
    )  # fmt: skip
    assert "".join(map(letter, reports)) == "cewisw-"


def test_a_map_that_can_be_none_is_named_with_the_reason(tmp_path: Path) -> None:
    file = MapFile(tmp_path / "town.pmtiles")
    assert file.problem() == "town.pmtiles: No such file or directory"
    write_map(file.path, shapes_tile())
    assert file.as_json() == {"url": "map.pmtiles", "problem": ""}
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-1])
    assert f"{len(whole) - 1:,} of its {len(whole):,} bytes" in file.problem()
    for content, words in {
        b"PMTiles\x03": "in the middle of its header",
        b"PMTiles\x02" + bytes(200): "version 2",
        b"": "is no PMTiles file",
    }.items():
        file.path.write_bytes(content)
        assert words in file.problem()
