"""With real servers: logging in to a hub with a `.creds` file: a JWT and the seed that signs the server's nonce."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec.protocol.credentials import parse_credentials
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.errors import LoginRefusedError, UnreachableError
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.direct_get import close_connections, list_streams, read_range
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.source.jetstream_source import JetStreamSource, SourceSettings
from tests.support.keyed_server import KeyedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

JETSTREAM = "$JS.API"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A hub's server with a stream UP_00 of three messages."""
    hub = KeyedServer(tmp_path_factory.mktemp("keyed") / "hub")
    hub.server.start()
    try:
        control = Connection(endpoint_from(options(hub, hub.creds("control"))))
        config = {"name": "UP_00", "subjects": ["up.>"], "allow_direct": True}
        _, made = control.request(f"{JETSTREAM}.STREAM.CREATE.UP_00", json.dumps(config).encode())
        assert "error" not in json.loads(made)
        for body in (b"a", b"b", b"c"):
            control.request("up.VID-001.f.battery", body)
        control.close()
        yield hub
    finally:
        close_connections()
        hub.server.stop()


def options(hub: KeyedServer, credentials: Path, **more: str) -> dict[str, str]:
    return {"servers": hub.server.url, "credentials": str(credentials), "api": JETSTREAM} | more


def bodies(given: dict[str, str]) -> list[bytes]:
    endpoint = endpoint_from(given)
    assert list(list_streams(endpoint, ["UP_*"])) == ["UP_00"]
    return [body for part in read_range(endpoint, "UP_00", 1, 3) for body in part.bodies]


@pytest.mark.nats
def test_a_creds_file_logs_in(hub: KeyedServer) -> None:
    assert bodies(options(hub, hub.creds("spark"))) == [b"a", b"b", b"c"]


@pytest.mark.nats
def test_hub_toml_names_a_creds_file_beside_it(hub: KeyedServer, tmp_path: Path) -> None:
    (tmp_path / "creds").mkdir()
    (tmp_path / "creds" / "spark.creds").write_text(hub.creds("spark").read_text())
    file = tmp_path / "hub.toml"
    file.write_text(f'[nats]\nspark = {{creds = "creds/spark.creds", api = "{JETSTREAM}"}}\n')
    given = {"servers": hub.server.url, "credentials": str(file)}
    assert bodies(given) == [b"a", b"b", b"c"]
    file.write_text('[nats]\nspark = {creds = "creds/spark.creds"}\n')
    assert endpoint_from(given).api == "jobsapi"


@pytest.mark.nats
def test_a_renewed_file_counts_from_the_next_login_on(hub: KeyedServer, tmp_path: Path) -> None:
    file = tmp_path / "spark.creds"
    file.write_text(hub.creds("stranger", known=False).read_text())
    endpoint = endpoint_from(options(hub, file))
    with pytest.raises(LoginRefusedError, match="uthoriz"):
        Connection(endpoint)
    file.write_text(hub.creds("spark").read_text())
    Connection(endpoint).close()


@pytest.mark.nats
def test_a_file_renewed_before_the_login_runs_out_goes_on_counting(
    hub: KeyedServer, tmp_path: Path
) -> None:
    """The server ends what was logged in with the former one: that is no refusal."""
    soon = SYSTEM_CLOCK.now_ns() // 1_000_000_000 + 8  # one login, on a busy machine
    file = tmp_path / "spark.creds"
    file.write_text(hub.creds("brief", expires_s=soon).read_text())
    given = options(hub, file)
    connection = Connection(endpoint_from(given), timeout_s=60)
    file.write_text(hub.creds("spark").read_text())
    with pytest.raises(UnreachableError, match="Authentication Expired"):
        connection.any_answer("what nobody asked")
    connection.close()
    assert bodies(given) == [b"a", b"b", b"c"]


@pytest.mark.nats
def test_a_file_whose_time_is_over_is_refused_with_that_reason(hub: KeyedServer) -> None:
    endpoint = endpoint_from(options(hub, hub.creds("old", expires_s=1_000_000_000)))
    with pytest.raises(
        LoginRefusedError, match=r"old\.creds: they expired at 2001-09-09 01:46:40 UTC"
    ) as caught:
        Connection(endpoint)
    assert "credentials" in caught.value.hint


@pytest.mark.spark
@pytest.mark.nats
def test_executors_get_the_path_and_log_in_by_themselves(
    spark: SparkSession, hub: KeyedServer
) -> None:
    file = hub.creds("spark")
    spark.dataSource.register(JetStreamSource)
    frame: Any = spark.read.format("jetstream").options(**options(hub, file)).load()
    assert sorted(bytes(row.body) for row in frame.select("body").collect()) == [b"a", b"b", b"c"]
    travels = pickle.dumps(SourceSettings(options(hub, file))).decode(errors="replace")
    plan = frame._jdf.queryExecution().toString()
    secret = parse_credentials(file.read_text())
    assert str(file) in travels
    for text in (plan, travels):
        assert secret.seed not in text
        assert secret.jwt not in text
