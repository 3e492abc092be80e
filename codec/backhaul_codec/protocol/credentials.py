"""Credentials that log in to a NATS server with a key: a ``.creds`` file's text, or an nkey's seed alone.

    -----BEGIN NATS USER JWT-----        who the user is and what it may, signed by its account
    eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1...
    ------END NATS USER JWT------

    -----BEGIN USER NKEY SEED-----       proves that it is that user; never leaves the machine
    SUAGMJH5XLGZKQQWAWKRZJIGMOU4HPFUYLXJMXOO5NLFEO2OOQJ5LPRDPM
    ------END USER NKEY SEED------

Pure: files are read by whoever asks. Needs nkeys. The server checks the JWT's signature and its time;
here only what would be garbage to it is refused, and what goes wrong later gets its cause.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

import nkeys

from backhaul_codec.strict.json import read_json

TEXT_BYTES_MAX = 64 * 1024
_JWT = re.compile(
    r"-{3,} *BEGIN NATS USER JWT *-{3,}\s+([\w.-]+)\s+-{3,} *END NATS USER JWT *-{3,}", re.ASCII
)
_SEED = re.compile(
    r"-{3,} *BEGIN USER NKEY SEED *-{3,}\s+(\w+)\s+-{3,} *END USER NKEY SEED *-{3,}", re.ASCII
)
_TEMPLATE = """\
-----BEGIN NATS USER JWT-----
{jwt}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


class CredentialsError(ValueError):
    """A text is no credentials; the message says why, and never holds any of the text."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One user: its seed and, unless the server knows its public key, the JWT about it."""

    seed: str = field(repr=False)
    public_key: str
    jwt: str = field(default="", repr=False)
    expires_s: int = 0
    """Since the Unix epoch, as the JWT says; 0: never."""

    def sign(self, nonce: str) -> str:
        """Return the signature of a server's nonce as CONNECT has it (``sig``)."""
        signature: bytes = nkeys.from_seed(bytearray(self.seed.encode())).sign(nonce.encode())
        return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()

    def text(self) -> str:
        """Return the contents of a ``.creds`` file; of an nkey alone its seed."""
        return _TEMPLATE.format(jwt=self.jwt, seed=self.seed) if self.jwt else f"{self.seed}\n"

    def expired(self, now_s: float) -> str:
        """Return since when these are worthless, as a sentence; empty where they are not."""
        if not self.expires_s or now_s < self.expires_s:
            return ""
        return (
            f"they expired at {datetime.fromtimestamp(self.expires_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
        )


def parse_credentials(text: str) -> Credentials:
    """Read the text of a ``.creds`` file: a user JWT and the seed of its key.

    Raises:
        CredentialsError: it is none, is cut short, or seed and JWT are of different keys.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise CredentialsError(f"longer than {TEXT_BYTES_MAX} bytes")
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None:
        raise CredentialsError("no NATS USER JWT between its BEGIN and END lines")
    if seed is None:
        raise CredentialsError("no USER NKEY SEED between its BEGIN and END lines")
    subject, expires_s = _claims(jwt[1])
    found = parse_seed(seed[1])
    if subject != found.public_key:
        raise CredentialsError("the seed is not of the key that the JWT is about")
    return Credentials(found.seed, found.public_key, jwt[1], expires_s)


def parse_seed(text: str) -> Credentials:
    """Read a user's nkey seed (``SU...``), alone in its file.

    Raises:
        CredentialsError: it is none.
    """
    seed = text.strip()
    try:
        prefix, raw = nkeys.decode_seed(seed.encode("ascii"))
        whole = nkeys.encode_seed(raw, prefix).decode()  # the checksum, which nkeys does not check
    except (nkeys.NkeysError, ValueError) as error:
        raise CredentialsError("no nkey seed, or a damaged one") from error
    if whole != seed:
        raise CredentialsError("no nkey seed, or a damaged one")
    if prefix != nkeys.PREFIX_BYTE_USER:
        raise CredentialsError("this nkey seed is no user's: those begin with SU")
    return Credentials(seed, nkeys.from_seed(bytearray(whole.encode())).public_key.decode())


def _claims(jwt: str) -> tuple[str, int]:
    """Return whose key a JWT is about, and until when it holds."""
    try:
        _, body, _ = jwt.split(".")
        claims = read_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return str(claims["sub"]), int(claims.get("exp", 0))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CredentialsError("the JWT is damaged") from error
