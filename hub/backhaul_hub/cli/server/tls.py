"""`backhaul-hub tls show|renew|use`: See and renew the certificates that the hub's servers show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import click

from backhaul_hub.cli._act import act
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import HubConfig, load
from backhaul_hub.errors import CertificateError
from backhaul_hub.servers import server_directories, urls
from backhaul_hub.timestamps import utc
from backhaul_hub.tls.facts import facts
from backhaul_hub.tls.files import (
    CA_KEY,
    SERVER,
    TLS,
    OwnCertificate,
    Renewal,
    former_authorities,
    renew,
    require_tls,
    use_certificate,
)
from backhaul_runtime.clock import SystemClock

_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.group()
def tls() -> None:
    """See and renew the certificates that the hub's servers show.

    No link is cut by a new certificate: the servers read it again, and show it to who connects from
    then on.
    """


@tls.command()
@directory_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(directory: Path, as_json: bool) -> None:
    """Print which certificates there are, for which names, and until when."""
    found = facts(directory, utc(SystemClock()))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for server in found["servers"]:
        click.echo(f"server {server['server'] or 'hub'}: {', '.join(server['names'])}")
        click.echo(f"  signed by {server['issuer']}, {_until(server)}")
    for authority in found["trusted"]:
        click.echo(f"trusted: {authority['name']}, {_until(authority)}")
        click.echo(f"  SHA-256 {authority['sha256']}")
    place = "is in the hub directory" if found["ca_key"] else "is not in the hub directory"
    click.echo(f"the authority's key, {TLS}/{CA_KEY}, {place}")


def _until(certificate: dict[str, str]) -> str:
    return f"until {certificate['not_after']}, {certificate['days_left']} days"


@tls.command(name="renew")
@directory_option
@click.option("--tls-name", "names", multiple=True, help="One more name for every server; repeat.")
@click.option("--ca-key", type=_FILE, help="The authority's key, where it is kept elsewhere.")
@click.option(
    "--new-ca", is_flag=True, help="Make a new authority as well; the one so far is trusted on."
)
@click.option(
    "--forget-former",
    is_flag=True,
    help="Trust former authorities no more: vehicles that know no other are refused from now on.",
)
def renew_(
    directory: Path,
    names: tuple[str, ...],
    ca_key: Path | None,
    new_ca: bool,
    forget_former: bool,
) -> None:
    """Make a new certificate for every server, and have the servers show it."""
    if new_ca and forget_former:
        raise click.UsageError("a new authority first; forget the former one when all know the new")
    renewal = Renewal(names, ca_key, new_ca=new_ca, forget_former=forget_former)
    _written(directory, lambda: renew(directory, renewal, utc(SystemClock())))
    if new_ca:
        click.echo(f"""\
A new authority signs from now on; its key is {directory / TLS / CA_KEY}. Vehicles enrolled from now on
trust it, the others get to it through the former one. Once every vehicle was given a new identity
document and control plane and jobs were restarted: backhaul-hub tls renew --forget-former""")
    elif former := former_authorities(directory):
        click.echo(f"{former} former authorities are trusted as well")


@tls.command()
@directory_option
@click.option("--tls-cert", type=_FILE, required=True, help="The servers' certificate, PEM.")
@click.option("--tls-key", type=_FILE, required=True, help="Its key, PEM.")
@click.option("--tls-ca", type=_FILE, required=True, help="The authorities to trust, PEM.")
def use(directory: Path, tls_cert: Path, tls_key: Path, tls_ca: Path) -> None:
    """Have the servers show a certificate of your own; it is tried out first."""
    require_tls(directory)
    names = hosts(load(directory))
    servers = dict.fromkeys(server_directories(directory), names)
    own = OwnCertificate(tls_cert, tls_key, tls_ca)
    _written(directory, lambda: use_certificate(directory, own, servers))


def hosts(config: HubConfig) -> list[str]:
    """Return the names under which vehicles, control plane and jobs dial the servers."""
    dialled = [*urls(config.fleet.leaf_url), *urls(config.nats.url)]
    found = [urlsplit(url).hostname or "" for url in dialled]
    return list(dict.fromkeys(found))


def _written(directory: Path, write: Callable[[], object]) -> None:
    """Write files, say which, and have a hub of one server read them."""
    try:
        write()
    except OSError as error:
        raise CertificateError(f"{error.filename or directory}: {error.strerror}") from error
    targets = server_directories(directory)
    if len(targets) > 1:
        click.echo(f"""\
Bring these to the servers' machines:
{"".join(f"  {target / TLS}/" + chr(10) for target in targets)}\
then: backhaul-hub reload --dir {directory}""")
        return
    click.echo(f"{directory / TLS / SERVER} is new")
    if problem := act(directory, "reload", {"files": True})["problem"]:
        click.echo(
            f"The server was not told ({problem}); it shows the new certificate once it has read"
            f" its configuration: backhaul-hub reload --dir {directory}",
            err=True,
        )
