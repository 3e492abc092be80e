"""The hub's tree over all devices: addresses, changes, and who is above whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from backhaul_codec.state.tree_text import describe, render
from backhaul_hub.device import FLEET
from backhaul_hub.errors import WriteRefusedError
from backhaul_hub.sync.tree import FleetTree
from tests.support.hub_sync import Link, Vehicle
from tests.support.tree_hub import TreeHub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backhaul_codec import Value
    from backhaul_hub.sync.tree_writes import TreeWrite

DEVICES = ("VID-001", "VID-002")


class Fleet(TreeHub):
    """A hub whose tree is changed, with two vehicles."""

    def __init__(self) -> None:
        super().__init__(DEVICES)
        self.vehicles = {device: Vehicle(self.clock, device) for device in DEVICES}
        self.links = {device: Link(self.hub, self.vehicles[device]) for device in DEVICES}

    def do(self, change: TreeWrite) -> None:
        super().do(change)
        self.hub.publish()

    def above(self, address: str) -> set[str]:
        return self.tree.ancestors(address)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    some = Fleet()
    yield some
    some.hub.db.close()


def refused(change: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(WriteRefusedError) as caught:
        change(*arguments, **options)
    return str(caught.value)


def test_every_device_hangs_under_the_root_and_every_node_under_its_device(fleet: Fleet) -> None:
    fleet.vehicles["VID-001"].put("battery", "limit", 1.0)
    fleet.links["VID-001"].up()
    assert fleet.tree.children(FLEET) == ["VID-001", "VID-002"]
    assert fleet.tree.children("VID-001") == ["VID-001/battery"]
    assert fleet.above("VID-001/battery") == {"VID-001", FLEET}
    assert fleet.above("VID-001/never-heard-of") == {"VID-001", FLEET}
    assert fleet.above(FLEET) == set()


def test_a_group_above_groups_above_devices(fleet: Fleet) -> None:
    fleet.do(fleet.writes.create("europe"))
    fleet.do(fleet.writes.create("berlin", "depot", "europe"))
    fleet.do(fleet.writes.move("VID-001", "berlin"))
    assert fleet.above("VID-001/battery") == {"VID-001", "berlin", "europe", FLEET}
    assert fleet.tree.children(FLEET) == ["VID-002", "europe"]
    fleet.hub.crash()
    assert fleet.above("VID-001/battery") == {"VID-001", "berlin", "europe", FLEET}
    assert fleet.hub.down == {}  # groups are no business of vehicles


def test_a_device_moves_between_groups_and_may_be_in_several(fleet: Fleet) -> None:
    for group in ("a", "b", "c"):
        fleet.do(fleet.writes.create(group))
    fleet.do(fleet.writes.move("VID-001", "a"))
    fleet.do(fleet.writes.move("VID-001", "b"))
    assert fleet.above("VID-001") == {"b", FLEET}
    fleet.do(fleet.writes.mirror("VID-001", "c"))
    assert fleet.above("VID-001") == {"b", "c", FLEET}
    assert "--from" in refused(fleet.writes.move, "VID-001", "a")
    fleet.do(fleet.writes.move("VID-001", "a", "c"))
    assert fleet.above("VID-001") == {"a", "b", FLEET}
    fleet.do(fleet.writes.delete("VID-001"))
    assert fleet.tree.parents("VID-001") == [FLEET]
    fleet.do(fleet.writes.undelete("VID-001"))
    assert fleet.above("VID-001") == {"a", "b", FLEET}
    fleet.do(fleet.writes.delete("VID-001", "a"))
    assert fleet.above("VID-001") == {"b", FLEET}


def test_a_deleted_group_hides_no_device(fleet: Fleet) -> None:
    fleet.do(fleet.writes.create("a"))
    fleet.do(fleet.writes.create("b", under="a"))
    fleet.do(fleet.writes.move("VID-001", "b"))
    fleet.do(fleet.writes.delete("a"))
    assert not fleet.tree.exists("a")
    assert "VID-001" in fleet.tree.children(FLEET)
    assert fleet.above("VID-001") == {"a", "b", FLEET}  # its edges live, it hangs nowhere
    assert fleet.tree.parents("a") == []
    fleet.do(fleet.writes.undelete("a"))
    assert fleet.above("VID-001") == {"a", "b", FLEET}


def test_a_cycle_is_refused_with_the_path_that_would_close(fleet: Fleet) -> None:
    fleet.do(fleet.writes.create("a"))
    fleet.do(fleet.writes.create("b", under="a"))
    fleet.do(fleet.writes.create("c", under="b"))
    assert "c > a > b > c" in refused(fleet.writes.move, "a", "c")
    assert "a > a" in refused(fleet.writes.mirror, "a", "a")
    device = fleet.vehicles["VID-001"]
    device.put("cell", "nodeType", "cell", parent="battery")
    fleet.links["VID-001"].up()
    why = refused(fleet.writes.mirror, "VID-001/battery", "VID-001/cell")
    assert "VID-001/cell > VID-001/battery > VID-001/cell" in why


def test_a_node_of_a_device_is_made_at_the_hub_with_its_first_points(fleet: Fleet) -> None:
    first: list[tuple[str, str, Value]] = [("limit", "", 80.0), ("name", "de", "Hilfsbatterie")]
    fleet.do(fleet.writes.create("VID-001/aux", "battery", first=first))
    assert list(fleet.hub.down) == ["in.VID-001.p.VID-001.aux"]
    fleet.links["VID-001"].down()
    heads = fleet.vehicles["VID-001"].heads
    assert {key.type for key in heads.of_node("aux")} == {"nodeType", "limit", "name"}
    assert heads.root() == fleet.hub.core.heads.of("VID-001").heads.root()
    assert fleet.tree.node_type("VID-001", "VID-001/aux") == "battery"


def test_nodes_of_a_device_move_mirror_and_go_at_the_vehicle_too(fleet: Fleet) -> None:
    vehicle = fleet.vehicles["VID-001"]
    for node in ("chassis", "battery", "trailer"):
        vehicle.put(node, "limit", 1.0)
    fleet.links["VID-001"].up()
    fleet.do(fleet.writes.move("VID-001/battery", "VID-001/chassis"))
    assert fleet.above("VID-001/battery") == {"VID-001/chassis", "VID-001", FLEET}
    fleet.do(fleet.writes.mirror("VID-001/battery", "VID-001"))
    assert fleet.tree.parents("VID-001/battery") == ["VID-001", "VID-001/chassis"]
    fleet.do(fleet.writes.mirror("VID-001/chassis", "VID-001/trailer"))
    # What hung there without an edge stays there.
    assert fleet.tree.parents("VID-001/chassis") == ["VID-001", "VID-001/trailer"]
    fleet.do(fleet.writes.delete("VID-001/battery"))
    assert fleet.above("VID-001/battery") == set()
    fleet.do(fleet.writes.undelete("VID-001/battery"))
    assert fleet.tree.parents("VID-001/battery") == ["VID-001", "VID-001/chassis"]
    fleet.do(fleet.writes.delete("VID-001/trailer"))  # it hung there without an edge
    assert not fleet.tree.exists("VID-001/trailer")
    fleet.links["VID-001"].down()
    assert vehicle.heads.root() == fleet.hub.core.heads.of("VID-001").heads.root()


@pytest.mark.parametrize(
    ("change", "arguments", "why"),
    [
        ("create", ("a",), "is there already"),
        ("create", ("VID-001",), "is there already"),
        ("create", (FLEET,), "is there already"),
        ("create", ("no id",), "is no id of a group"),
        ("create", ("VID-009/battery",), "there is no VID-009"),
        ("create", ("VID-001/",), "names no node"),
        ("create", ("b", None, "nowhere"), "there is no nowhere"),
        ("create", ("b", None, "VID-001"), "edges stay inside"),
        ("create", ("gone",), "was deleted"),
        ("mirror", ("VID-001", "VID-002"), "edges stay inside"),
        ("mirror", ("VID-001/battery", "VID-002"), "edges stay inside"),
        ("mirror", ("VID-001/battery", "VID-002/battery"), "edges stay inside"),
        ("mirror", ("VID-001/battery", "a"), "edges stay inside"),
        ("mirror", ("VID-001/battery", "VID-001"), "hangs under VID-001 already"),
        ("mirror", ("nowhere", "a"), "there is no nowhere"),
        ("move", ("a", FLEET), "hangs under fleet already"),
        ("move", ("a", "b"), "there is no b"),
        ("move", ("VID-001", "a", "VID-002"), "does not hang under"),
        ("delete", ("VID-001",), "hangs under no group"),
        ("delete", (FLEET,), "root above all"),
        ("delete", ("gone",), "there is no gone"),
        ("delete", ("a", "VID-001"), "does not hang under"),
        ("undelete", ("a",), "is not deleted"),
        ("undelete", ("gone", "a"), "is not deleted under a"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    fleet: Fleet, change: str, arguments: tuple[Any, ...], why: str
) -> None:
    fleet.vehicles["VID-001"].put("battery", "limit", 1.0)
    fleet.vehicles["VID-002"].put("battery", "limit", 1.0)
    for link in fleet.links.values():
        link.up()
    fleet.do(fleet.writes.create("a"))
    fleet.do(fleet.writes.create("gone"))
    fleet.do(fleet.writes.delete("gone"))
    before = describe(fleet.tree)  # type: ignore[arg-type]
    assert why in refused(getattr(fleet.writes, change), *arguments)
    assert describe(fleet.tree) == before  # type: ignore[arg-type]


def test_the_drawing_shows_all_of_it(fleet: Fleet) -> None:
    fleet.do(fleet.writes.create("berlin", "depot"))
    fleet.do(fleet.writes.move("VID-001", "berlin"))
    fleet.do(fleet.writes.create("VID-001/battery", "battery"))
    fleet.do(fleet.writes.create("old"))
    fleet.do(fleet.writes.delete("old"))
    assert render(fleet.tree) == [  # type: ignore[arg-type]
        "fleet",
        "├─ VID-002",
        "└─ berlin (depot)",
        "   └─ VID-001 (device)",
        "      └─ VID-001/battery (battery)",
        "deleted: old",
    ]


def test_two_legal_moves_that_close_a_cycle_are_reported(fleet: Fleet) -> None:
    vehicle, link = fleet.vehicles["VID-001"], fleet.links["VID-001"]
    for node in ("a", "b"):
        vehicle.put(node, "nodeType", "", parent="VID-001")
    link.up()
    fleet.clock.ns += 1
    vehicle.put("b", "nodeType", "", parent="a")
    fleet.do(fleet.writes.mirror("VID-001/a", "VID-001/b"))
    link.settle()
    assert [tuple(edge) for edge in fleet.tree.left_out] == [("VID-001/b", "VID-001/a")]
    assert "would close" in render(fleet.tree)[-1]  # type: ignore[arg-type]


class Caches(RuleBasedStateMachine):
    """Whatever is changed in whichever order, the cached ancestors are those of a fresh tree."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()

    addresses = st.sampled_from(["a", "b", "c", *DEVICES, "VID-001/x", "VID-001/y", "VID-001/z"])

    @rule(address=addresses, under=st.one_of(st.none(), addresses))
    def create(self, address: str, under: str | None) -> None:
        self._try("create", address, None, under)

    @rule(address=addresses, under=addresses)
    def mirror(self, address: str, under: str) -> None:
        self._try("mirror", address, under)

    @rule(address=addresses, to=addresses)
    def move(self, address: str, to: str) -> None:
        self._try("move", address, to)

    @rule(address=addresses, under=st.one_of(st.none(), addresses))
    def delete(self, address: str, under: str | None) -> None:
        self._try("delete", address, under)

    @rule(address=addresses)
    def undelete(self, address: str) -> None:
        self._try("undelete", address)

    @rule(parent=st.sampled_from("xyz"), node=st.sampled_from("xyz"), tombstone=st.integers(0, 3))
    def vehicle_writes(self, parent: str, node: str, tombstone: int) -> None:
        vehicle = self.fleet.vehicles["VID-001"]
        vehicle.put(node, "nodeType", "", parent=parent, tombstone=tombstone)
        self.fleet.links["VID-001"].up()

    @invariant()
    def cached_is_fresh(self) -> None:
        core = self.fleet.hub.core
        fresh = FleetTree(core.heads, lambda: DEVICES)
        for device, node in ((FLEET, "a"), ("VID-001", "VID-001"), ("VID-001", "x"), (FLEET, "c")):
            assert core.tree.ancestor_tokens(device, node) == fresh.ancestor_tokens(device, node)
        assert describe(core.tree) == describe(fresh)  # type: ignore[arg-type]

    def _try(self, change: str, *arguments: Any) -> None:
        try:
            planned = getattr(self.fleet.writes, change)(*arguments)
        except WriteRefusedError:
            return
        self.fleet.do(planned)

    def teardown(self) -> None:
        self.fleet.hub.db.close()


Caches.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCaches = Caches.TestCase
