"""How a vehicle becomes one of a hub's: the token it is given, its request, the hub's answer.

`backhaul-hub enrol VID` prints a token. The vehicle makes a key of its own, connects with what the
token holds, and asks on ``enrol.<token id>``; the answer is its identity document (docs/enrolment.md).
Pure. A token is a secret until it is used, so none of its values stands in an error or in its repr.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from backhaul_codec.protocol.credentials import Credentials, CredentialsError, parse_credentials
from backhaul_codec.protocol.identity import (
    Identity,
    IdentityError,
    decode_identity,
    encode_identity,
)
from backhaul_codec.protocol.proof import holds, is_user_key, prove
from backhaul_codec.strict.json import JsonError, Reader, read_typed

PURPOSE = "enrolment 1"
SUBJECT = "enrol"
TOKEN_CHARACTERS_MAX = 64 * 1024
REQUEST_BYTES_MAX = 1024
ANSWER_BYTES_MAX = 256 * 1024
# So that nobody takes it for something else, and no shell or option parser does: it never begins
# with a dash.
_PREFIX = "backhaul1_"
_BASE64 = re.compile(r"\A[A-Za-z0-9_-]+\Z")

Code: TypeAlias = Literal[
    "garbage", "unknown", "used", "expired", "revoked", "replaced", "enrolled", "old_key", "busy"
]
"""Why a request is refused. ``busy`` is the only one that passes."""
TokenId = Annotated[str, Meta(pattern=r"^[0-9a-f]{24}\Z")]


class EnrolmentError(ValueError):
    """A token, request or answer that is none; says why without any of its text."""


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The right of a vehicle to ask once to be enrolled.

    `id`: no secret, 96 random bits. `leaf_urls` and `ca` as in the identity document. `jwt` and
    `seed`: a user that may ask on this token's subject and nothing else, until `expires_s` (since
    the Unix epoch).
    """

    version: Literal[1] = 1
    id: TokenId
    device: str
    leaf_urls: tuple[str, ...]
    ca: str = ""
    jwt: str
    seed: str
    expires_s: Annotated[int, Meta(ge=0, lt=1 << 40)]

    def __repr__(self) -> str:
        return f"Token({self.id!r}, {self.device!r})"

    @property
    def credentials(self) -> Credentials:
        """Return the login. Raises: CredentialsError."""
        return parse_credentials(Credentials(self.seed, "", self.jwt).text())


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A vehicle's request: to be known by the key that has signed this."""

    version: Literal[1] = 1
    token: TokenId
    public_key: Annotated[str, Meta(max_length=64)]
    proof: Annotated[str, Meta(max_length=128)]


class EnrolmentRefused(msgspec.Struct, frozen=True, tag="refused", kw_only=True):
    """Why not, for programs and for people."""

    code: Code
    message: Annotated[str, Meta(max_length=1000)]

    @property
    def passes(self) -> bool:
        """Whether asking again may help."""
        return self.code == "busy"


class Enrolled(msgspec.Struct, frozen=True, tag="enrolled", kw_only=True):
    """The identity document, as text; without a seed, which never left the vehicle."""

    identity: str

    def __repr__(self) -> str:
        return "Enrolled()"


Answer: TypeAlias = Enrolled | EnrolmentRefused
_read_answer: Reader[Answer] = Reader(Answer)  # type: ignore[arg-type] # a union is a type to msgspec


def request_subject(token_id: str) -> str:
    """Return where a token's vehicle asks."""
    return f"{SUBJECT}.{token_id}"


def answer_prefix(token_id: str) -> str:
    """Return where a token's vehicle hears answers, as the prefix of its inboxes."""
    return f"_INBOX_{token_id}"


def write_token(token: Token) -> str:
    """Return a token as one word of plain letters. Raises: EnrolmentError: it could not be read."""
    body = base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()
    text = _PREFIX + body
    read_token(text)
    return text


def read_token(text: str) -> Token:
    """Read a token as it was printed; space around it and line breaks in it do not matter.

    Raises:
        EnrolmentError: it is none, or part of one.
    """
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise EnrolmentError(
            f"longer than the {TOKEN_CHARACTERS_MAX} characters that a token may have"
        )
    word = "".join(text.split())
    body = word.removeprefix(_PREFIX)
    if body == word or not _BASE64.match(body):
        raise EnrolmentError(
            f"not a token: one begins with {_PREFIX}, as `backhaul-hub enrol` prints it"
        )
    try:
        token = read_typed(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), Token)
        _check(token)
    except (JsonError, binascii.Error, CredentialsError) as error:
        raise EnrolmentError("a damaged token, or only a part of it: copy all of it") from error
    return token


def write_request(token_id: str, key: Credentials) -> bytes:
    """Return the request to be known by a key, signed with it."""
    proof = prove(key, PURPOSE, token_id)
    return msgspec.json.encode(Request(token=token_id, public_key=key.public_key, proof=proof))


def read_request(subject: str, body: bytes) -> Request:
    """Read a request and prove that its signer holds the key it names.

    Raises:
        EnrolmentError: it is none, of another token than its subject's, or not signed by its key.
    """
    if len(body) > REQUEST_BYTES_MAX:
        raise EnrolmentError(f"a request of {len(body)} bytes, it has {REQUEST_BYTES_MAX} at most")
    try:
        request = read_typed(body, Request)
    except JsonError as error:
        raise EnrolmentError(f"not a request: {error}") from error
    if subject != request_subject(request.token):
        raise EnrolmentError("a request of another token than its subject names")
    if not is_user_key(request.public_key):
        raise EnrolmentError("the key in the request is no user's public key")
    if not holds(request.proof, request.public_key, PURPOSE, request.token):
        raise EnrolmentError("the request is not signed by the key that it names")
    return request


def write_answer(answer: Identity | EnrolmentRefused) -> bytes:
    """Return an answer. Raises: IdentityError: the document could not be read."""
    if isinstance(answer, EnrolmentRefused):
        return msgspec.json.encode(answer)
    assert not answer.seed, "a key that the hub knows is not the vehicle's own"
    return msgspec.json.encode(Enrolled(identity=encode_identity(answer)))


def read_answer(body: bytes, device: str) -> Identity | EnrolmentRefused:
    """Read the answer to a device's request.

    Raises:
        EnrolmentError: it is none, or of another device.
    """
    if len(body) > ANSWER_BYTES_MAX:
        raise EnrolmentError(f"an answer of {len(body)} bytes, it has {ANSWER_BYTES_MAX} at most")
    try:
        answer = _read_answer.read(body)
        if isinstance(answer, EnrolmentRefused):
            return answer
        identity = decode_identity(answer.identity)
    except (JsonError, IdentityError) as error:
        raise EnrolmentError(f"not an answer: {error}") from error
    if identity.device != device or not identity.jwt or identity.seed:
        raise EnrolmentError("an answer that is not to this request")
    return identity


def _check(token: Token) -> None:
    """Refuse a token that could not be used. Raises: CredentialsError, DecodeError."""
    login = token.credentials
    try:
        # What goes into the configuration of the server that asks is checked as an identity's is.
        encode_identity(
            Identity(
                device=token.device,
                token=token.id,
                leaf_urls=token.leaf_urls,
                ca=token.ca,
                jwt=login.jwt,
            )
        )
    except IdentityError as error:
        raise CredentialsError(str(error)) from error
