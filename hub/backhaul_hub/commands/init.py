"""`backhaul-hub init DIR`."""

from __future__ import annotations

from pathlib import Path

import click

from backhaul_hub.setup import HubLayout, create_hub


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=4222, show_default=True, help="Port for clients.")
@click.option("--leaf-port", default=7422, show_default=True, help="Port for vehicles' leafs.")
@click.option(
    "--leaf-url",
    help="Where vehicles reach the leaf port: nats-leaf://hub.example.org:7422."
    "  [default: nats-leaf://HOST:LEAF-PORT]",
)
@click.option("--shards", default=1, show_default=True, help="UP streams, one per 500 devices.")
@click.option(
    "--watermark-interval",
    default=5.0,
    show_default=True,
    help="Seconds between two words to a device on how far the hub holds its points.",
)
def init(
    directory: Path,
    host: str,
    port: int,
    leaf_port: int,
    leaf_url: str | None,
    shards: int,
    watermark_interval: float,
) -> None:
    """Write a new hub's server and control plane configuration into DIRECTORY."""
    create_hub(
        directory,
        HubLayout(
            host=host,
            client_port=port,
            leaf_port=leaf_port,
            leaf_url=leaf_url or f"nats-leaf://{host}:{leaf_port}",
            shards=shards,
            watermark_interval_s=watermark_interval,
        ),
    )
    click.echo(f"""\
A hub stands ready in {directory}. Next:
  nats-server -c {directory}/hub.conf          its server
  backhaul-hub up --dir {directory}            its control plane
  backhaul-hub add-device VID-001 --dir {directory}""")
