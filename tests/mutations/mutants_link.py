"""Planted bugs in the guards of a lean link: dictionaries, and lanes that are pushed instead of sourced."""

from __future__ import annotations

from tests.mutations.mutant import Mutant, named

LINK_MUTANTS = (
    Mutant(
        "packed-unconfirmed",
        "a bundle is packed against a dictionary that the hub has not confirmed",
        "agent/backhaul_agent/commit/bundle_packer.py",
        "        return self._row(digest).confirmed and digest not in self._asked\n",
        "        return digest not in self._asked\n",
        named(
            "tests/agent/test_bundle_packer.py",
            "test_a_dictionary_is_sent_once_and_used_when_the_hub_has_confirmed_it",
        ),
    ),
    Mutant(
        "waiting-asked-for",
        "messages that wait in UP for their dictionary are asked for as gaps",
        "hub/backhaul_hub/continuity/resend_policy.py",
        "gaps, owed = state.wanted\n",
        "gaps, owed = state.gaps, state.owed\n",
        named(
            "tests/hub/test_repair.py",
            "test_what_waits_in_up_for_its_dictionary_is_not_asked_for",
        ),
    ),
    Mutant(
        "asleep-before-held",
        "a lane is sourced no more though the hub lacks messages that were not pushed",
        "hub/backhaul_hub/links/pushes.py",
        "            if self._holds(LaneKey(place.device, place.lane, word.epoch), word.lanes[place.lane])\n",
        "",
        named(
            "tests/hub/test_pushes.py",
            "test_a_lane_of_which_the_hub_lacks_anything_stays_sourced",
        ),
    ),
    Mutant(
        "asleep-unheard",
        "a lane is sourced no more though nothing takes its pushes in",
        "hub/backhaul_hub/links/pushes.py",
        "        if not (pusher.works and pushed in plan.applied):\n",
        "        if False:\n",
        named(
            "tests/hub/test_pushes.py",
            "test_the_pushes_are_sourced_first_and_heard_before_a_lane_sleeps",
        ),
    ),
    Mutant(
        "asleep-without-link",
        "a vehicle that connects again keeps its leave to push",
        "hub/backhaul_hub/links/pushes.py",
        "        self._pushers.pop(device, None)\n",
        "",
        named(
            "tests/hub/test_pushes.py",
            "test_with_its_link_a_device_loses_its_leave_and_one_without_gets_none",
        ),
    ),
    Mutant(
        "never-woken",
        "a lane sleeps on though the hub confirms none of its pushes",
        "agent/backhaul_agent/push/policy.py",
        "            or now_s - lane.moved_s > PATIENCE_S\n",
        "",
        named(
            "tests/agent/test_push_policy.py", "test_a_watermark_that_stands_still_wakes_the_lane"
        ),
    ),
    Mutant(
        "pushed-too-late",
        "the messages between the word to the hub and its leave are not pushed",
        "agent/backhaul_agent/push/policy.py",
        "        if lane is None or lane.after is None or seq <= lane.after:\n",
        "        if lane is None or not lane.asleep:\n",
        named(
            "tests/agent/test_push_policy.py",
            "test_a_calm_lane_is_pushed_from_the_next_message_on_and_sleeps_by_leave_of_the_hub",
        ),
    ),
)
