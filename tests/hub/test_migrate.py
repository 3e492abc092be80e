"""A hub's streams mirrored at another server while it works, switched, cut short, taken back.

Real servers, joined by the real bridge. Not covered here: control plane and vehicles, which are in
tests/integration/test_migrate.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_hub.errors import BackupError, HubError
from backhaul_hub.migrate import mirrors
from backhaul_hub.migrate.bridge import render_bridge
from backhaul_hub.migrate.mirrors import can_be_mirrored, mirror_of, until_it_answers

if TYPE_CHECKING:
    from backhaul_hub.nats.jetstream import JetStreamApi


def test_all_servers_of_a_cluster_are_dialled() -> None:
    text = render_bridge(
        "nats://a:1,nats://b:2", "tls://c:3", '/a "b"/control.creds', "/tmp/up.creds", "secret"
    )
    assert 'urls: ["nats://a:1", "nats://b:2"], account: OLD_UP' in text
    assert 'urls: ["tls://c:3"], account: NEW_HUB' in text
    assert text.count(r'credentials: "/a \"b\"/control.creds"') == 2
    assert "tls {" not in text
    text = render_bridge("tls://a:1", "tls://c:3", "creds", "up", "secret", "/hub/tls/ca.pem")
    assert text.count('tls { ca_file: "/hub/tls/ca.pem" }') == 4


def test_what_no_mirror_can_be_of_is_known_before() -> None:
    plain = {"name": "A", "retention": "limits", "subjects": ["a"], "deny_delete": True}
    assert can_be_mirrored(plain)
    assert not can_be_mirrored(plain | {"retention": "workqueue"})
    assert not can_be_mirrored(plain | {"mirror": {"name": "B"}})
    mirror = mirror_of(plain, "secret")
    assert mirror["mirror"]["name"] == "A"
    assert mirror.keys().isdisjoint({"subjects", "sources", "deny_delete"})


class WithoutLeader:
    """Answers no question before so many were asked, as servers of a cluster do that have just started."""

    def __init__(self, unheard: int) -> None:
        self.unheard = unheard

    async def request(self, verb: str, *_: object, **words: Any) -> dict[str, Any]:
        assert words["timeout_s"] <= 2, f"{verb}: a question that is lost is asked again soon"
        self.unheard -= 1
        if self.unheard >= 0:
            raise HubError("no answer in 2 s")
        return {"streams": None, "total": 0}


async def test_a_cluster_that_has_just_started_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirrors, "_ASKED_S", 0.1)
    api = WithoutLeader(3)
    await until_it_answers(cast("JetStreamApi", api), "nats://b:4222")
    assert api.unheard < 0
    monkeypatch.setattr(mirrors, "_LEADER_S_MAX", 0.2)
    with pytest.raises(BackupError, match="nats://b:4222 does not answer: no answer in 2 s"):
        await until_it_answers(cast("JetStreamApi", WithoutLeader(1000)), "nats://b:4222")
