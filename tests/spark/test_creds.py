"""Logging in to a hub with a `.creds` file: a JWT and the seed that signs the server's nonce."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_spark.errors import OptionError
from backhaul_spark.nats.endpoint import endpoint_from

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no NATS USER JWT"),
        (b'user = "u"', "no NATS USER JWT"),
        (b"\xff\xfe", "plain text"),
        (b"-" * 100_000, "longer than"),
    ],
)
def test_a_garbled_file_is_refused_by_its_name(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    file = tmp_path / "spark.creds"
    file.write_bytes(content)
    with pytest.raises(OptionError, match=rf"spark\.creds.*{problem}"):
        endpoint_from({"servers": "nats://a", "credentials": str(file)})
    toml = tmp_path / "hub.toml"
    toml.write_text('[nats.spark]\ncreds = "spark.creds"\n')
    with pytest.raises(OptionError, match=rf"spark\.creds.*{problem}"):
        endpoint_from({"servers": "nats://a", "credentials": str(toml)})


def test_an_unreadable_file_is_refused_by_its_name(tmp_path: Path) -> None:
    for missing in (tmp_path / "none.creds", tmp_path / "none.toml"):
        with pytest.raises(OptionError, match=r"none.*a readable file \(No such file"):
            endpoint_from({"servers": "nats://a", "credentials": str(missing)})
