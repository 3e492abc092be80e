"""Planted bugs in alerts: what is open, who is told, how often, and by whose right."""

from __future__ import annotations

from tests.mutations.mutant import Mutant, named

_ROOM = "hub/backhaul_hub/alerts"

ALERT_MUTANTS = (
    Mutant(
        "hidden-is-over",
        "an alert is over as soon as another condition hides its own",
        f"{_ROOM}/book.py",
        'key.source != "health" or key in there or key in found or not settled',
        'key.source != "health" or key in there or not settled',
        named(
            "tests/hub/test_alert_book.py", "test_a_condition_that_another_one_hides_is_not_over"
        ),
    ),
    Mutant(
        "restart-ends-alerts",
        "a control plane that has just started calls conditions over that it has not found yet",
        f"{_ROOM}/book.py",
        " or key in found or not settled(key.name)",
        " or key in found",
        named(
            "tests/hub/test_alert_book.py",
            "test_after_a_restart_a_condition_has_time_to_be_found_again",
        ),
    ),
    Mutant(
        "told-at-each-start",
        "each start of the control plane tells people of all open alerts anew",
        f"{_ROOM}/service.py",
        "            await rows.told_of(registry),\n",
        "            {},\n",
        named(
            "tests/hub/test_alert_service.py",
            "test_an_alert_is_told_once_however_often_the_control_plane_starts",
        ),
    ),
    Mutant(
        "sent-again-renamed",
        "a message that may have arrived goes again with more in it, under another name",
        f"{_ROOM}/delivery.py",
        "            self.queues[channel].resume(message, notices)\n",
        "            pass\n",
        named(
            "tests/hub/test_alert_service.py",
            "test_a_message_whose_answer_was_not_recorded_goes_again_under_its_name",
        ),
    ),
    Mutant(
        "sent-not-recorded",
        "a message that was taken is not recorded as sent",
        f"{_ROOM}/delivery.py",
        "            await self._record(message)\n",
        "",
        named(
            "tests/hub/test_alert_service.py",
            "test_an_alert_is_told_once_however_often_the_control_plane_starts",
        ),
    ),
    Mutant(
        "failure-dropped",
        "a notice is dropped when its channel fails",
        f"{_ROOM}/delivery.py",
        "            self._failed(queue, str(error), error.after_s)\n",
        "            self._failed(queue, str(error), error.after_s)\n            queue.sent(0.0)\n",
        named(
            "tests/hub/test_alert_service.py",
            "test_a_channel_that_fails_loses_nothing_and_says_why",
        ),
    ),
    Mutant(
        "line-in-a-subject",
        "a vehicle's text brings line ends into subjects of mails",
        f"{_ROOM}/alert.py",
        '" " if category(each)[0] in "CZ" else each',
        '" " if category(each)[0] in "Z" else each',
        named(
            "tests/hub/test_alert_book.py",
            "test_what_steers_a_terminal_or_begins_a_header_is_gone",
        ),
    ),
    Mutant(
        "secret-of-the-group",
        "a secret that the file's group may read is used",
        f"{_ROOM}/secret_files.py",
        "    if mode & 0o077:\n",
        "    if mode & 0o007:\n",
        named(
            "tests/hub/test_alert_settings.py",
            "test_a_secret_that_others_may_read_is_refused_with_what_to_do",
        ),
    ),
    Mutant(
        "acknowledged-by-others",
        "a person acknowledges alerts of another group",
        "hub/backhaul_hub/people/services.py",
        "        if device is None or not scope.sees(device or FLEET):\n",
        "        if device is None:\n",
        named("tests/hub/test_alert_people.py", "test_nobody_acknowledges_an_alert_of_others"),
    ),
    Mutant(
        "unsilenced-by-others",
        "a person ends a silence of another group",
        "hub/backhaul_hub/people/services.py",
        "            if place is None or not scope.sees(place):\n",
        "            if place is None:\n",
        named("tests/hub/test_alert_people.py", "test_nobody_begins_or_ends_a_silence_of_others"),
    ),
)
