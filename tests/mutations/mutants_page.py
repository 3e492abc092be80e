"""Planted bugs of relays before UP, of the page's logins, of history for the page, and of the technician's."""

from __future__ import annotations

from tests.mutations.mutant import Mutant, named

PAGE_MUTANTS = (
    Mutant(
        "silent-relay-passes",
        "a shard that hears nothing of its relay is well",
        "hub/backhaul_hub/links/feeds.py",
        "if silent_s > SILENT_S else",
        "if silent_s > SILENT_S * 1000 else",
        named(
            "tests/hub/test_health.py", "test_a_shard_that_hears_nothing_of_its_relay_is_told_of"
        ),
    ),
    Mutant(
        "deaf-link-stays",
        "a link over which no lane is heard is kept for ever",
        "hub/backhaul_hub/links/deaf_links.py",
        "        watched.began_s, watched.wait_s = now_s, min(2 * watched.wait_s, _WAIT_S_MAX)\n        return True",
        "        watched.began_s, watched.wait_s = now_s, min(2 * watched.wait_s, _WAIT_S_MAX)\n        return False",
        named(
            "tests/hub/test_deaf_links.py",
            "test_a_link_over_which_no_lane_was_ever_heard_is_cut_less_and_less_often",
        ),
    ),
    Mutant(
        "heard-link-is-cut",
        "a lane that is set up again costs the vehicle its link",
        "hub/backhaul_hub/links/deaf_links.py",
        "            watched.began_s, watched.wait_s = now_s, _FIRST_WAIT_S\n",
        "            watched.wait_s = _FIRST_WAIT_S\n",
        named(
            "tests/hub/test_deaf_links.py",
            "test_a_lane_that_is_heard_keeps_the_link_and_one_that_is_set_up_again_has_a_minute",
        ),
    ),
    Mutant(
        "link-works-twice",
        "a link of the page lets in everybody that brings it",
        "hub/backhaul_hub/people/page_logins.py",
        "if link is None or link.used_ns:",
        "if link is None:",
        named(
            "tests/hub/test_page.py",
            "test_a_link_gives_one_key_the_rights_of_its_person_until_that_is_removed",
            "test_two_browsers_with_one_link_come_at_once_and_one_is_let_in",
        ),
    ),
    Mutant(
        "anybody-passes-on-logins",
        "a person may try tokens of links",
        "hub/backhaul_hub/people/page_logins.py",
        "if scope.person.name != PAGE:",
        "if not scope.person.name:",
        named(
            "tests/hub/test_page.py",
            "test_who_serves_the_page_may_pass_on_logins_and_nothing_else",
        ),
    ),
    Mutant(
        "history-is-never-full",
        "a server of history that stands still holds up every question there is",
        "hub/backhaul_hub/people/history.py",
        "if self._under_way >= AT_ONCE:",
        "if self._under_way >= 1000 * AT_ONCE:",
        named(
            "tests/hub/test_past_gate.py",
            "test_a_server_that_stands_still_holds_up_so_many_questions_alone",
        ),
    ),
    Mutant(
        "code-is-found-by-trying",
        "an address that was wrong may try codes as quickly as it likes",
        "agent/backhaul_agent/page/gate.py",
        "tries.free_at_s = now_s + wait_s",
        "tries.free_at_s = now_s",
        named(
            "tests/agent/test_page_gate.py",
            "test_an_address_waits_longer_each_time_it_was_wrong_and_is_not_judged_meanwhile",
        ),
    ),
    Mutant(
        "page-of-elsewhere-asks",
        "a name that leads to the vehicle is as good as its own",
        "agent/backhaul_agent/page/gate.py",
        'return name in ("localhost", *names)',
        "return True",
        named("tests/agent/test_page_gate.py", "test_a_request_of_a_page_of_elsewhere_is_refused"),
    ),
    Mutant(
        "technician-needs-no-code",
        "questions of the page are answered without a session",
        "agent/backhaul_agent/page/technician.py",
        "if not self._gate.knows(token, now_s):",
        'if name == "" and not self._gate.knows(token, now_s):',
        named(
            "tests/security/test_technician.py",
            "test_nobody_gets_in_without_the_code_and_the_command_shows_it",
        ),
    ),
    Mutant(
        "peak-is-lost",
        "a bucket of the technician's chart shows its last reading for its greatest",
        "agent/backhaul_agent/page/past.py",
        "max(row[2], value)",
        "value",
        named(
            "tests/agent/test_page_values.py",
            "test_no_peak_of_a_chart_is_lost_and_none_is_made",
        ),
    ),
)
