"""`backhaul-hub` whose control plane is told which of a leaf server's many links is whose.

A server has one name, by which a hub that has just started knows the links that are there. Here one stands for many, so
a link is known by what it listens to. What the hub's server is asked for beside: once the subscriptions of its leafs, after a link
came that no event has told.
"""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

from backhaul_hub.cli.main import main
from backhaul_hub.control.fleet import Devices
from backhaul_hub.links import leaf_connections
from backhaul_hub.nats.system_requests import ask_all
from tests.support.leafs.farm import NAME

_OWN = re.compile(r"\$JS\.([A-Z]+-[0-9]+)\.API\.")
_named: dict[tuple[str, int], str] = {}


async def _ask_all(
    system: Any, verb: str, servers: int, options: Any = None, *, last_s: float | None = None
) -> list[dict[str, Any]]:
    answers = await ask_all(system, verb, servers, options, last_s=last_s)
    if any(_unnamed(answers)):
        listed = {**(options or {}), "subscriptions": True}
        for answer in await ask_all(system, verb, servers, listed, last_s=last_s):
            for leaf in answer["data"].get("leafs") or []:
                if name := _owner(leaf):
                    _named[answer["server"]["id"], leaf["id"]] = name
    for answer in answers:
        leafs = answer["data"].get("leafs") or []
        for leaf in leafs:
            leaf["name"] = _named.get((answer["server"]["id"], leaf["id"]), leaf["name"])
        # Who has not yet said what it listens to is named at the next look.
        answer["data"]["leafs"] = [leaf for leaf in leafs if not leaf["name"].startswith(NAME)]
    return answers


def _unnamed(answers: list[dict[str, Any]]) -> Any:
    for answer in answers:
        for leaf in answer["data"].get("leafs") or []:
            known = (answer["server"]["id"], leaf["id"]) in _named
            yield leaf["name"].startswith(NAME) and not known


def _owner(leaf: dict[str, Any]) -> str | None:
    found = (_OWN.match(each) for each in leaf.get("subscriptions_list") or [])
    return next((each[1] for each in found if each), None)


def _of_leaf(devices: Devices, leaf: str) -> str | None:
    return leaf if devices.one(leaf) else None


if __name__ == "__main__":
    with (
        patch.object(leaf_connections, "ask_all", _ask_all),
        patch.object(Devices, "of_leaf", _of_leaf),
    ):
        main()
