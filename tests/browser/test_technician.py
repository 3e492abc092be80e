"""The technician's page in Chromium, at a real agent and leaf server: with a link, without, and with neither."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from backhaul_agent.client import connect
from backhaul_agent.client.history import history
from backhaul_codec import Point
from backhaul_runtime.clock import SystemClock

from .axe import violations
from .looking import looking
from .roadside import DEVICE, HTML, HTML_NODE, Roadside, roadside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page, Route

pytestmark = [pytest.mark.nats, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PHONE = {"width": 360, "height": 780}
TABS = ("now", "values", "commands", "events", "hours", "test")
HOUR_NS = 3600 * 10**9


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def beside(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Roadside]:
    assert chromium.is_connected()
    async with roadside(tmp_path_factory.mktemp("roadside")) as some:
        yield some


async def enter(page: Page, beside: Roadside, tab: str = "now") -> None:
    """Open the link that the command prints."""
    await page.goto((await beside.shown())["link"])
    await expect(page.get_by_role("navigation")).to_be_visible()
    await page.evaluate("hash => { location.hash = hash }", f"#/{tab}")
    await expect(page.locator(".state.loading")).to_have_count(0)


async def test_values_and_a_chart_are_live_and_names_of_html_are_text(
    beside: Roadside, chromium: Browser
) -> None:
    await beside.say(battery_soc=80.5)
    async with connect(beside.vehicle.url) as agent:
        await agent.publish(HTML_NODE, "text", HTML)
        now_ns = SystemClock().now_ns()
        points = [
            Point("pump", "flow", now_ns - at * 10**9, float(at)) for at in range(900, 600, -3)
        ]
        await agent.publish_batch("pump", points)
    async with looking(chromium) as one:
        page = one.page
        await enter(page, beside, "values")
        assert (await beside.shown())["code"] not in page.url, (
            "no history or bookmark holds the code"
        )
        row = page.get_by_role("row").filter(has_text="battery.soc")
        await expect(row).to_contain_text("80.5\u202f%")
        await expect(page.get_by_role("row").filter(has_text=HTML_NODE).last).to_contain_text(HTML)
        for name in ("battery.soc", "pump.flow"):
            await page.get_by_role("checkbox", name=f"Chart of {name}").focus()
            await page.keyboard.press("Space")
        chart = page.locator('[data-series="battery.soc"]')
        await expect(chart.locator("[data-reading]")).to_have_text("80.5\u202f%")
        await expect(page.locator('[data-series="pump.flow"]')).to_contain_text(
            "100 readings, between 603 and 900"
        )
        await beside.say(battery_soc=33.25)
        await expect(row).to_contain_text("33.25\u202f%")
        await expect(chart.locator("[data-reading]")).to_have_text("33.25\u202f%")
        assert await page.evaluate("window.hurt") is None
        assert one.errors == [], "nor has the policy refused anything"
        assert one.hosts == {beside.url.removeprefix("http://")}


async def test_without_a_link_the_page_says_why_and_all_of_it_works(
    beside: Roadside, chromium: Browser
) -> None:
    async with looking(chromium) as one:
        page = one.page
        await enter(page, beside)
        await expect(page.locator(".link-state")).to_have_text("link up")
        await beside.link.cut()
        await expect(page.locator("[data-link]")).to_have_attribute("data-link", "down")
        await expect(page.locator("[data-link]")).to_contain_text("dials the hub")
        panel = page.locator(".link-panel")
        await expect(panel.locator("code")).to_have_text("sudo backhaul-agent status")
        await expect(page.locator(".conditions")).to_contain_text("link-down")
        # By keyboard: a reading of the technician's own.
        await page.evaluate("location.hash = '#/test'")
        await page.get_by_label("Type").fill("page")
        await page.get_by_label("Value").focus()
        await page.keyboard.press("Control+A")
        await page.keyboard.type("7.25")
        await page.keyboard.press("Enter")
        answer = page.locator(".tries li").first
        await expect(answer).to_have_attribute("data-kept", "true")
        await expect(answer).to_contain_text("published on app.test.page")
        async with connect(beside.vehicle.url) as agent:
            found = [
                value async for piece in history(agent, "test", "page") for value in piece["values"]
            ]
        assert found == [7.25], "it is in the ledger"
        await page.evaluate("location.hash = '#/now'")
        lane = page.locator('[data-lane="bulk"]')
        await expect(lane).to_contain_text("the link is down")
        await page.evaluate("location.hash = '#/hours'")
        hour_ms = SystemClock().now_ns() // HOUR_NS * HOUR_NS // 10**6
        hour = page.locator(f'[data-hour="{hour_ms}"]').or_(
            page.locator(f'[data-hour="{hour_ms - 3600000}"]')
        )
        await expect(hour.first).to_contain_text("the link is down")
        await page.evaluate("location.hash = '#/values'")
        await expect(page.get_by_role("row").filter(has_text="test.page")).to_contain_text("7.25")
        await beside.link.heal()
        await expect(page.locator(".link-state")).to_have_text("link up")
        await page.evaluate("location.hash = '#/hours'")
        await expect(page.get_by_text("The hub has confirmed all")).to_be_visible()
        assert one.errors == []


async def test_commands_that_ran_and_events_are_shown_as_text(
    beside: Roadside, chromium: Browser
) -> None:
    async with connect(beside.vehicle.url) as agent:

        async def unlock(command: dict[str, object]) -> object:
            if command["params"] == {"door": 2}:
                raise ValueError(HTML)
            return {"said": HTML}

        await agent.on_command("door.unlock", unlock)
        await agent.event("armed", previous="disarmed", reason=HTML)
        for door in (1, 2):
            params = json.dumps({"door": door})
            await beside.operator("command", DEVICE, "door.unlock", "--params", params)
        async with looking(chromium) as one:
            page = one.page
            await enter(page, beside, "commands")
            commands = page.locator("[data-command]")
            await expect(commands).to_have_count(2)
            await expect(commands.nth(1)).to_have_attribute("data-state", "done")
            await expect(commands.nth(1)).to_contain_text(HTML)
            await expect(commands.nth(0)).to_have_attribute("data-state", "failed")
            await expect(commands.nth(0)).to_contain_text(HTML)
            await page.evaluate("location.hash = '#/events'")
            event = page.locator("[data-event]").filter(has_text="armed").first
            await expect(event).to_contain_text(f"after disarmed · {HTML}")
            assert await page.evaluate("window.hurt") is None
            assert one.errors == []


async def test_nobody_gets_in_by_a_wrong_code_nor_a_page_of_elsewhere(
    beside: Roadside, chromium: Browser
) -> None:
    shown = await beside.shown()
    async with looking(chromium) as one:
        page = one.page
        await page.goto(f"{beside.url}/#WRNG-WRNG")
        await expect(page.get_by_role("alert")).to_contain_text("This is not the code")
        await page.get_by_label("Code").fill("wrng wrng")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("This is not the code")
        await page.get_by_label("Code").fill(shown["code"].lower().replace("-", ""))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("navigation")).to_be_visible()
        await page.reload()
        await expect(page.get_by_role("navigation")).to_be_visible()

        before = beside.vehicle.agent.logged().count(b'"event": "page_let_in"')
        other = await page.context.new_page()
        await other.route(
            "http://elsewhere.example/",
            lambda route: route.fulfill(body="<p>", content_type="text/html"),
        )
        await other.goto("http://elsewhere.example/")
        answers = await other.evaluate(
            """async ([url, code]) => {
              const said = JSON.stringify({ code })
              const tries = [
                { mode: "cors", headers: { "Content-Type": "application/json" } },
                { mode: "cors", headers: { "Content-Type": "text/plain" } },
                { mode: "no-cors", headers: { "Content-Type": "text/plain" } },
              ]
              const found = []
              for (const each of tries) {
                try {
                  const answer = await fetch(`${url}/login`, { method: "POST", body: said, ...each })
                  found.push(`${answer.type} ${answer.status} ${await answer.text()}`)
                } catch { found.push("none") }
              }
              const frame = document.createElement("iframe")
              frame.src = url
              document.body.append(frame)
              await new Promise(done => frame.onload = done)
              try { found.push(String(frame.contentDocument)) } catch { found.push("null") }
              return found
            }""",
            [beside.url, shown["code"]],
        )
        assert answers == ["none", "none", "none", "null"], "nothing is read, and nothing framed"
        log = beside.vehicle.agent.logged()
        assert log.count(b'"event": "page_code_refused"') == 2
        assert log.count(b'"event": "page_let_in"') == before >= 1, "not even with the right code"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_serious_violation_and_a_phone_is_wide_enough(
    beside: Roadside, chromium: Browser, scheme: str
) -> None:
    size = PHONE if scheme == "dark" else None
    async with looking(chromium, color_scheme=scheme, viewport=size) as one:
        page = one.page
        await page.goto(beside.url)
        await expect(page.get_by_label("Code")).to_be_visible()
        assert await violations(page) == []
        await enter(page, beside)
        for tab in TABS:
            route = "#/values?series=battery.soc" if tab == "values" else f"#/{tab}"
            await page.evaluate("hash => { location.hash = hash }", route)
            await expect(page.locator('.top [aria-current="page"]')).to_have_text(tab.capitalize())
            await expect(page.locator(".state.loading")).to_have_count(0)
            assert await violations(page) == [], tab
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert await page.evaluate(wide) <= 0, f"{tab} is wider than the window"
        assert one.errors == []


async def test_history_that_was_refused_once_is_asked_for_again(
    beside: Roadside, chromium: Browser
) -> None:
    await beside.say(battery_soc=80.5)
    async with looking(chromium) as one:
        page = one.page
        refused = partial(fulfil, status=503, body="")
        await page.route("**/ask/history", refused)
        await enter(page, beside)
        # A range that follows nothing: there is no later time at which it would be asked for anyway.
        between = "2026-01-01T00:00:00.000Z~2100-01-01T00:00:00.000Z"
        await page.evaluate(
            "hash => { location.hash = hash }", f"#/values?series=battery.soc&range={between}"
        )
        chart = page.locator('[data-series="battery.soc"]')
        await expect(chart.locator(".notice")).to_contain_text("it has not answered in time")
        await page.unroute("**/ask/history")
        await expect(chart.locator(".notice")).to_have_count(0)
        await expect(chart.locator("[data-reading]")).to_be_visible()


async def fulfil(route: Route, **answer: Any) -> None:
    await route.fulfill(**answer)


async def test_the_page_says_that_the_agent_answers_and_tells_nothing(
    beside: Roadside, chromium: Browser
) -> None:
    answers = [
        (503, "", "it has not answered in time"),
        (500, "{}", "it answers 500"),
        (200, '{"version": 1}', "a part of its answer is missing"),
        (200, '{"error": {"code": "storage", "message": "disk I/O error"}}', "disk I/O error"),
    ]
    async with looking(chromium) as one:
        page = one.page
        await enter(page, beside)
        await expect(page.locator(".link-state")).to_have_text("link up")
        banner = page.locator(".banner")
        for status, body, why in answers:
            tell = partial(fulfil, status=status, body=body)
            await page.route("**/ask/look", tell)
            await expect(banner).to_contain_text(f"does not tell how the vehicle is: {why}")
            await page.unroute("**/ask/look")
        await expect(banner).to_have_count(0)
        await expect(page.locator(".link-state")).to_have_text("link up")


async def test_the_page_says_that_the_leaf_server_is_away_and_that_the_agent_is_silent(
    beside: Roadside, chromium: Browser
) -> None:
    async with looking(chromium) as one:
        page = one.page
        await beside.say(battery_soc=80.5)
        await enter(page, beside, "test")
        await beside.vehicle.leaf.stop()
        banner = page.locator(".banner")
        await expect(banner).to_contain_text("The leaf server is away")
        await expect(banner.locator("code").first).to_have_text("systemctl status backhaul-leaf")
        await page.get_by_role("button", name="Publish", exact=True).click()
        answer = page.locator(".tries li").first
        await expect(answer).to_have_attribute("data-kept", "false")
        await expect(answer).to_contain_text("the leaf server is away: no program can publish now")
        await page.evaluate("location.hash = '#/values?series=battery.soc'")
        await expect(page.locator('[data-series="battery.soc"] .notice')).to_contain_text(
            "the leaf server does not answer"
        )
        await beside.vehicle.agent.stop()
        await expect(banner).to_contain_text("The agent does not answer")
        await expect(page.locator(".link-state")).to_have_text("agent silent")
        await expect(page.get_by_role("row").filter(has_text="battery.soc")).to_be_visible()
        await beside.vehicle.start()
        await expect(page.get_by_role("alert")).to_contain_text("The code is needed again")
        await page.get_by_label("Code").fill((await beside.shown())["code"])
        await page.keyboard.press("Enter")
        await expect(page.locator(".link-state")).to_have_text("link up")
