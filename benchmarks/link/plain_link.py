"""What plain NATS offers: a leaf stream and a hub stream that sources it, all settings default.

No durable consumer, no control plane, one account on both sides. Unless told otherwise, ping and
reconnect times are the same as in our own configurations, so that what differs is the sourcing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from backhaul_hub.nats.jetstream import JetStreamApi
from benchmarks.errors import BenchmarkError
from tests.support.rig.parts import Part, program
from tests.support.rig.ports import free_port
from tests.support.rig.relay import Relay
from tests.support.rig.vehicle import connection

LEAF_STREAM = "PLAIN_OUT"
HUB_STREAM = "PLAIN_UP"
DOWN_STREAM = "PLAIN_DOWN"
IN_STREAM = "PLAIN_IN"
_OUR_PINGS = 'ping_interval: "10s"\nping_max: 2'
_POLL_S = 0.05


@dataclass(slots=True)
class PlainLink:
    """Two servers and the relay between them."""

    leaf_url: str
    hub_url: str
    relay: Relay

    async def sourced(self, timeout_s: float = 60.0) -> None:
        """Wait until the hub's stream is fed.

        Raises:
            BenchmarkError: it was not in time.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        async with connection(self.hub_url) as client:
            while loop.time() < deadline_s:
                info = await JetStreamApi(client).request(f"STREAM.INFO.{HUB_STREAM}")
                if 0 <= info["sources"][0]["active"] < 2_000_000_000:
                    return
                await asyncio.sleep(_POLL_S)
        raise BenchmarkError(f"{HUB_STREAM} is not fed after {timeout_s:.0f} s")

    async def add_way_down(self) -> None:
        """Make a stream at the hub, subjects ``d.>``, and one on the leaf that sources it."""
        async with connection(self.hub_url) as client:
            await make_stream(JetStreamApi(client), DOWN_STREAM, "d.>")
        async with connection(self.leaf_url) as client:
            await _source(JetStreamApi(client), IN_STREAM, DOWN_STREAM, "plain-hub")


@asynccontextmanager
async def plain_link(
    directory: Path,
    *,
    relay_to: Callable[[str, int], Relay] = Relay,
    server_defaults: bool = False,
) -> AsyncIterator[PlainLink]:
    """Start both servers and the source between them; stop them at the end.

    Args:
        directory: where the servers keep their files; exists.
        relay_to: makes the link; given the host and port of the hub.
        server_defaults: leave ping and reconnect times as the server has them.
    """
    pings, reconnect = ("", "") if server_defaults else (_OUR_PINGS, 'reconnect: "500ms"')
    async with AsyncExitStack() as stack:
        leaf_port = free_port()
        hub_url = await stack.enter_async_context(
            plain_server(
                directory,
                "plain-hub",
                f'leafnodes {{ listen: "127.0.0.1:{leaf_port}", authorization {{ timeout: 10 }} }}'
                f"\n{pings}",
            )
        )
        relay = await stack.enter_async_context(relay_to("127.0.0.1", leaf_port))
        leaf_url = await stack.enter_async_context(
            plain_server(
                directory,
                "plain-leaf",
                f"""{pings}
                leafnodes {{
                  {reconnect}
                  remotes: [{{
                    url: "nats-leaf://127.0.0.1:{relay.port}"
                    # It would learn the hub's own port and pass the relay by.
                    ignore_discovered_servers: true
                    first_info_timeout: "15s"
                  }}]
                }}""",
            )
        )
        async with connection(leaf_url) as client:
            await make_stream(JetStreamApi(client))
        async with connection(hub_url) as client:
            await _source(JetStreamApi(client), HUB_STREAM, LEAF_STREAM, "plain-leaf")
        link = PlainLink(leaf_url, hub_url, relay)
        await link.sourced()
        yield link


@asynccontextmanager
async def plain_server(
    directory: Path, name: str, more: str = "", *, sync_interval: str = "always"
) -> AsyncIterator[str]:
    """Start one nats-server with JetStream, its domain its name; yield its client URL."""
    port = free_port()
    conf = directory / f"{name}.conf"
    conf.write_text(f"""\
server_name: {name}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{directory / name}", domain: {name}, sync_interval: {sync_interval} }}
{more}
""")
    server = Part(name, [program("nats-server"), "-c", str(conf)], directory / f"{name}.log")
    await server.start()
    try:
        await server.wait_listening(port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        await server.stop()


async def make_stream(api: JetStreamApi, name: str = LEAF_STREAM, subjects: str = "p.>") -> None:
    """Make the stream that local programs publish their points to, one message each."""
    await api.request(
        f"STREAM.CREATE.{name}",
        {"name": name, "subjects": [subjects], "storage": "file", "num_replicas": 1},
    )


async def _source(api: JetStreamApi, name: str, origin: str, domain: str) -> None:
    source = {"name": origin, "external": {"api": f"$JS.{domain}.API", "deliver": ""}}
    await api.request(
        f"STREAM.CREATE.{name}",
        {"name": name, "storage": "file", "num_replicas": 1, "sources": [source]},
    )
