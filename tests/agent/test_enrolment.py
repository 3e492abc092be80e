"""Asking a hub to be enrolled: over a bad link, interrupted anywhere, refused for any reason.

Not covered here: what a hub decides (tests/hub/test_enrolment.py), and the whole way with real
servers at both ends (tests/integration/test_enrolment.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nats.errors import NoRespondersError

from backhaul_agent.enrol.request import Attempt, ask, key_for, new_key, write_attempt
from backhaul_agent.enrol.temporary_leaf import temporary_leaf
from backhaul_agent.errors import EnrolmentFailedError
from backhaul_codec.protocol.enrolment import EnrolmentRefused, read_request, write_answer
from backhaul_codec.protocol.identity import Identity
from tests.support.agent_clock import FakeClock
from tests.support.enrolment_tokens import some_token, unsigned_jwt, user_key

if TYPE_CHECKING:
    from backhaul_codec.protocol.credentials import Credentials

TOKEN = some_token()
KEY = user_key(2)
IDENTITY = Identity(device="VID-001", token="ab", leaf_urls=TOKEN.leaf_urls, jwt=unsigned_jwt(KEY))
ENROLLED = write_answer(IDENTITY)


class Hub:
    """Answers in turn what it is given: bytes, or the error that comes instead."""

    def __init__(self, *answers: bytes | Exception, complaint: str = "", times: int = 0) -> None:
        self.clock = FakeClock()
        self.asked: list[tuple[str, bytes]] = []
        self.waited_s: list[float] = []
        self.said: list[str] = []
        self.complaint = complaint
        self.times = times
        """How often that was said; 0: with every answer once more."""
        self._answers = list(answers)

    async def _request(self, subject: str, body: bytes, wait_s: float) -> bytes:
        self.asked.append((subject, body))
        self.waited_s.append(wait_s)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _pause(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def _complaints(self) -> list[str]:
        return [self.complaint] * (self.times or len(self.asked)) if self.complaint else []

    async def ask(self, *, wait_s: float = 60.0) -> Identity:
        return await ask(
            TOKEN, KEY, self._request, self.clock, wait_s=wait_s, complaints=self._complaints,
            report=self.said.append, pause=self._pause,
        )  # fmt: skip


async def test_it_asks_until_it_is_answered_and_says_once_what_it_waits_for() -> None:
    hub = Hub(NoRespondersError(), NoRespondersError(), TimeoutError(), b"garbage", ENROLLED)
    assert await hub.ask() == IDENTITY
    assert len(hub.asked) == 5
    assert len(set(hub.asked)) == 1
    assert hub.waited_s == [1.0, 2.0, 4.0, 8.0, 10.0]
    assert read_request(*hub.asked[0]).public_key == KEY.public_key
    assert len(hub.said) == 3


async def test_a_hub_that_is_busy_is_asked_again() -> None:
    hub = Hub(write_answer(EnrolmentRefused(code="busy", message="come back")), ENROLLED)
    assert await hub.ask() == IDENTITY
    assert "come back" in hub.said[0]


@pytest.mark.parametrize("code", ["unknown", "used", "expired", "revoked", "replaced", "old_key"])
async def test_a_refusal_ends_it_with_the_hubs_reason(code: str) -> None:
    hub = Hub(write_answer(EnrolmentRefused(code=code, message="because of that")))  # type: ignore[arg-type]
    with pytest.raises(EnrolmentFailedError, match="because of that") as caught:
        await hub.ask()
    assert caught.value.code == code
    assert "backhaul-hub enrol VID-001" in caught.value.hint or "revoke" in caught.value.hint
    assert len(hub.asked) == 1


async def test_without_an_answer_it_ends_with_what_the_link_says() -> None:
    hub = Hub(NoRespondersError(), complaint="connection refused")
    with pytest.raises(EnrolmentFailedError, match=r"in 10 s: connection refused"):
        await hub.ask(wait_s=10.0)


async def test_an_expired_token_is_not_let_in_and_it_says_so() -> None:
    hub = Hub(NoRespondersError(), complaint="Leafnode Error 'Authorization Violation'")
    hub.clock.wall_ns = TOKEN.expires_s * 10**9
    with pytest.raises(EnrolmentFailedError, match="has expired at 2106-02-07") as caught:
        await hub.ask()
    assert caught.value.code == "expired"


async def test_a_token_that_is_not_let_in_before_its_time_is_of_another_hub() -> None:
    hub = Hub(NoRespondersError(), complaint="Leafnode Error 'Authorization Violation'")
    with pytest.raises(EnrolmentFailedError, match="another hub") as caught:
        await hub.ask()
    assert caught.value.code == "foreign"


async def test_a_login_refused_once_as_the_hub_started_is_no_reason_to_give_up() -> None:
    refused = "Leafnode Error 'Authorization Violation'"
    hub = Hub(*[NoRespondersError()] * 9, ENROLLED, complaint=refused, times=1)
    assert await hub.ask() == IDENTITY
    assert len(hub.asked) == 10


def creds_of(key: Credentials) -> str:
    return type(key)(key.seed, key.public_key, unsigned_jwt(key)).text()


def test_a_new_token_gets_a_new_key() -> None:
    other = write_attempt(Attempt(token="f" * 24, seed=KEY.seed))
    keys = {
        key_for(TOKEN, attempt, creds).public_key
        for attempt in (None, "", "{", "\0", other)
        for creds in (None, creds_of(KEY))
    }
    assert len(keys) == 10
    assert KEY.public_key not in keys


def test_the_same_token_is_asked_with_by_the_same_key() -> None:
    begun = write_attempt(Attempt(token=TOKEN.id, seed=KEY.seed))
    done = write_attempt(Attempt(token=TOKEN.id))
    assert key_for(TOKEN, begun, None) == KEY
    assert key_for(TOKEN, begun, creds_of(new_key())) == KEY
    assert key_for(TOKEN, done, creds_of(KEY)).public_key == KEY.public_key


@pytest.mark.parametrize("creds", [None, "", "damaged"])
def test_a_token_whose_key_was_lost_is_not_asked_with_again(creds: str | None) -> None:
    done = write_attempt(Attempt(token=TOKEN.id))
    with pytest.raises(EnrolmentFailedError, match="its key is lost"):
        key_for(TOKEN, done, creds)


def test_no_repr_shows_a_key() -> None:
    assert KEY.seed not in repr(Attempt(token=TOKEN.id, seed=KEY.seed))


async def test_without_a_server_program_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(EnrolmentFailedError, match="no leaf server"):
        async with temporary_leaf(TOKEN, tmp_path / "asking", tmp_path / "nowhere"):
            pass
    assert not (tmp_path / "asking").exists()


async def test_a_server_that_does_not_start_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(EnrolmentFailedError, match="does not start"):
        async with temporary_leaf(TOKEN, tmp_path / "asking", Path("/bin/false")):
            pass
    assert not (tmp_path / "asking").exists()
