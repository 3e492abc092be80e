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
        "            if place in plan.wanted and self._holds(LaneKey(*place, leave[0]), leave[1])\n",
        "            if place in plan.wanted\n",
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
        "            or now_s - lane.moved_s > self.patience_s\n",
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
    Mutant(
        "leave-outlives-its-word",
        "a vehicle keeps its leave though between its word and a new one messages were not pushed",
        "hub/backhaul_hub/links/pushes.py",
        "if asked.get(place) != leave}",
        "if place not in asked}",
        named(
            "tests/hub/test_pushes.py",
            "test_a_lane_that_is_asked_for_anew_is_sourced_until_the_hub_has_what_was_not_pushed",
        ),
    ),
    Mutant(
        "leave-outlives-its-agent",
        "an older agent goes on in the place of one that pushed, and nothing is sourced",
        "hub/backhaul_hub/links/clock_service.py",
        "            self._on_push(device, 0, {})\n",
        "            pass\n",
        named(
            "tests/hub/test_clock_service.py",
            "test_whoever_does_not_speak_of_pushes_pushes_nothing",
        ),
    ),
    Mutant(
        "copies-by-seq",
        "of a lane that nobody sources, the messages that the hub asks for again go to OUT alone",
        "agent/backhaul_agent/uplink/lane.py",
        "        if self.pushing.pushes_again(self.name, size_of(row)):\n",
        "        if self.pushing.pushes(self.name, appender.position, size_of(row), 0):\n",
        named(
            "tests/agent/test_pushed_lane.py",
            "test_what_the_hub_lost_while_nothing_new_came_is_pushed_as_often_as_it_asks",
        ),
    ),
    Mutant(
        "epoch-untold",
        "of a new epoch the hub is not told that its lanes are to be sourced",
        "agent/backhaul_agent/push/policy.py",
        "            self.epoch = epoch\n            self._lanes.clear()\n",
        "            self.epoch = epoch\n            self._lanes.clear()\n            before = self.word\n",
        named(
            "tests/agent/test_push_policy.py",
            "test_the_hub_is_told_of_a_new_epoch_at_once",
        ),
    ),
    Mutant(
        "owed-coarsely",
        "a lane whose newest message is never confirmed counts all before it as owed, and is woken",
        "agent/backhaul_agent/uplink/appender.py",
        "        fineness = min(BUCKET_BYTES, self.outstanding_bytes // BUCKETS)\n",
        "        fineness = BUCKET_BYTES\n",
        named(
            "tests/agent/test_appender.py",
            "test_a_trickle_whose_newest_message_is_never_confirmed_owes_no_more_than_that",
        ),
    ),
    Mutant(
        "copies-never-land",
        "a lane that was asked for something again is never pushed any more",
        "agent/backhaul_agent/uplink/resend_requests.py",
        "        return LAND_S if self._resends.flying else None\n",
        "        return None\n",
        named(
            "tests/agent/test_pushed_lane.py",
            "test_copies_that_the_source_brought_keep_no_lane_from_being_pushed_again",
        ),
    ),
    Mutant(
        "terse-to-all",
        "an agent that does not read terse watermarks is told them, and believes that nothing is confirmed",
        "hub/backhaul_hub/links/beside.py",
        "terse(said.leaf_subject, said.body) if said.device in self._terse else None\n",
        "terse(said.leaf_subject, said.body)\n",
        named(
            "tests/hub/test_beside.py",
            "test_a_vehicle_that_reads_terse_watermarks_gets_them_and_more_seldom",
        ),
    ),
    Mutant(
        "burst-unbounded",
        "a burst is pushed at once, however slow the link is",
        "agent/backhaul_agent/push/policy.py",
        "        lane.flooded = lane.flooded or size < under_way > self._burst_bytes_max\n",
        "",
        named(
            "tests/agent/test_push_policy.py",
            "test_what_is_pushed_at_once_takes_the_link_for_two_seconds_at_most",
        ),
    ),
    Mutant(
        "node-asleep-behind",
        "the stream of a node sleeps before it has all its messages in DOWN",
        "agent/backhaul_agent/push/in_sleep.py",
        "(ends := self._ends) is not None and all(\n",
        "(ends := self._ends) is not None and any(\n",
        named(
            "tests/agent/test_in_sleep.py",
            "test_the_stream_of_a_node_keeps_all_awake_until_it_has_what_down_has",
        ),
    ),
    Mutant(
        "former-epochs-uncounted",
        "a source that brings messages of former epochs counts as one that brings nothing",
        "hub/backhaul_hub/links/source_keeper.py",
        "        return self._arrivals(place) if owes else None\n",
        "        return state.messages + state.repeats if owes else None\n",
        named("tests/hub/test_lag.py", "test_a_source_that_brings_what_a_former_ledger_had_works"),
    ),
    Mutant(
        "owed-unheard",
        "a source that has not heard its vehicle yet is set up again for the messages that the vehicle owes",
        "hub/backhaul_hub/links/source_keeper.py",
        ' and source["active"] >= 0:\n',
        ":\n",
        named(
            "tests/hub/test_lag.py",
            "test_nothing_is_expected_of_a_source_before_it_heard_its_device",
        ),
    ),
    Mutant(
        "woken-at-once",
        "all sleeping vehicles are woken at once",
        "hub/backhaul_hub/links/beside.py",
        "max(at_s, self._free_s)",
        "at_s",
        named(
            "tests/hub/test_beside.py",
            "test_a_fleet_is_woken_bit_by_bit_each_once_and_whoever_comes_meanwhile_behind_it",
        ),
    ),
    Mutant(
        "locks-given-up",
        "a second opening of hub.db gives up the locks of the first",
        "hub/backhaul_hub/db/store.py",
        "os.O_CREAT | os.O_EXCL | os.O_RDWR",
        "os.O_CREAT | os.O_RDWR",
        named(
            "tests/hub/test_registry.py",
            "test_what_is_written_after_another_opened_it_here_is_read_by_other_programs",
        ),
    ),
)
