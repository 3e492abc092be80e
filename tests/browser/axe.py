"""The accessibility rules of axe, on what a window shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.pins import ROOT

if TYPE_CHECKING:
    from playwright.async_api import Page

AXE = ROOT / "hub/page/node_modules/axe-core/axe.min.js"


async def violations(page: Page) -> list[str]:
    """Return what axe finds serious or critical, with where."""
    if not await page.evaluate("typeof axe !== 'undefined'"):
        await page.evaluate(AXE.read_text())
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
