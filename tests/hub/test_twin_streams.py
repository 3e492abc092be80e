"""The twin's streams on a real server: as declared, as stock clients know them, brought in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli
from backhaul_hub.config import TWIN_BYTES_MAX
from backhaul_hub.errors import StreamConflictError
from backhaul_hub.streams.disk_shares import store_bytes_max, twin_bytes_max
from backhaul_hub.streams.streams import declared_streams, planned
from backhaul_hub.streams.twin_streams import device_prefix
from tests.hub.made_hub import GIB, make_hub
from tests.hub.twin_configs import ALL_FIVE, declared, edit

if TYPE_CHECKING:
    from pathlib import Path


SECOND_NS = 10**9


def test_the_limits_are_the_ones_that_were_asked_for(tmp_path: Path) -> None:
    config = make_hub(tmp_path)
    state, events, commands, shadow, blobs = (declared(config, name) for name in ALL_FIVE)
    assert state["subjects"] == ["fleet.prod.veh.*.state.>"]
    assert (state["max_age"], state["max_bytes"]) == (3600 * SECOND_NS, 10 * GIB)
    assert (state["storage"], state["discard"], state["retention"]) == ("file", "old", "limits")
    assert state["allow_rollup_hdrs"]
    assert (events["max_age"], events["max_bytes"]) == (90 * 86_400 * SECOND_NS, 100 * GIB)
    assert (commands["retention"], commands["max_age"]) == ("workqueue", 300 * SECOND_NS)
    assert shadow["max_msgs_per_subject"] == 5
    assert blobs["subjects"] == ["$O.TWIN_BLOBS.C.>", "$O.TWIN_BLOBS.M.>"]


def test_env_and_replicas_are_said_in_one_place(tmp_path: Path) -> None:
    make_hub(tmp_path, env="lab", shards=2)
    config = edit(tmp_path, "replicas = 1", "replicas = 3")
    assert {stream["num_replicas"] for stream in declared_streams(config)} == {3}
    assert declared(config, "TWIN_CMD")["subjects"] == ["fleet.lab.veh.*.cmd.>"]
    sources = declared(config, "TWIN_EVENTS")["sources"]
    assert [source["name"] for source in sources] == ["UP_00", "UP_01"]
    assert "fleet.lab.veh." in sources[1]["subject_transforms"][0]["dest"]
    assert device_prefix("lab", "VID-001") == "fleet.lab.veh.VID-001"


def test_a_small_disk_gets_smaller_limits_that_fit_it(tmp_path: Path) -> None:
    config = make_hub(tmp_path, free=40 * GIB)
    sizes = [getattr(config.twin, name) for name in TWIN_BYTES_MAX]
    others = config.up.bytes_max + config.down.bytes_max + config.quarantine.bytes_max
    assert 15 * GIB < sum(sizes) < 30 * GIB - others
    assert config.twin.events_bytes_max == max(sizes)
    # The server is told the same total, for good.
    assert f"max_file_store: {30 * GIB}\n" in (tmp_path / "hub.conf").read_text()


def test_a_disk_of_any_size_gets_limits_that_can_be_declared() -> None:
    for free in (0, 1, GIB, 5 * GIB, 200 * GIB, 1 << 50):
        sizes = twin_bytes_max(store_bytes_max(free) - 4 * GIB)
        assert all(16 << 20 <= size <= TWIN_BYTES_MAX[name] for name, size in sizes.items())


def test_an_env_that_is_no_token_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["init", str(tmp_path / "hub"), "--env", "a.b"])
    assert found.exit_code == 2
    assert "not 'a.b'" in found.output
    assert not (tmp_path / "hub").exists()


def test_a_source_that_would_bring_everything_once_more_is_refused(tmp_path: Path) -> None:
    events = declared(make_hub(tmp_path), "TWIN_EVENTS")
    other = declared(edit(tmp_path, 'env = "prod"', 'env = "lab"'), "TWIN_EVENTS")
    with pytest.raises(StreamConflictError, match=r"sources has .*fleet\.prod.*, not wanted"):
        planned(other, events)
    more = declared(edit(tmp_path, 'env = "lab"\n', 'env = "prod"\n'), "TWIN_EVENTS")
    more["sources"] = [*more["sources"], more["sources"][0] | {"name": "UP_01"}]
    assert len(planned(more, events)) == 1, "another shard may join"
