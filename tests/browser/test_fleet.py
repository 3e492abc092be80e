"""The screens Fleet and System at a real hub, what a URL holds, and what a browser lets the page do."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from playwright.async_api import expect
from pmtiles.tile import TileType

from tests.support.own_map import png_tile, shapes_tile, write_map
from tests.support.pins import ROOT
from tests.support.waiting import until

from .axe import violations
from .looking import looking
from .park import HTML, HTML_NODE, MINE, ODD, THEIRS, Park

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.nats, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

BYTES_MAX = 250_000
PHONE = {"width": 390, "height": 844}


def row(page: Page, device: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=device))


def tally(page: Page, words: str) -> Any:
    counts = page.get_by_role("group", name="Counts")
    each = counts.locator("button, p").filter(has_text=re.compile(rf"^[\d,]+{words}$"))
    return each.locator("strong")


async def test_a_link_that_is_cut_is_seen_and_so_is_what_comes_live(
    parked: Park, chromium: Browser
) -> None:
    async with looking(chromium) as one:
        await one.log_in(parked, "olga")
        await expect(row(one.page, MINE)).to_contain_text("up")
        await expect(row(one.page, MINE)).to_contain_text("80.5\u202f%")
        await expect(tally(one.page, "devices")).to_have_text("3")
        await expect(tally(one.page, "connected")).to_have_text("3")
        await parked.say(MINE, battery_soc=41.25)
        await expect(row(one.page, MINE)).to_contain_text("41.25")
        await parked.links[MINE].cut()
        await expect(row(one.page, MINE)).to_contain_text("down")
        await expect(row(one.page, MINE)).to_contain_text("link-down")
        await expect(tally(one.page, "not connected")).to_have_text("1")
        await one.page.get_by_role("button", name="not connected").click()
        await expect(row(one.page, THEIRS)).to_have_count(0)
        assert "f.show=down" in one.page.url, "the whole state of the screen is in its URL"
        async with looking(chromium) as other:
            await other.log_in(parked, "olga", one.page.url.partition("#")[2])
            await expect(row(other.page, MINE)).to_be_visible()
            await expect(row(other.page, THEIRS)).to_have_count(0)
            # What mends it stands on the screen System.
            await other.page.get_by_role("link", name="System").click()
            conditions = other.page.get_by_role("region", name="Conditions")
            await expect(conditions).to_contain_text("link-down")
            await expect(conditions.get_by_role("link", name=MINE)).to_be_visible()
        await parked.links[MINE].heal()
        await expect(tally(one.page, "not connected")).to_have_text("0")
        assert one.errors == []


async def test_hours_are_there_by_keyboard(parked: Park, chromium: Browser) -> None:
    async with looking(chromium) as one:
        await one.log_in(parked, "olga")
        grid = one.page.get_by_role("grid", name="Hours of each device")
        await grid.focus()
        await one.page.keyboard.press("Control+End")
        await expect(grid.get_by_role("gridcell").last).to_contain_text(f"{ODD}, ")
        # The hour is open still.
        await expect(grid.get_by_role("gridcell").last).to_contain_text("not known")
        await one.page.keyboard.press("Enter")
        # Then the page adds the series that it chooses.
        await until(lambda: f"#/device/{ODD}" in one.page.url)


async def test_filters_find_by_group_and_text(parked: Park, chromium: Browser) -> None:
    async with looking(chromium) as one:
        await one.log_in(parked, "olga")
        await one.page.get_by_label("Group").select_option("depot")
        await expect(row(one.page, MINE)).to_have_count(0)
        await expect(row(one.page, THEIRS)).to_be_visible()
        await one.page.get_by_label("Group").select_option("")
        await one.page.get_by_label("Search").fill("vid-003 plant")
        await expect(row(one.page, ODD)).to_be_visible()
        await expect(row(one.page, MINE)).to_have_count(0)
        await one.page.get_by_label("Search").fill("nothing")
        await expect(one.page.get_by_text("No device matches this filter.").first).to_be_visible()


async def test_all_charts_have_one_time_range_and_the_url_holds_it(
    parked: Park, chromium: Browser
) -> None:
    route = f"#/device/{MINE}?series=battery.soc&series=gps.lat&range=last:3600"
    async with looking(chromium) as one, looking(chromium) as other:
        await one.log_in(parked, "olga", route)

        async def spans(page: Page) -> set[tuple[str, str]]:
            charts = page.locator(".chart [role=slider]")
            await expect(charts).to_have_count(2)
            found = await charts.evaluate_all(
                "all => all.map(e => [e.ariaValueMin, e.ariaValueMax])"
            )
            return {(start, end) for start, end in found}

        await one.page.get_by_role("slider", name="gps.lat, cursor").focus()
        await one.page.keyboard.press("Home")
        await one.page.keyboard.press("+")
        await until(lambda: "range=last" not in one.page.url, "it is a range of its own")

        async def half() -> bool:
            found = await spans(one.page)
            lengths = [round(int(end) - int(start), -1) for start, end in found]
            return lengths == [1800]  # the same of both

        await until(half, "the charts have it")
        [span] = await spans(one.page)
        await other.log_in(parked, "olga", f"#{one.page.url.partition('#')[2]}")
        assert await spans(other.page) == {span}


async def test_names_and_values_made_of_html_are_text(parked: Park, chromium: Browser) -> None:
    async with looking(chromium) as one:
        await one.log_in(parked, "olga")
        known = one.page.get_by_label("Show another series")
        await known.focus()
        option = one.page.locator("datalist option[value*='onerror']")
        await expect(option).to_have_count(1)
        await known.fill(await option.get_attribute("value") or "")
        await expect(row(one.page, ODD)).to_contain_text("window.hurt=1</script>")
        assert HTML_NODE != HTML
        assert await one.page.evaluate("window.hurt") is None
        assert await one.page.locator("img[src=x]").count() == 0
        assert one.errors == []


async def test_who_sees_a_part_is_not_offered_the_hub(parked: Park, chromium: Browser) -> None:
    async with looking(chromium) as one:
        await one.log_in(parked, "anna", "#/system")
        await expect(one.page.get_by_text("for people who see all of the fleet")).to_be_visible()
        await expect(one.page.get_by_role("link", name="System")).to_have_count(0)


async def test_the_page_asks_nobody_but_its_hub_and_may_run_nothing_of_others(
    parked: Park, chromium: Browser
) -> None:
    hub = parked.hub
    own, socket = (f"127.0.0.1:{port}" for port in (hub.page_port, hub.websocket_port))
    async with looking(chromium) as one:
        answer = await one.page.goto(hub.url)
        assert answer is not None
        said = answer.headers
        policy = dict(each.split(" ", 1) for each in said["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["connect-src"] == f"'self' ws://{socket}"
        assert said["x-content-type-options"] == "nosniff"
        await one.log_in(parked, "olga")
        await expect(one.page.locator(".map canvas").first).to_be_visible()
        await one.page.get_by_role("link", name="System").click()
        await expect(one.page.get_by_role("cell", name="UP_00", exact=True).first).to_be_visible()
        assert one.hosts == {own, socket}
        assert one.errors == []
        await one.page.evaluate(
            """() => {
              const script = document.createElement("script")
              try { script.textContent = "window.hurt = 1" } catch {}
              document.body.append(script)
            }"""
        )
        refused = await one.page.evaluate(
            "fetch('http://localhost:1/').then(() => 'asked', error => String(error))"
        )
        assert "Failed to fetch" in refused
        await until(lambda: any("connect-src" in error for error in one.errors))
        assert await one.page.evaluate("window.hurt") is None


async def test_the_server_lets_in_no_browser_that_comes_from_another_page(parked: Park) -> None:
    url = f"ws://127.0.0.1:{parked.hub.websocket_port}/"
    own = parked.hub.url
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url, origin=own) as socket:
            assert (await socket.receive_bytes()).startswith(b"INFO")
        for foreign in ("http://evil.example", own.replace("http", "https"), f"{own}0"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(url, origin=foreign)
            assert refused.value.status == 403, foreign
        for foreign in ("http://evil.example", ""):
            answer = await session.post(
                f"{own}/login",
                data=json.dumps({"token": "x" * 43, "public_key": "x" * 43}),
                headers={"Origin": foreign, "Content-Type": "application/json"},
            )
            assert answer.status == 403


async def test_the_whole_page_is_small(parked: Park, chromium: Browser) -> None:
    async with looking(chromium) as one:
        await one.log_in(parked, "olga")
        await expect(one.page.locator(".map canvas").first).to_be_visible()
        took = await one.page.evaluate(
            "performance.getEntriesByType('resource').filter(each => /\\.(js|css)$/.test(each.name))"
            ".reduce((sum, each) => sum + each.encodedBodySize, 0)"
        )
    built = json.loads((ROOT / "hub/backhaul_hub/page/files/built.json").read_text())
    assert 10_000 < took < BYTES_MAX
    assert built["gzip_bytes"] < BYTES_MAX


COLOURS = """kind => {
  const found = new Set()
  for (const tile of document.querySelectorAll(`.map .leaflet-tiles-pane ${kind}.leaflet-tile`)) {
    if (tile.width === 0 || tile.naturalWidth === 0) continue
    const picture = document.createElement("canvas")
    picture.width = picture.height = 8
    const pen = picture.getContext("2d", { willReadFrequently: true })
    pen.imageSmoothingEnabled = false
    pen.drawImage(tile, 0, 0, 8, 8)
    const bytes = pen.getImageData(0, 0, 8, 8).data
    for (let at = 0; at < bytes.length; at += 4) found.add(bytes.slice(at, at + 3).join())
  }
  return [...found]
}"""


async def test_an_operators_own_map_lies_over_the_outlines_or_the_page_says_what_is_wrong_with_it(
    parked: Park, chromium: Browser
) -> None:
    async with looking(chromium) as one:
        page = one.page
        parts: list[str] = []
        page.on("request", lambda each: parts.append(each.headers.get("range", "")))
        await one.log_in(parked, "olga")
        source = page.locator(".map .source")
        await expect(source).to_have_text("Survey of Nowhere · Outlines: Natural Earth")

        async def both() -> bool:
            return len(await page.evaluate(COLOURS, "canvas")) > 1

        await until(both, "land and water are drawn")
        assert any(each.startswith("bytes=") for each in parts), "parts of the file were asked for"
        before = await page.evaluate(COLOURS, "canvas")
        await page.get_by_text("Dark", exact=True).click()

        async def dark() -> bool:
            now = await page.evaluate(COLOURS, "canvas")
            return len(now) > 1 and not set(now) & set(before)

        await until(dark, "the map is as dark as the page")
        assert one.errors == []

        write_map(parked.hub.map, png_tile(200, 30, 60), TileType.PNG)
        await page.reload()

        async def pictured() -> bool:
            return bool(await page.evaluate(COLOURS, "img") == ["200,30,60"])

        await until(pictured, "a picture is shown")
        assert one.errors == []

        whole = parked.hub.map.read_bytes()
        wrong = {
            b"<html>nothing</html>": "town.pmtiles is no PMTiles file",
            whole[:-10]: f"town.pmtiles has {len(whole) - 10:,} of its {len(whole):,} bytes",
            whole[:7] + b"\x02" + whole[8:]: "PMTiles of version 2",
            whole[:100] + b"\0" * (len(whole) - 100): "cannot be shown",
        }
        for content, words in wrong.items():
            parked.hub.map.write_bytes(content)
            await page.reload()
            await expect(page.locator(".map .notice")).to_contain_text(words)
            await expect(source).to_have_text("Outlines: Natural Earth")
            await expect(page.locator(".map canvas").first).to_be_visible()
        parked.hub.map.unlink()
        await page.reload()
        await expect(page.locator(".map .notice")).to_contain_text("No such file")
        write_map(parked.hub.map, shapes_tile())
        own = (parked.hub.page_port, parked.hub.websocket_port)
        # A picture's address is within the page, without a host.
        assert one.hosts == {"", *(f"127.0.0.1:{port}" for port in own)}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_serious_violation(parked: Park, chromium: Browser, scheme: str) -> None:
    async with looking(
        chromium, color_scheme=scheme, viewport=PHONE if scheme == "dark" else None
    ) as one:
        await one.page.goto(parked.hub.url)
        await expect(one.page.get_by_label("credentials file")).to_be_visible()
        assert await violations(one.page) == []
        await one.log_in(parked, "olga")
        await expect(row(one.page, MINE)).to_be_visible()
        assert await violations(one.page) == []
        await one.page.get_by_role("link", name="System").click()
        await expect(one.page.get_by_role("cell", name="UP_00", exact=True).first).to_be_visible()
        assert await violations(one.page) == []
