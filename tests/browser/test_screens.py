"""The screens Device and Alerts at a real hub: what is live, what is edited, who may, and that a keyboard is enough."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from backhaul_agent.client import connect
from backhaul_codec import Point
from backhaul_runtime.clock import SystemClock
from tests.support.rig.parts import Part, program, wait_for_log
from tests.support.waiting import until

from .axe import violations
from .by_hand import BY_HAND
from .looking import looking
from .park import MINE, ODD, Park, as_person, ask, ingest_was_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, Locator, Page

pytestmark = [pytest.mark.nats, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PHONE = {"width": 360, "height": 780}
TABS = ("events", "configuration", "commands", "hours", "files")
_STOPS_MAX = 80


async def reach(page: Page, target: Locator) -> None:
    """Press Tab until a control has the focus; fail where no such way leads there."""
    for _ in range(_STOPS_MAX):
        if await target.evaluate("each => each === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    pytest.fail(f"{_STOPS_MAX} stops of the Tab key do not lead to {target}")


async def alert(park: Park, device: str, rule: str, **more: Any) -> None:
    """Publish an alert as the twin job does."""
    time_ns = SystemClock().now_ns()
    said = {"vid": device, "time": time_ns, "id": f"{device}:{rule}:{time_ns}", "rule": rule}
    said |= {"kind": "raised", "severity": "critical", "late": False, "text": "61 °C", "value": 61}
    said |= {"node": "battery", "type": "temp", "key": "", "unit": "°C", "limit": 60} | more
    subject = f"fleet.prod.veh.{device}.evt.alert.{rule}.{said['kind']}.{time_ns}"
    async with park.hub.connection() as client:
        await client.jetstream().publish(subject, json.dumps(said).encode())


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def go_on() -> asyncio.Event:
    """Lets the vehicle's program answer its command."""
    return asyncio.Event()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def staffed(parked: Park, go_on: asyncio.Event) -> AsyncIterator[Park]:
    """Add a reader, and a program that carries out commands."""
    await parked.add_person("rita", "fleet", "read")

    async def unlock(command: Any) -> Any:
        await go_on.wait()
        return {"door": command["params"]["door"]}

    async with connect(parked.vehicles[MINE].url) as agent:
        await agent.on_command("door.unlock", unlock)
        yield parked


async def test_a_live_value_arrives_at_its_chart(staffed: Park, chromium: Browser) -> None:
    async with looking(chromium) as one:
        await one.log_in(staffed, "olga", f"#/device/{MINE}?series=battery.soc&range=last:3600")
        chart = one.page.locator('[data-series="battery.soc"]')
        await expect(chart.locator("[data-reading]")).to_have_text("80.5")
        await staffed.say(MINE, battery_soc=33.25)
        await expect(chart.locator("[data-reading]")).to_have_text("33.25")
        # What is drawn is said as well, for people who do not see it.
        await expect(chart).to_contain_text("the newest is 33.25")
        value = one.page.get_by_role("row").filter(has_text="battery.soc")
        await expect(value).to_contain_text("33.25")
        # Another series by keyboard: it stands in the URL.
        await reach(one.page, one.page.get_by_role("checkbox", name="Chart of gps.lat"))
        await one.page.keyboard.press("Space")
        await expect(one.page.locator('[data-series="gps.lat"]')).to_be_visible()
        assert "series=gps.lat" in one.page.url
        slider = one.page.get_by_role("slider", name="battery.soc, cursor")
        await slider.focus()
        await one.page.keyboard.press("ArrowLeft")
        now = int(await slider.get_attribute("aria-valuenow") or 0)
        assert now < int(await slider.get_attribute("aria-valuemax") or 0)
        other = one.page.get_by_role("slider", name="gps.lat, cursor")
        assert await other.get_attribute("aria-valuenow") == str(now), "the cursor is shared"
        assert one.errors == []


async def test_charts_and_trails_begin_with_history_and_a_gap_has_its_reason(
    staffed: Park, chromium: Browser, tmp_path: Path
) -> None:
    command = [program("backhaul-spark"), "serve-history", "--table-root", str(tmp_path)]
    ingest_was_at(tmp_path, 1)
    server = Part(
        "history", [*command, "--hub-dir", str(staffed.hub.directory)], tmp_path / "history.log"
    )
    await server.start()
    try:
        await wait_for_log(server, "answering")
        now_s = SystemClock().now_ns() // 10**9
        # An hour, once in 10 s, and nothing in the 20 minutes in its middle.
        times = [now_s - at for at in range(3600, 0, -10) if not 1200 < at < 2400]
        points = [Point("pump", "flow", at * 10**9, float(at % 7)) for at in times]
        async with connect(staffed.vehicles[MINE].url) as agent:
            await agent.publish_batch("pump", points)
            way = [Point("gps", "lat", at * 10**9, 48.1 + at % 97 / 1000) for at in times[::4]]
            way += [Point("gps", "lon", each.time, 11.5) for each in way]
            await agent.publish_batch("gps", way)
        question = {"device": MINE, "node": "pump", "type": "flow", "points_max": 1000}
        question |= {"from_us": (now_s - 3600) * 10**6, "to_us": now_s * 10**6}
        async with looking(chromium) as one, as_person(staffed, "olga") as client:

            async def all_there() -> bool:
                flow = await ask(client, "ask.command.fleet.olga.history", **question)
                place = question | {"node": "gps", "type": "lon"}
                lon = await ask(client, "ask.command.fleet.olga.history", **place)
                found = [len(each.get("t_us", ())) for each in (flow, lon)]
                return found[0] == len(points) and found[1] >= len(times[::4])

            await until(all_there, "the hub has the hour")
            await one.log_in(staffed, "olga", f"#/device/{MINE}?series=pump.flow&range=last:3600")
            chart = one.page.locator('[data-series="pump.flow"]')
            await expect(chart.locator(".gaps li")).to_have_text("silent")
            await expect(chart).to_contain_text("1 gap, 20 min")
            # The cursor begins at the end; half an hour before it lies the gap.
            await chart.get_by_role("slider").focus()
            for _ in range(10):
                await one.page.keyboard.press("Shift+ArrowLeft")
            await expect(chart.locator("[data-reading]")).to_contain_text("no readings, silent")
            await one.page.evaluate("location.hash = '#/system'")
            job = one.page.locator("[data-job=ingest]")
            await expect(job).to_contain_text(re.compile(r"[\d,]+ messages"))
            await expect(job).to_contain_text("at work")
            await one.page.evaluate("location.hash = '#/fleet'")
            trails = one.page.locator(".map-place")
            await expect(trails).to_have_attribute("data-way", re.compile(r"^\d{2,}$"))
            assert one.errors == []
    finally:
        await server.stop()


async def test_a_command_is_followed_from_sent_to_done_by_keyboard(
    staffed: Park, chromium: Browser, go_on: asyncio.Event
) -> None:
    async with looking(chromium) as one:
        await one.log_in(staffed, "olga", f"#/device/{MINE}?f.tab=commands")
        await reach(one.page, one.page.get_by_label("Command", exact=True))
        await one.page.keyboard.type("door.unlock")
        await reach(one.page, one.page.get_by_label("Parameters"))
        await one.page.keyboard.type('{"door": ')
        await one.page.keyboard.press("Enter")
        await expect(one.page.get_by_role("alert")).to_have_text("This is no JSON.")
        await one.page.keyboard.type("2}")
        await one.page.keyboard.press("Enter")
        command = one.page.locator("[data-command]").first
        await expect(command).to_have_attribute("data-state", "accepted")
        await expect(command).to_contain_text("running")
        await expect(command).to_contain_text("started in time")
        go_on.set()
        await expect(command).to_have_attribute("data-state", "done")
        await expect(command).to_contain_text('{"door":2}')
        await expect(command).to_contain_text("by olga")
        assert one.errors == []


async def test_a_deadline_counts_down_where_the_vehicle_is_away(
    staffed: Park, chromium: Browser
) -> None:
    async with looking(chromium) as one:
        await staffed.links[ODD].cut()
        await one.log_in(staffed, "olga", f"#/device/{ODD}?f.tab=commands")
        await one.page.get_by_label("Command", exact=True).fill("door.unlock")
        await one.page.get_by_label("Deadline in seconds").fill("1.5")
        await one.page.get_by_role("button", name="Send", exact=True).click()
        command = one.page.locator("[data-command]").first
        await expect(command).to_contain_text("or not at all")
        await expect(command).to_have_attribute("data-state", "expired")
        await expect(command).to_contain_text("expired")
        await staffed.links[ODD].heal()


async def test_desired_is_edited_by_keyboard_and_seen_reported(
    staffed: Park, chromium: Browser
) -> None:
    async with looking(chromium) as one:
        page = one.page
        await one.log_in(staffed, "olga", f"#/device/{MINE}?f.tab=configuration")
        await reach(page, page.get_by_role("button", name="Desire another field"))
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Field", exact=True)).to_be_focused()
        await page.keyboard.type("fan.rate")
        await reach(page, page.get_by_label("Desired value"))
        await page.keyboard.type("many")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("This is no number.")
        for _ in "many":
            await page.keyboard.press("Backspace")
        await page.keyboard.type("5")
        await page.keyboard.press("Enter")
        await expect(page.locator('[data-reported="fan.rate"]')).to_have_text("5")
        row = page.get_by_role("row").filter(has_text="fan.rate")
        await expect(row).to_contain_text("as desired")
        await expect(row).to_contain_text("hub:olga")
        assert one.errors == []


async def test_nobody_overwrites_unseen_what_another_desires(
    staffed: Park, chromium: Browser
) -> None:
    asked = "ask.command.fleet.olga"
    point = {"node": "fan", "type": "limit", "value": 1.0}
    async with looking(chromium) as one, as_person(staffed, "olga") as client:
        first = await ask(client, f"{asked}.desire", device=MINE, points=[point])
        await one.log_in(staffed, "olga", f"#/device/{MINE}?f.tab=configuration")
        await one.page.get_by_role("button", name="Edit fan.limit").click()
        await one.page.get_by_label("Desired value").fill("9")
        await ask(client, f"{asked}.desire", device=MINE, points=[point | {"value": 2.0}])
        dialog = one.page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Somebody else changed")
        await expect(dialog).to_contain_text("desired as 2 by now")
        await expect(dialog.get_by_role("button", name="Save", exact=True)).to_be_disabled()
        late = await ask(
            client,
            f"{asked}.desire",
            device=MINE,
            points=[point | {"value": 9.0}],
            based_on=first["revision"],
        )
        assert "somebody else changed what is desired" in late["error"]["message"], (
            "the hub says so"
        )
        await dialog.get_by_role("button", name="I have seen it").click()
        await dialog.get_by_role("button", name="Save", exact=True).click()
        await expect(one.page.locator('[data-reported="fan.limit"]')).to_have_text("9")


async def test_a_conflict_is_reverted(staffed: Park, chromium: Browser) -> None:
    async with looking(chromium) as one, connect(staffed.vehicles[MINE].url) as agent:
        await staffed.operator("set", MINE, "fan.mode=eco")
        await one.log_in(staffed, "anna", f"#/device/{MINE}?f.tab=configuration")
        await expect(one.page.locator('[data-reported="fan.mode"]')).to_have_text("eco")
        await staffed.links[MINE].cut()
        await staffed.operator("set", MINE, "fan.mode=hub")
        point = {"node": "fan", "points": [{"type": "mode", "value": "vehicle"}]}
        await agent.nats.request("agent.set", json.dumps(point).encode(), timeout=30)
        await staffed.links[MINE].heal()
        card = one.page.locator(".card").filter(has_text="fan.mode")
        await expect(card).to_contain_text("vehicle")
        await card.get_by_role("button", name="Write “hub” again").click()
        await expect(card).to_have_count(0)
        await expect(one.page.locator('[data-reported="fan.mode"]')).to_have_text("hub")


async def test_an_alert_is_acknowledged_in_one_browser_and_seen_in_another(
    staffed: Park, chromium: Browser
) -> None:
    async with looking(chromium) as one, looking(chromium) as other:
        await other.log_in(staffed, "olga", "#/alerts?f.severity=critical")
        await one.log_in(staffed, "anna", "#/alerts")
        await alert(staffed, MINE, "too-hot", text="<b>61 °C</b>")
        await alert(staffed, "VID-002", "too-wet")
        seen = other.page.get_by_role("row").filter(has_text="too-hot")
        await expect(seen).to_contain_text("<b>61 °C</b>")
        await expect(other.page.get_by_role("row").filter(has_text="too-wet")).to_be_visible()
        table = one.page.get_by_role("grid", name="Open alerts")
        await expect(table).to_contain_text("too-hot")
        assert "too-wet" not in await table.inner_text(), "another group's alert"
        button = one.page.get_by_role("button", name=f"Acknowledge too-hot of {MINE}")
        await reach(one.page, button)
        await one.page.keyboard.press("Enter")
        await expect(one.page.locator("[data-acknowledged]").first).to_contain_text("anna")
        await expect(seen.locator("[data-acknowledged]")).to_contain_text("anna")
        await seen.click()
        assert "f.alert=" in other.page.url
        await expect(other.page.locator(".alert-details")).to_contain_text("by anna")
        await alert(staffed, MINE, "too-hot", kind="cleared", text="cool again")
        await expect(seen).to_have_count(0)
        await other.page.get_by_role("button", name="Past", exact=True).click()
        await expect(seen.locator("[data-acknowledged]")).to_contain_text("anna")


async def test_a_silence_begins_and_ends(staffed: Park, chromium: Browser) -> None:
    async with looking(chromium) as one:
        await alert(staffed, MINE, "too-loud")
        await one.log_in(staffed, "anna", "#/alerts")
        row = one.page.get_by_role("row").filter(has_text="too-loud")
        await row.click()
        await one.page.locator(".alert-details").get_by_role("button", name="Silence").click()
        await one.page.get_by_label("Why").fill("new pumps")
        await one.page.get_by_role("button", name="Silence", exact=True).click()
        silence = one.page.locator("[data-silence]")
        await expect(silence).to_contain_text(f"too-loud of {MINE}")
        await expect(silence).to_contain_text("by anna: new pumps")
        await expect(row).to_contain_text("silenced")
        await silence.get_by_role("button", name="End it now").click()
        await expect(silence).to_have_count(0)
        await expect(row).not_to_contain_text("silenced")


async def test_who_may_only_read_is_offered_nothing_and_refused_by_the_server(
    staffed: Park, chromium: Browser
) -> None:
    await alert(staffed, MINE, "too-dark")
    async with looking(chromium) as one:
        page = one.page
        await one.log_in(staffed, "rita", "#/alerts")
        await expect(page.get_by_role("row").filter(has_text="too-dark")).to_be_visible()
        for tab in ("configuration", "commands"):
            await page.evaluate(f"location.hash = '#/device/{MINE}?f.tab={tab}'")
            heading = "Conflicts" if tab == "configuration" else "Commands"
            await expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
            await expect(page.locator(".state.loading")).to_have_count(0)
            offered = [await each.inner_text() for each in await page.locator("main button").all()]
            assert not {"Edit", "Forget", "Send", "Desire another field"} & set(offered), offered
        await page.evaluate("location.hash = '#/alerts'")
        await expect(page.get_by_role("row").filter(has_text="too-dark")).to_be_visible()
        offered = [await each.inner_text() for each in await page.locator("main button").all()]
        assert not {"Acknowledge", "Silence …", "End it now"} & set(offered), offered
        body = "{}"
        lines = [
            f"PUB ask.{may}.fleet.rita.{service} inbox.rita.x {len(body)}|{body}"
            for may, service in (
                ("write", "desire"),
                ("command", "command"),
                ("write", "acknowledge"),
            )
        ]
        said = await page.evaluate(BY_HAND, lines)
        assert said.count("Permissions Violation") == len(lines), said
    async with as_person(staffed, "rita") as client:
        for service in ("desire", "command", "acknowledge", "silence", "revert"):
            answer = await ask(client, f"ask.read.fleet.rita.{service}")
            assert "this takes the right to" in answer["error"]["message"]


async def test_a_file_from_the_vehicle_is_listed(staffed: Park, chromium: Browser) -> None:
    async with connect(staffed.vehicles[MINE].url) as agent:
        answer = await agent.nats.request("agent.artifact.put", b'{"name": "can.log", "bytes": 5}')
        number = json.loads(answer.data)["id"]
        await agent.nats.request(f"agent.artifact.write.{number}.0", b"hello", timeout=30)
        ended = json.dumps({"id": number}).encode()
        await agent.nats.request("agent.artifact.end", ended, timeout=30)
    async with looking(chromium) as one, as_person(staffed, "olga") as client:

        async def stored() -> bool:
            found = await ask(client, "ask.command.fleet.olga.files", device=MINE)
            return bool(found["uploads"])

        await until(stored, "the hub has the file")
        await one.log_in(staffed, "olga", f"#/device/{MINE}?f.tab=files")
        row = one.page.get_by_role("row").filter(has_text="can.log")
        await expect(row).to_contain_text("5 B")
        refused = await ask(client, "ask.command.fleet.olga.files", device="VID-404")
        assert "VID-404" in refused["error"]["message"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_serious_violation_on_device_and_alerts(
    staffed: Park, chromium: Browser, scheme: str
) -> None:
    size = PHONE if scheme == "dark" else None
    async with looking(chromium, color_scheme=scheme, viewport=size) as one:
        await one.log_in(staffed, "olga", f"#/device/{MINE}?series=battery.soc")
        await expect(one.page.locator('[data-series="battery.soc"] canvas')).to_be_visible()
        await expect(one.page.get_by_role("treeitem").first).to_be_visible()
        assert await violations(one.page) == []
        for tab in TABS if scheme == "dark" else TABS[:3]:
            await one.page.evaluate(f"location.hash = '#/device/{MINE}?f.tab={tab}'")
            await expect(one.page.locator(".device-part .state.loading")).to_have_count(0)
            assert await violations(one.page) == [], tab
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert await one.page.evaluate(wide) <= 0, f"{tab} is wider than the window"
        await one.page.evaluate("location.hash = '#/alerts'")
        await one.page.get_by_role("row").nth(1).click()
        await expect(one.page.locator(".alert-details")).to_be_visible()
        assert await violations(one.page) == []
        assert one.errors == [], "nor has the policy refused anything"
