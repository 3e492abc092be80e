"""A hub's server for the tests of the Spark part: users, UP streams, messages put into them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.direct_get import close_connections
from backhaul_spark.nats.endpoint import endpoint_from
from tests.support.nats_server import NatsServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ACCOUNTS = """
accounts {
  HUB { jetstream: enabled, users: [
    { user: control, password: all }
    { user: spark, password: "s3cret word", permissions {
        publish: ["$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.IMPORT", "$JS.API.DIRECT.GET.>",
                  "$JS.API.STREAM.MSG.GET.DICT"],
        subscribe: ["_INBOX.>"] } } ],
    exports: [{ service: "$JS.API.>", response: stream }] }
  JOBS { users: [{ user: job, password: all }],
    imports: [{ service: { account: HUB, subject: "$JS.API.>" }, to: "jobsapi.>" }] }
  $SYS { users: [ { user: system, password: all } ] }
}
authorization { timeout: 120 }  # by itself 2 s, in which who stands still before it logs in is refused
"""
LOGIN = {"user": "spark", "password": "s3cret word"}


class HubServer:
    """A nats-server with accounts, and a control connection that makes streams and messages."""

    def __init__(self, directory: Path) -> None:
        self.server = NatsServer(directory, extra=ACCOUNTS)
        self.url = self.server.url
        self.credentials = directory / "credentials.toml"
        self.credentials.write_text("".join(f'{key} = "{text}"\n' for key, text in LOGIN.items()))

    @property
    def options(self) -> dict[str, str]:
        """The source's options for the reading user."""
        return {"servers": self.url, "credentials": str(self.credentials)}

    def make_stream(self, name: str = "UP_00", *, subjects: str = "up.>", **more: Any) -> None:
        """Create a stream."""
        config = {"name": name, "subjects": [subjects], "allow_direct": True} | more
        self._api(f"STREAM.CREATE.{name}", config)

    def delete_stream(self, name: str = "UP_00") -> None:
        self._api(f"STREAM.DELETE.{name}", {})

    def delete_message(self, seq: int, name: str = "UP_00") -> None:
        self._api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})

    def purge_below(self, seq: int, name: str = "UP_00") -> None:
        """Remove the messages before `seq`, as a limit would."""
        self._api(f"STREAM.PURGE.{name}", {"seq": seq})

    def put(
        self, bodies: Sequence[bytes], *, device: str = "VID-001", leaf: str = "f.battery"
    ) -> None:
        """Put messages into the stream, acknowledged one by one."""
        self.put_raw(f"up.{device}.{leaf}", *bodies)

    def put_raw(self, subject: str, *bodies: bytes) -> None:
        """Put messages on any subject that a stream takes."""
        connection = self._control()
        for body in bodies:
            _, answer = connection.request(subject, body)
            assert "error" not in json.loads(answer), answer
        connection.close()

    def _control(self) -> Connection:
        return Connection(
            endpoint_from({"servers": self.url, "user": "control", "password": "all"})
        )

    def _api(self, verb: str, body: dict[str, Any]) -> None:
        connection = self._control()
        _, answer = connection.request(f"$JS.API.{verb}", json.dumps(body).encode())
        assert "error" not in json.loads(answer), answer
        connection.close()


@pytest.fixture
def hub_server(tmp_path: Path) -> Iterator[HubServer]:
    """A hub's server with an empty stream UP_00."""
    hub = HubServer(tmp_path / "hub")
    hub.server.start()
    try:
        hub.make_stream()
        yield hub
    finally:
        close_connections()
        hub.server.stop()
