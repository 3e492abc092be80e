"""A hub's streams mirrored at another server while it works, switched, cut short, taken back.

Real servers, joined by the real bridge. Not covered here: control plane and vehicles, which are in
tests/integration/test_migrate.py.
"""

from __future__ import annotations

from backhaul_hub.migrate.bridge import render_bridge
from backhaul_hub.migrate.mirrors import can_be_mirrored, mirror_of


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
