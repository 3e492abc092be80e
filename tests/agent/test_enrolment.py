"""Asking a hub to be enrolled: over a bad link, interrupted anywhere, refused for any reason.

Not covered here: what a hub decides (tests/hub/test_enrolment.py), and the whole way with real
servers at both ends (tests/integration/test_enrolment.py).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nats.errors import NoRespondersError

from backhaul_agent.enrol.request import Attempt, ask, key_for, new_key, write_attempt
from backhaul_agent.enrol.temporary_leaf import asking, temporary_leaf
from backhaul_agent.errors import EnrolmentFailedError
from backhaul_codec.protocol.enrolment import EnrolmentRefused, read_request, write_answer
from backhaul_codec.protocol.identity import Identity
from tests.support.agent_clock import FakeClock
from tests.support.enrolment_tokens import some_token, unsigned_jwt, user_key
from tests.support.rig.ports import free_port
from tests.support.waiting import until

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


@pytest.mark.nats
async def test_the_server_to_ask_with_says_why_there_is_no_link_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    token = some_token(f"nats-leaf://127.0.0.1:{free_port()}")
    target = tmp_path / "asking"
    async with temporary_leaf(token, target) as leaf:
        assert (target / "token.creds").stat().st_mode & 0o777 == 0o600
        assert target.stat().st_mode & 0o777 == 0o700
        await until(lambda: any("refused" in each for each in leaf.complaints()))
        with pytest.raises(NoRespondersError):
            async with asking(leaf, token) as client:
                await client.request("enrol.x", b"", timeout=30)
    assert not target.exists()


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


@pytest.mark.nats
async def test_the_server_ends_with_a_killed_parent_and_the_next_run_clears_up(
    tmp_path: Path,
) -> None:
    script = """\
import asyncio, sys
from pathlib import Path
from backhaul_agent.enrol.temporary_leaf import asking, temporary_leaf
from tests.support.enrolment_tokens import some_token

async def main():
    async with temporary_leaf(some_token(), Path(sys.argv[1])):
        print("runs", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    target = tmp_path / "asking"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(target), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"runs\n"
    server = int(next(target.glob("*.ports")).stem.rpartition("_")[2])
    process.kill()
    await process.wait()
    await until(lambda: _gone(server))
    assert (target / "token.creds").exists()
    async with temporary_leaf(TOKEN, target):
        assert len(list(target.glob("*.ports"))) == 1
    assert not target.exists()


def _gone(pid: int) -> bool:
    try:
        said = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    # Killed, and not yet collected by whoever took it over.
    return said.rpartition(")")[2].split()[0] == "Z"
