"""Who gets in to the technician's page, and which requests are its own."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest

from backhaul_agent.page.gate import (
    ADDRESSES_MAX,
    ALPHABET,
    FREE_TRIES,
    SESSIONS_MAX,
    WAIT_S_MAX,
    WRONG_MAX,
    WRONG_WITHIN_S,
    CodeGate,
    CodeRefusedError,
    make_code,
    refusal,
)

ELSEWHERE = "192.168.1.7"


def _all_of(byte: int, size: int) -> bytes:
    return bytes([byte] * size)


def gate() -> CodeGate:
    numbers = count()
    return CodeGate("ABCD-EFGH", lambda: f"token{next(numbers)}", 100.0)


def refused(it: CodeGate, said: str, address: str, now_s: float) -> CodeRefusedError:
    with pytest.raises(CodeRefusedError) as found:
        it.log_in(said, address, now_s)
    return found.value


def test_a_code_is_of_letters_that_no_two_look_alike_and_all_come() -> None:
    codes = [make_code(partial(_all_of, at)) for at in range(256)]
    assert {len(each) for each in codes} == {9}
    assert set("".join(codes)) == {*ALPHABET, "-"}
    assert not {*"01IO"} & {*ALPHABET}
    assert make_code(lambda _: bytes(range(8))) == "2345-6789"


def test_a_code_gets_in_however_it_is_written() -> None:
    it = gate()
    for said in ("ABCD-EFGH", "abcdefgh", " abcd efgh "):
        assert it.knows(it.log_in(said, ELSEWHERE, 0.0), 1.0)
    for wrong in ("", "ABCD-EFG", "ABCD-EFGHJ", "äöü", "ABCD-EFGJ"):
        assert refused(gate(), wrong, ELSEWHERE, 0.0).judged


def test_an_address_waits_longer_each_time_it_was_wrong_and_is_not_judged_meanwhile() -> None:
    it, waits, now_s = gate(), [], 0.0
    for _ in range(FREE_TRIES + 8):
        found = refused(it, "WRNG", ELSEWHERE, now_s)
        assert found.judged
        waits.append(found.wait_s)
        if found.wait_s:
            # Also the right code is not looked at: else a try would cost nothing.
            early = refused(it, "ABCD-EFGH", ELSEWHERE, now_s + found.wait_s - 0.1)
            assert not early.judged
        now_s += found.wait_s + 30.0
    assert waits == [0.0] * (FREE_TRIES - 1) + [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert max(waits) == WAIT_S_MAX
    assert it.knows(it.log_in("ABCDEFGH", ELSEWHERE, now_s), now_s)
    assert refused(it, "WRNG", ELSEWHERE, now_s).wait_s == 0, "a right one makes good"


def test_many_addresses_together_wait_and_this_machine_does_not() -> None:
    it = gate()
    for number in range(WRONG_MAX):
        assert refused(it, "WRNG", f"10.0.0.{number}", 1.0).judged
    assert not refused(it, "ABCD-EFGH", "10.0.1.1", 2.0).judged
    assert it.log_in("ABCD-EFGH", "127.0.0.1", 2.0)
    assert it.log_in("ABCD-EFGH", "10.0.1.1", 1.0 + WRONG_WITHIN_S)
    for number in range(2 * ADDRESSES_MAX):
        refused(it, "WRNG", f"127.0.{number // 200}.{number % 200}", 500.0)
    assert it.log_in("ABCD-EFGH", "10.0.1.1", 501.0), "this machine's own tries hold up nobody else"


def test_a_session_ends_by_itself_by_a_word_and_by_newer_ones() -> None:
    it = gate()
    first = it.log_in("ABCD-EFGH", ELSEWHERE, 0.0)
    assert it.knows(first, 99.0)
    assert not it.knows(first, 100.0)
    assert not it.knows("", 0.0)
    assert not it.knows("tökén", 0.0)
    second = it.log_in("ABCD-EFGH", ELSEWHERE, 0.0)
    it.log_out(second)
    assert not it.knows(second, 0.0)
    newer = [it.log_in("ABCD-EFGH", ELSEWHERE, 0.0) for _ in range(SESSIONS_MAX)]
    assert not it.knows(first, 0.0)
    assert all(it.knows(each, 0.0) for each in newer)


@pytest.mark.parametrize(
    ("method", "host", "origin"),
    [
        ("GET", "127.0.0.1:8480", None),
        ("GET", "192.168.1.2", None),
        ("GET", "[::1]:8480", None),
        ("POST", "localhost:9000", "http://localhost:9000"),
        ("POST", "Van-7.local:8480", "http://van-7.local:8480"),
    ],
)
def test_a_request_of_the_page_itself_is_let_through(
    method: str, host: str, origin: str | None
) -> None:
    assert refusal(method, host, origin, {"van-7.local"}) == ""


@pytest.mark.parametrize(
    ("method", "host", "origin"),
    [
        ("GET", "evil.example", None),
        ("GET", "evil.example:8480", "http://evil.example:8480"),
        ("GET", "127.0.0.1.evil.example:8480", None),
        ("GET", "", None),
        ("GET", "127.0.0.1:8480,evil.example", None),
        ("GET", "127.0.0.1:8480", "http://evil.example"),
        ("POST", "127.0.0.1:8480", None),
        ("POST", "127.0.0.1:8480", "null"),
        ("POST", "127.0.0.1:8480", "https://127.0.0.1:8480"),
        ("POST", "127.0.0.1:8480", "http://127.0.0.1:9999"),
        ("POST", "127.0.0.1:8480", "http://localhost:8480"),
        ("POST", "127.0.0.1:8480", "http://127.0.0.1:8480.evil.example"),
        ("OPTIONS", "127.0.0.1:8480", "http://evil.example"),
    ],
)
def test_a_request_of_a_page_of_elsewhere_is_refused(
    method: str, host: str, origin: str | None
) -> None:
    assert refusal(method, host, origin, {"van-7.local"})
