"""With real servers: why there is no link: what another server of the vehicle's is told, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.enrol import link_probe
from backhaul_agent.enrol.link_probe import why_no_link
from tests.agent.probed_files import NOW_S, files
from tests.support.nats_server import NatsServer
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


async def test_nobody_there_a_login_that_is_refused_and_one_that_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    found = files(f"nats-leaf://127.0.0.1:{port}")
    for limit in ("TRY_S_MAX", "SETTLED_S"):  # a complaint ends it at once, however late it comes
        monkeypatch.setattr(link_probe, limit, 120.0)
    said = await why_no_link(found, NOW_S)
    assert re.search("no link to the hub: .*refused", said), said

    listen = f'listen: "127.0.0.1:{port}"'
    strict = NatsServer(
        tmp_path / "strict",
        extra=f"leafnodes {{ {listen}, authorization {{ user: a, password: b }} }}",
    )
    strict.start()
    try:
        assert "does not let the key" in await why_no_link(found, NOW_S)
    finally:
        strict.stop()

    monkeypatch.setattr(link_probe, "SETTLED_S", 0.5)
    lenient = NatsServer(tmp_path / "lenient", extra=f"leafnodes {{ {listen} }}")
    lenient.start()
    try:
        assert await why_no_link(found, NOW_S) == ""
    finally:
        lenient.stop()
