"""What `backhaul-hub` lists for people and for scripts: whole, harmless, and without secrets."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from backhaul_codec.state.point_text import columns, shown
from backhaul_hub.cli.fleet.devices import table
from backhaul_hub.cli.main import cli
from backhaul_hub.cli.server.status import lines
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.enrol.rules import Enrolment
from backhaul_hub.enrol.tokens import described
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
DAY = 86_400 * S
HEADS = {"waiting": 0, "in_sync": True, "conflicts": 0}
LANE = {
    "watermark": 1_234_567_890,
    "highest_seq": 1_234_567_890,
    "lag_messages": 0,
    "gaps": [[low, low + 5] for low in range(0, 100, 20)],
    "gap_ranges": 7,
    "last_seen_ns": 0,
    "bytes": 987_654_321_000,
}


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    directory = tmp_path / "hub"
    url = "nats-leaf://127.0.0.1:7422"
    create_hub(directory, HubLayout("127.0.0.1", "127.0.0.1", free_port(), 7422, url, 1, 5.0))
    return directory


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the servers told, though none runs; it is another test's."""

    async def tell(*_: Any, **__: Any) -> str:
        return ""

    monkeypatch.setattr("backhaul_hub.cli._act.told", tell)


def run(hub: Path, *words: str) -> Result:
    result = CliRunner().invoke(cli, [*words, "--dir", str(hub)])
    assert result.exception is None, result.output
    return result


def device(name: str, **lanes: dict[str, Any]) -> dict[str, Any]:
    link = {"up": True, "since_ns": S}
    return {"device": name, "link": link, "revoked_ns": 0, "heads": HEADS, "lanes": lanes}


def test_a_line_of_devices_is_whole_however_long_it_is() -> None:
    name = "VID-" + "0123456789" * 6
    report = {"devices": [device(name, live=LANE, bulk=LANE), device("VID-2")]}
    heading, *found = table(report, 3700 * S)
    assert heading.split()[:2] == ["DEVICE", "LINK"]
    assert len(found) == 3
    for line in found[:2]:
        assert line.startswith(f"{name}  up 1:01:39  in sync  ")
        assert "1,234,567,890" in line
        assert "0..5, 20..25, 40..45, 60..65, 80..85, and 2 more" in line
        assert line.endswith("987,654,321,000")
    assert found[2].split()[0] == "VID-2"


def test_no_cell_is_an_order_to_a_terminal_or_breaks_its_line() -> None:
    (line,) = columns([["\x1b[2J", "a\nall is well", "[red]x[/]"]])
    assert line == '"\\u001b[2J"  "a\\nall is well"  [red]x[/]'
    assert shown("83 °C") == "83 °C"


def condition(device: str, code: str, detail: str = "") -> dict[str, Any]:
    words = {"severity": "warning", "title": f"{code} it is", "hint": f"mend {code}", "about": ""}
    return {"code": code, "device": device, "detail": detail, "since_ns": 0, **words}


def test_the_status_says_what_to_do_about_vehicles_too_once_of_each_kind() -> None:
    found = [condition(f"VID-{n}", code) for n in range(3) for code in ("silence", "gaps")]
    answer: dict[str, Any] = {"devices": 3, "connected": 3, "looked_ns": 1, "time_ns": 5 * S}
    answer |= {"conditions": found, "conditions_not_shown": 0, "counts": {}}
    text = lines(answer)
    assert text[1] == "VID-0: warning silence, warning gaps"
    assert text[4:] == ["what to do:", "  silence: mend silence", "  gaps: mend gaps"]


def test_what_a_vehicle_says_forges_no_line_of_the_status() -> None:
    odd = "x\nall is well\x1b[2K"
    answer: dict[str, Any] = {"devices": 1, "connected": 1, "looked_ns": 1, "time_ns": 5 * S}
    answer |= {"conditions_not_shown": 0, "counts": {}}
    for name in ("", "VID-1"):
        text = lines(answer | {"conditions": [condition(name, "odd", odd)]})
        assert "\n" not in "".join(text)
        assert "\x1b" not in "".join(text)


def test_open_tokens_are_listed_and_their_secrets_are_not(hub: Path) -> None:
    first = run(hub, "enrol", "VID-001", "--json")
    word = json.loads(first.stdout)
    run(hub, "enrol", "VID-002")
    (mine, other) = json.loads(run(hub, "tokens", "--json").stdout)
    assert (mine["device"], mine["id"], mine["state"]) == ("VID-001", word["id"], "open")
    assert mine["expires"][:19] == word["expires"][:19]
    assert other["device"] == "VID-002"
    text = run(hub, "tokens", "VID-001").stdout
    assert word["id"] in text
    assert "VID-002" not in text
    (row,) = asyncio.run(_rows(hub, "VID-001"))
    for secret in (word["token"], row.device_token):
        assert secret not in run(hub, "tokens", "--all").output
        assert secret not in json.dumps(mine)


async def _rows(hub: Path, device: str) -> list[Enrolment]:
    async with await Registry.open_existing(hub / "hub.db") as registry:
        return await enrolment_rows.of_device(registry, device)


def test_a_token_that_is_over_is_listed_only_if_asked_for(hub: Path) -> None:
    run(hub, "enrol", "VID-001")
    run(hub, "enrol", "VID-001")
    assert "no open tokens" in run(hub, "tokens", "VID-002").stderr
    assert len(json.loads(run(hub, "tokens", "--json").stdout)) == 1
    replaced, made = json.loads(run(hub, "tokens", "--all", "--json").stdout)
    assert (replaced["state"], replaced["why"], made["state"]) == ("voided", "replaced", "open")


def test_a_token_is_described_by_what_became_of_it() -> None:
    token = Enrolment("0" * 24, "VID-001", "ab" * 12, DAY, 2 * DAY, "{}")
    assert described(token, DAY)["state"] == "open"
    assert described(token, 2 * DAY)["state"] == "expired"
    used = described(replace(token, used_ns=DAY + S, public_key="U1"), 3 * DAY)
    assert (used["state"], used["ended"]) == ("used", "1970-01-02T00:00:01.000Z")


def test_scripts_are_told_what_was_done(hub: Path) -> None:
    added = json.loads(run(hub, "add-device", "VID-001", "--json").stdout)
    assert added["identity"] == str(hub / "devices/VID-001/identity.json")
    assert (added["device"], added["nodes"], added["told"]) == ("VID-001", [], True)
    given = json.loads(
        run(hub, "add-device", "VID-001", "--per-node", "--node", "gps", "--json").stdout
    )
    assert (given["nodes"], given["dropped"]) == (["gps"], [])
    person = json.loads(run(hub, "user", "add", "anna", "--group", "fleet", "--json").stdout)
    assert person["credentials"] == str(hub / "people/anna.creds")
    assert (person["name"], person["group"], person["may"]) == ("anna", "fleet", "read")
    gone = json.loads(run(hub, "user", "rm", "anna", "--json").stdout)
    assert gone == {"name": "anna", "withdrawn": True, "told": True}
    secret = (hub / "devices/VID-001/identity.json").read_text()
    assert json.loads(secret)["token"] not in json.dumps([added, given])
