"""`[alerts]` of hub.toml, checked; and the files of its secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.alerts.secret_files import check_secrets, read_secret
from backhaul_hub.cli.main import cli
from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError
from backhaul_hub.setup.hub_directory import create_hub
from tests.support.hub_layout import local_layout

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
[alerts]
hold_s = 30
[alerts.channels.ops]
kind = "smtp"
host = "mail.example.org"
sender = "hub@example.org"
to = ["ops@example.org"]
user = "hub"
password_file = "secrets/mail"
[alerts.channels.pager]
kind = "webhook"
url = "https://pager.example.org/in"
token_file = "secrets/pager"
[alerts.channels.phone]
kind = "ntfy"
topic_file = "secrets/topic"
[[alerts.routes]]
channels = ["ops"]
[[alerts.routes]]
channels = ["pager", "phone"]
groups = ["plant-7"]
severity = "critical"
hold_s = 0
"""


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    directory = tmp_path / "hub"
    create_hub(directory, local_layout(4222, 7422))
    with (directory / "hub.toml").open("a") as file:
        file.write(GOOD)
    (directory / "secrets").mkdir()
    for name in ("mail", "pager", "topic"):
        path = directory / "secrets" / name
        path.touch(mode=0o600)
        path.write_text("s3cret\n")
    return directory


def damage(hub: Path, old: str, new: str) -> None:
    text = (hub / "hub.toml").read_text()
    assert old in text
    (hub / "hub.toml").write_text(text.replace(old, new, 1))


def check(hub: Path) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["check-config", "--dir", str(hub)])
    return result.exit_code, f"{result.output}{result.exception or ''}"


def test_a_good_file_is_good(hub: Path) -> None:
    assert check(hub) == (0, f"{hub}/hub.toml: good. Channels to people: ops, pager, phone\n")
    alerts = load(hub).alerts
    assert (alerts.hold_s, alerts.routes[1].hold_s, alerts.routes[0].hold_s) == (30, 0, None)


def test_without_alerts_nobody_is_told_and_nothing_is_wrong(hub: Path) -> None:
    damage(hub, GOOD, "")
    assert check(hub)[1].endswith("Channels to people: none\n")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('kind = "smtp"', 'kind = "fax"', "alerts.channels.ops: Invalid value 'fax'"),
        ('host = "mail', 'hosts = "mail', "alerts.channels.ops: Object"),
        ('to = ["ops@example.org"]', "to = []", "alerts.channels.ops: Expected `array`"),
        ('["ops@example.org"]', '["ops@example.org\\nBcc: x@y"]', "U\\+000A"),
        ('["ops@example.org"]', '["a@b, c@d"]', "alerts.channels.ops: "),
        ('user = "hub"\n', "", "alerts.channels.ops.password_file: user and"),
        ('user = "hub"', 'user = "hub"\ntls = "none"', "alerts.channels.ops.tls: a password"),
        ('url = "https://p', 'url = "http://p', "alerts.channels.pager.url: a secret"),
        ('url = "https://p', 'url = "https://u:p@p', "alerts.channels.pager.url: a user or"),
        ('url = "https://p', 'url = "ftp://p', "alerts.channels.pager.url: ftp"),
        ('url = "https://pager.example.org/in"\n', "", "pager.url: either url or url_file"),
        ('topic_file = "secrets/topic"', "", "phone.topic: either topic or topic_file"),
        ('channels = ["ops"]', 'channels = ["opps"]', r"alerts.routes\[0\].channels: no channel"),
        ('channels = ["pager", "phone"]', 'channels = ["ops"]', "pager: no route leads to it"),
        ('severity = "critical"', 'severity = "bad"', "Invalid enum value 'bad'"),
        ("hold_s = 30", "hold_s = -1", "Expected `float` >= 0"),
        ("hold_s = 30", "holds_s = 30", "unknown field `holds_s`"),
    ],
)
def test_a_mistake_is_named(hub: Path, old: str, new: str, complaint: str) -> None:
    damage(hub, old, new)
    with pytest.raises(ConfigError, match=complaint):
        load(hub)
    assert check(hub)[0] == 1


def test_a_secret_is_the_first_words_of_its_file(hub: Path) -> None:
    assert read_secret(hub, "secrets/mail") == "s3cret"
    assert read_secret(hub, "") == ""


def test_a_secret_that_others_may_read_is_refused_with_what_to_do(hub: Path) -> None:
    (hub / "secrets" / "pager").chmod(0o640)
    with pytest.raises(ConfigError, match=r"mode is 0640.*chmod 600 .*/secrets/pager"):
        read_secret(hub, "secrets/pager")
    code, output = check(hub)
    assert (code, "alerts.channels.pager: " in output) == (1, True)
    assert "s3cret" not in output


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"a\nb", b"x" * 5000])
def test_what_is_no_secret_is_refused(hub: Path, content: bytes) -> None:
    (hub / "secrets" / "topic").write_bytes(content)
    with pytest.raises(ConfigError, match="there is no secret in it"):
        check_secrets(hub, load(hub).alerts)


def test_a_missing_secret_is_named_with_the_command_that_mends_it(hub: Path) -> None:
    (hub / "secrets" / "mail").unlink()
    with pytest.raises(ConfigError, match=r"channels.ops: .*secrets/mail: No such.*chmod 600"):
        check_secrets(hub, load(hub).alerts)
