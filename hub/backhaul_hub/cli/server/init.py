"""`backhaul-hub init DIR`: Write a new hub's server and control plane configuration into DIRECTORY."""

from __future__ import annotations

import re
from pathlib import Path

import click

from backhaul_codec.strict.toml_values import url_problem
from backhaul_hub.access.keys import operator_seed_file
from backhaul_hub.config import ENV_PATTERN
from backhaul_hub.servers import is_leaf_url, read_places, server_directories, urls
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from backhaul_hub.tls.files import OwnCertificate, has_tls
from backhaul_hub.tls.setup import TlsChoice, hosts_of, is_loopback

_PORT = click.IntRange(1, 65535)
_PEM = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    help="Address of the leaf port, for vehicles.  [default: 127.0.0.1, of a cluster each server's]",
)
@click.option(
    "--client-host",
    default="127.0.0.1",
    show_default=True,
    help="Address of the client port: control plane and Spark.",
)
@click.option("--port", type=_PORT, default=4222, show_default=True, help="Port for clients.")
@click.option(
    "--leaf-port", type=_PORT, default=7422, show_default=True, help="Port for vehicles' leafs."
)
@click.option(
    "--page-port",
    type=click.IntRange(0, 65535),
    default=8470,
    show_default=True,
    help="Port of the page for browsers, on this machine; 0: none.",
)
@click.option(
    "--websocket-port",
    type=click.IntRange(0, 65535),
    default=8471,
    show_default=True,
    help="Port of the server for the page's browsers, beside that for clients; 0: none.",
)
@click.option(
    "--leaf-url",
    help="Where vehicles reach the leaf port: nats-leaf://hub.example.org:7422; of a cluster all,"
    " separated by commas.  [default: nats-leaf://HOST:LEAF-PORT]",
)
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME=HOST[:PORT...]",
    help="One server of a cluster; 3 or 5 times. Ports for clients, leafs, the other servers may"
    " follow the address, if they are not those of --port, --leaf-port, --cluster-port.",
)
@click.option(
    "--cluster-port",
    type=_PORT,
    default=6222,
    show_default=True,
    help="Port for the other servers.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="UP streams, one per 500 devices.",
)
@click.option(
    "--up-gib",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Disk set aside for each UP stream, in GiB.",
)
@click.option(
    "--env",
    default="prod",
    show_default=True,
    metavar="NAME",
    help="Stands in the subjects of the twin: fleet.NAME.veh.VID-001. Not to be changed later.",
)
@click.option(
    "--watermark-interval",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    show_default=True,
    help="Seconds between two words to a device on how far the hub holds its points.",
)
@click.option(
    "--operator-key",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the operator's own seed is written, as on a stick that is taken away: nothing that runs"
    " needs it.  [default: keys/operator.nk in DIRECTORY]",
)
@click.option(
    "--keys-of",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Take the place of the hub in DIR: the same keys, so that its vehicles can come here.",
)
@click.option(
    "--tls-name",
    "tls_names",
    multiple=True,
    metavar="NAME",
    help="Have the servers speak TLS, with certificates of the hub's own for this name too; repeat."
    "  [default: only where others than this machine reach them, for the hosts that are dialled]",
)
@click.option("--tls-cert", type=_PEM, help="A certificate of your own instead, PEM.")
@click.option("--tls-key", type=_PEM, help="Its key, PEM.")
@click.option("--tls-ca", type=_PEM, help="The authorities by which it is known, PEM.")
def init(
    directory: Path,
    host: str | None,
    client_host: str,
    port: int,
    leaf_port: int,
    page_port: int,
    websocket_port: int,
    leaf_url: str | None,
    servers: tuple[str, ...],
    cluster_port: int,
    shards: int,
    up_gib: int,
    env: str,
    watermark_interval: float,
    operator_key: Path | None,
    keys_of: Path | None,
    tls_names: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
) -> None:
    """Write a new hub's server and control plane configuration into DIRECTORY."""
    places = read_places(servers, port, leaf_port, cluster_port) if servers else ()
    if not places:
        host = host or "127.0.0.1"
        dialled = [(host, leaf_port)]
    else:
        dialled = [(place.host, place.leaf_port) for place in places]
    wildcard = any(each in ("0.0.0.0", "::", "[::]") for each, _ in dialled)  # noqa: S104 - asked
    if not places and port == leaf_port:
        raise click.UsageError(
            f"--port and --leaf-port are both {port}: each server port is its own"
        )
    if bool(page_port) != bool(websocket_port):
        raise click.UsageError("--page-port and --websocket-port are both 0, or none is")
    for url in urls(leaf_url or ""):
        if problem := url_problem(url):
            raise click.UsageError(f"--leaf-url: {problem}")
        if not is_leaf_url(url):
            raise click.UsageError(
                f"--leaf-url: {url!r} is no leaf address, as in tls://hub.example.org:7422"
            )
    if leaf_url is None and wildcard:
        raise click.UsageError("vehicles cannot dial a wildcard address: say --leaf-url")
    if not re.fullmatch(ENV_PATTERN, env):
        raise click.UsageError(f"--env is a word of A-Z, a-z, 0-9, _ and -: not {env!r}")
    tls = _tls(tls_names, _own(tls_cert, tls_key, tls_ca))
    listens = [place.host for place in places] or [client_host]
    reached = [*listens, *(each for each, _ in dialled), *hosts_of(urls(leaf_url or ""))]
    if tls is None and (not all(map(is_loopback, reached)) or (keys_of and has_tls(keys_of))):
        tls = TlsChoice()
    scheme = "nats-leaf" if tls is None else "tls"
    if operator_key and keys_of:
        raise click.UsageError("--keys-of makes no operator key")
    create_hub(
        directory,
        HubLayout(
            client_host=client_host,
            host=host or "",
            client_port=port,
            leaf_port=leaf_port,
            leaf_url=leaf_url or ",".join(f"{scheme}://{each}:{at}" for each, at in dialled),
            shards=shards,
            watermark_interval_s=watermark_interval,
            up_gib=up_gib,
            env=env,
            servers=places,
            operator_key=operator_key,
            keys_of=keys_of,
            tls=tls,
            page_port=page_port,
            websocket_port=websocket_port,
        ),
    )
    confs = [f"{each}/hub.conf" for each in server_directories(directory)]
    each_server = "".join(f"  nats-server -c {conf}\n" for conf in confs)
    if places:
        each_server += "      on each machine, with its directory in the same place there\n"
    click.echo(f"""\
A hub stands ready in {directory}. Next:
{each_server}  backhaul-hub up --dir {directory}            its control plane
  backhaul-hub add-device VID-001 --dir {directory}""")
    if not keys_of:
        seed = operator_key or operator_seed_file(directory)
        click.echo(f"Nothing that runs needs {seed}: take it offline.")


def _tls(names: tuple[str, ...], own: OwnCertificate | None) -> TlsChoice | None:
    if names and own:
        raise click.UsageError(
            "a certificate of your own has its names already: no --tls-name then"
        )
    return TlsChoice(names, own) if names or own else None


def _own(certificate: Path | None, key: Path | None, ca: Path | None) -> OwnCertificate | None:
    if certificate and key and ca:
        return OwnCertificate(certificate, key, ca)
    if certificate or key or ca:
        raise click.UsageError("--tls-cert, --tls-key and --tls-ca belong together")
    return None
