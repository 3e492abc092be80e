"""The gate of the technician's page: a code that is made when the agent starts, and sessions. Pure.

A code is 40 random bits, good until the agent's end. One address may try it a few times, then waits, each time twice as
long; all addresses but this machine's own together may be wrong so often in a minute. Thus nobody finds it by trying.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""32 letters and digits of which no two look alike."""
CODE_LETTERS = 8
FREE_TRIES = 5
WAIT_S_MAX = 60.0
WRONG_MAX = 30
WRONG_WITHIN_S = 60.0
ADDRESSES_MAX = 256
SESSIONS_MAX = 16


class CodeRefusedError(Exception):
    """A try that does not get in; ``judged``: the code was wrong. Else nobody looked at it: it came too early."""

    def __init__(self, *, judged: bool, wait_s: float, tries: int = 0) -> None:
        super().__init__("wrong code" if judged else "too many tries")
        self.judged = judged
        self.wait_s = wait_s
        self.tries = tries


def make_code(random: Callable[[int], bytes]) -> str:
    """Return a new code, as people read it: ``7KQM-2XPA``."""
    letters = [ALPHABET[byte % len(ALPHABET)] for byte in random(CODE_LETTERS)]
    half = CODE_LETTERS // 2
    return f"{''.join(letters[:half])}-{''.join(letters[half:])}"


def normal(code: str) -> str:
    """Return a code as it is compared: people leave out the dash, and write small letters."""
    return "".join(code.upper().split()).replace("-", "")


@dataclass(slots=True)
class _Tries:
    wrong: int = 0
    free_at_s: float = 0.0


class CodeGate:
    """Lets a browser in by the code. Times are monotonic seconds.

    Args:
        code: as `make_code` returns it.
        new_token: draws the token of a session, which nobody can guess.
        session_s: for how long a session lasts.
    """

    def __init__(self, code: str, new_token: Callable[[], str], session_s: float) -> None:
        self._code = normal(code).encode()
        self._new_token = new_token
        self._session_s = session_s
        self._tries: OrderedDict[str, _Tries] = OrderedDict()
        self._wrong_s: deque[float] = deque(maxlen=WRONG_MAX)
        self._sessions: OrderedDict[str, float] = OrderedDict()

    def log_in(self, said: str, address: str, now_s: float) -> str:
        """Return the token of a new session. Raises: CodeRefusedError."""
        tries = self._tries.get(address) or _Tries()
        wait_s = max(tries.free_at_s - now_s, self._all_wait_s(address, now_s))
        if wait_s > 0:
            raise CodeRefusedError(judged=False, wait_s=wait_s, tries=tries.wrong)
        # In bytes: compare_digest takes no other letters than those of ASCII as text.
        if not hmac.compare_digest(normal(said).encode(), self._code):
            tries.wrong += 1
            over = tries.wrong - FREE_TRIES
            wait_s = min(WAIT_S_MAX, 2.0**over) if over >= 0 else 0.0
            tries.free_at_s = now_s + wait_s
            self._note(address, tries)
            if not _is_loopback(address):
                self._wrong_s.append(now_s)
            raise CodeRefusedError(judged=True, wait_s=wait_s, tries=tries.wrong)
        self._tries.pop(address, None)
        token = self._new_token()
        self._sessions[token] = now_s + self._session_s
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return token

    def knows(self, token: str, now_s: float) -> bool:
        """Return whether a token is one of a session that has not ended."""
        found = False
        for known, end_s in self._sessions.items():  # all of them, so that the time tells nothing
            found |= hmac.compare_digest(known.encode(), token.encode()) and now_s < end_s
        return found

    def log_out(self, token: str) -> None:
        """End a session."""
        self._sessions.pop(token, None)

    def _note(self, address: str, tries: _Tries) -> None:
        self._tries[address] = tries
        self._tries.move_to_end(address)
        while len(self._tries) > ADDRESSES_MAX:
            self._tries.popitem(last=False)

    def _all_wait_s(self, address: str, now_s: float) -> float:
        """Return how long everybody elsewhere waits: an attacker may have many addresses."""
        if len(self._wrong_s) < WRONG_MAX or _is_loopback(address):
            return 0.0
        return self._wrong_s[0] + WRONG_WITHIN_S - now_s


def refusal(method: str, host: str, origin: str | None, names: Collection[str]) -> str:
    """Return why a request is not one of this page's own; empty where it is.

    A page of elsewhere can have a browser ask here under a name that leads here (DNS rebinding), so a name must be
    known; an address is no name. A browser says in a header, which no page can change, from which page a request comes.

    Args:
        method: of the request.
        host: header Host.
        origin: header Origin, None where there is none.
        names: under which the page is reached, beside addresses and localhost; in small letters.
    """
    if not _is_known(host, names):
        return "the page is not known under this name: [page] names in agent.toml"
    if origin is None:
        return "" if method in ("GET", "HEAD") else "no header Origin"
    return "" if origin.lower() == f"http://{host.lower()}" else "not from this page"


def _is_known(host: str, names: Collection[str]) -> bool:
    name, colon, port = host.lower().rpartition(":")
    if not (colon and port.isdigit()):
        name = host.lower()
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name in ("localhost", *names)
    return True


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
