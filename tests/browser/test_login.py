"""Logging in to the page: by a link, once; by a file; and what ends it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import new_login
from backhaul_hub.people.identity import May, Person
from backhaul_runtime.clock import SystemClock
from tests.support.waiting import until

from .by_hand import BY_HAND, KEPT
from .looking import looking
from .park import MINE, ODD, THEIRS, Park

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser

pytestmark = [pytest.mark.nats, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

FLOOD = 300


async def test_a_link_logs_a_browser_in_once_and_a_reload_keeps_it(
    parked: Park, chromium: Browser
) -> None:
    link = await parked.link("olga")
    async with looking(chromium) as one, looking(chromium) as other:
        await one.page.goto(link)
        await expect(one.page.get_by_role("link", name=MINE)).to_be_visible()
        assert "login" not in one.page.url, "neither history nor bookmarks hold the token"
        await other.page.goto(link)
        await expect(other.page.get_by_role("alert")).to_contain_text("was used already")
        await one.page.reload()
        await expect(one.page.get_by_role("link", name=THEIRS)).to_be_visible()
        assert one.errors == []
        await one.page.get_by_role("button", name="Log out").click()
        await expect(one.page.get_by_label("credentials file")).to_be_visible()
        await one.page.reload()
        await expect(one.page.get_by_label("credentials file")).to_be_visible()
        assert await one.page.evaluate(KEPT) is None


async def test_nobody_reads_the_key_that_the_browser_has_made(
    parked: Park, chromium: Browser
) -> None:
    async with looking(chromium) as one:
        await one.log_in(parked, "olga")
        found = await one.page.evaluate(
            f"""async () => {{
              const {{ key }} = await ({KEPT})()
              const read = []
              for (const form of ["raw", "pkcs8", "jwk"])
                await crypto.subtle.exportKey(form, key).then(() => read.push(form), () => {{}})
              return [key.type, key.extractable, read, /eyJ|SU[A-Z0-9]/.test(JSON.stringify(localStorage))]
            }}"""
        )
        assert found == ["private", False, [], False]


async def test_an_old_link_is_refused(parked: Park, chromium: Browser) -> None:
    link = await parked.link("olga", "--for", "1s")
    async with looking(chromium) as one:

        async def expired() -> bool:
            # Wrong tokens are told apart from old ones: this one was used by nobody.
            await one.page.goto("about:blank")
            await one.page.goto(link)
            alert = one.page.get_by_role("alert").or_(one.page.locator(".link-state.up"))
            await expect(alert.first).to_be_visible()
            return "has expired" in await alert.first.inner_text()

        clock = SystemClock()
        made_s = clock.monotonic_s()
        await until(lambda: clock.monotonic_s() > made_s + 1.5)
        assert await expired()


async def test_a_credentials_file_stays_in_memory_and_its_end_is_told(
    parked: Park, chromium: Browser, tmp_path: Path
) -> None:
    keys, now_s = read_keys(parked.hub.directory), SystemClock().now_ns() // 10**9
    berta = Person("berta", "plant-7", May.READ)
    login = new_login(
        keys, "berta", "PEOPLE", now_s=now_s, rights=berta.rights, expires_s=now_s + 8
    )
    file = tmp_path / "berta.creds"
    file.write_text(login.text())
    async with looking(chromium) as one:
        await one.page.goto(parked.hub.url)
        await one.page.get_by_label("credentials file").set_input_files(file)
        await expect(one.page.locator(".who")).to_contain_text("berta")
        assert await one.page.evaluate(KEPT) is None
        assert "eyJ" not in await one.page.evaluate(
            "JSON.stringify([localStorage, sessionStorage])"
        )
        await expect(one.page.get_by_role("alert")).to_contain_text("this login has ended")


async def test_who_is_removed_is_logged_out_at_once_for_ever(
    parked: Park, chromium: Browser
) -> None:
    await parked.add_person("emil", "plant-7", "read")
    unused = await parked.link("emil")
    async with looking(chromium) as one:
        await one.log_in(parked, "emil")
        await expect(one.page.get_by_role("link", name=MINE)).to_be_visible()
        await parked.operator("user", "rm", "emil")
        await expect(one.page.get_by_role("alert")).to_contain_text("the hub has ended this login")
        assert await one.page.get_by_text(MINE).count() == 0
        await one.page.reload()
        await expect(one.page.get_by_label("credentials file")).to_be_visible()
        await one.page.goto(unused)
        await expect(one.page.get_by_role("alert")).to_contain_text("this link is none")


async def test_who_may_see_one_group_sees_nothing_of_another_by_hand_neither(
    parked: Park, chromium: Browser
) -> None:
    async with looking(chromium) as one:
        await one.log_in(parked, "anna")
        await expect(one.page.get_by_role("link", name=ODD)).to_be_visible()
        assert await one.page.get_by_text(THEIRS).count() == 0
        assert await one.page.get_by_text("depot").count() == 0
        body = '{"device":"VID-002"}'
        size = len(body)
        refused = (
            "SUB up.depot.> 1",
            "SUB up.fleet.> 2",
            "SUB ask.> 3",
            "SUB inbox.dora.> 4",
            f"PUB ask.write.depot.anna.get inbox.anna.x {size}|{body}",
            f"PUB ask.command.plant-7.anna.command inbox.anna.x {size}|{body}",
            f"PUB ask.read.fleet.page.login inbox.anna.x {size}|{body}",
            f"PUB hub.get inbox.anna.x {size}|{body}",
        )
        said = await one.page.evaluate(BY_HAND, list(refused))
        for line, answer in zip(refused, said.split("\n> ")[1:], strict=True):
            assert "Permissions Violation" in answer, (line, answer)
        asked = (
            "SUB inbox.anna.> 9",
            *(
                f"PUB ask.write.plant-7.anna.{service} inbox.anna.{service}? {size}|{body}"
                for service in ("get", "state", "events", "series", "shadow")
            ),
        )
        said = await one.page.evaluate(BY_HAND, list(asked))
        assert "Permissions Violation" not in said
        assert "VID-002" not in said.replace(body, "").replace("VID-002 is not below it", "")
        # It is said by the login alone that Anna may not command: nothing on the page offers it.
        await expect(one.page.locator(".who")).to_contain_text("anna")


async def test_a_flood_from_one_browser_takes_nothing_from_another(
    parked: Park, chromium: Browser
) -> None:
    async with looking(chromium) as one, looking(chromium) as other:
        await one.log_in(parked, "anna")
        await other.log_in(parked, "olga")
        await expect(other.page.get_by_role("link", name=THEIRS)).to_be_visible()
        body = json.dumps(
            {"device": MINE}
        )  # each has the control plane ask the server several times
        asked = "PUB ask.write.plant-7.anna.shadow inbox.anna."
        flood = "\r\n".join(f"{asked}{number} {len(body)}\r\n{body}" for number in range(FLOOD))
        flooding = asyncio.create_task(
            one.page.evaluate(
                BY_HAND,
                ["SUB inbox.anna.> 9", *[flood] * 3, f"{asked}last? {len(body)}|{body}"],
            )
        )
        await parked.say(MINE, battery_soc=12.75)
        row = other.page.get_by_role("row").filter(has=other.page.get_by_role("link", name=MINE))
        await expect(row).to_contain_text("12.75")
        await other.page.get_by_role("link", name="System").click()
        await expect(other.page.get_by_role("cell", name="UP_00", exact=True).first).to_be_visible()
        said = await flooding
        assert said.count("questions of anna are being answered already") > FLOOD, (
            "no more than a few at once"
        )
        assert other.errors == []
        # Who has flooded goes on as well, and is no longer refused.
        await one.page.reload()
        await expect(one.page.get_by_role("link", name=MINE)).to_be_visible()
        await expect(one.page.get_by_role("alert")).to_have_count(0)
