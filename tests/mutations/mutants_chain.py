"""Planted bugs in the guards of one identity, one history: hash chain, comparison, lock, rebuilt registry."""

from __future__ import annotations

from tests.mutations.mutant import Mutant, named

ANSWERED_WHEN_READ = """\
        if reader is None or not await self._has_read_all(reader):
            return None
        return {epoch: """

CHAIN_MUTANTS = (
    Mutant(
        "watermark-without-hash",
        "a vehicle believes the hub's watermark without comparing the hash",
        "agent/backhaul_agent/uplink/confirmations.py",
        "own = await self._ledger.hash_at(lane, claim.seq)",
        "own = claim.hash",
        named(
            "tests/agent/test_ledger_chain.py",
            "test_another_hash_ends_the_epoch_and_confirms_nothing",
            "test_a_hub_without_hashes_is_believed_of_messages_without_links_alone",
        ),
    ),
    Mutant(
        "over-unheard",
        "a vehicle goes on in an epoch of which the hub says that it is over",
        "agent/backhaul_agent/uplink/confirmations.py",
        "if claim.fork == _FORKED or (claim.fork and lane.epoch == self._ledger.epoch):",
        "if claim.fork == _FORKED:",
        named(
            "tests/agent/test_ledger_chain.py",
            "test_what_the_hub_says_of_a_fork_ends_the_epoch_though_the_hash_is_right",
        ),
    ),
    Mutant(
        "over-untold",
        "the hub does not tell a vehicle that its epoch is over",
        "hub/backhaul_hub/continuity/lane_book.py",
        "        fork = Fork.OVER if self.is_over(key)",
        "        fork = Fork.NONE if self.is_over(key)",
        named("tests/hub/test_former.py", "test_news_is_told_once_and_what_falls_is_news"),
    ),
    Mutant(
        "different-is-held",
        "a message counts as held where the hub holds another one in its place",
        "agent/backhaul_agent/uplink/reconcile.py",
        'if held in ("", hash_of(row.subject, row.body).hex()):',
        "if held is not None:",
        named(
            "tests/agent/test_reconcile.py",
            "test_what_the_hub_holds_stays_and_the_rest_moves_and_nothing_else",
        ),
    ),
    Mutant(
        "lacking-is-settled",
        "an epoch counts as settled though the hub lacks some of it",
        "agent/backhaul_agent/uplink/comparison.py",
        "        if again or later:\n",
        "        if (again or later) and rows:\n",
        named(
            "tests/agent/test_comparison.py",
            "test_what_the_hub_lacks_is_appended_again_and_settles_nothing",
        ),
    ),
    Mutant(
        "compared-early",
        "an epoch is compared while some of it is on its way to the hub",
        "agent/backhaul_agent/uplink/comparison.py",
        "return await OutStream(jetstream, lane.stream).taken(self._durable) >= known[1]",
        "return True",
        named(
            "tests/agent/test_comparison.py",
            "test_nothing_is_compared_before_the_hub_has_taken_all_that_out_held",
        ),
    ),
    Mutant(
        "purged-before-adoption",
        "OUT is emptied before messages that the ledger does not know are recorded",
        "agent/backhaul_agent/uplink/lane.py",
        "        await self.adoption.take_in(out, everything=True)\n",
        "",
        named(
            "tests/agent/test_lane_adoption.py",
            "test_what_out_alone_holds_is_in_the_ledger_before_out_is_emptied",
        ),
    ),
    Mutant(
        "others-word-adopted",
        "a message that OUT alone holds is left out if the hub holds another's in its place",
        "agent/backhaul_agent/uplink/adoption.py",
        "            hash_of(row.subject, row.body) == held.hash\n",
        "            True\n",
        named(
            "tests/agent/test_lane_adoption.py",
            "test_of_what_out_alone_holds_only_what_the_hub_has_for_certain_is_left_out",
        ),
    ),
    Mutant(
        "newer-out-unseen",
        "an OUT that holds newer epochs than the ledger counts as restored with it",
        "agent/backhaul_agent/uplink/epoch_sync.py",
        "if any(run.epoch not in self._ledger.epochs for run in out.runs):",
        "if not out.runs:",
        named(
            "tests/agent/test_epoch_words.py",
            "test_an_out_that_holds_what_came_after_the_copy_did_not_go_back",
        ),
    ),
    Mutant(
        "ledger-lock-not-taken",
        "the ledger's lock is not taken",
        "agent/backhaul_agent/ledger/lock.py",
        "fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(handle, fcntl.LOCK_UN)",
        named(
            "tests/agent/test_ledger_lock.py",
            "test_a_lock_is_held_until_it_is_released",
            "test_a_second_agent_refuses_with_the_pid_of_the_first_and_changes_nothing",
        ),
    ),
    Mutant(
        "fork-unseen",
        "the hub passes over a message that does not link to the one before it",
        "hub/backhaul_hub/continuity/chain.py",
        'return bool(own) and link not in (b"", NO_LINK) and own != link',
        "return False",
        named(
            "tests/hub/test_chain.py",
            "test_a_message_that_does_not_link_stops_what_is_told",
            "test_the_second_history_is_noticed_at_its_first_message",
        ),
    ),
    Mutant(
        "repeats-not-compared",
        "a message that comes again is taken for the same",
        "hub/backhaul_hub/continuity/chain.py",
        "return bool(own) and known != own and self.since != 1",
        "return False",
        named(
            "tests/hub/test_chain.py",
            "test_a_repeat_of_which_the_hash_is_not_at_hand_is_in_doubt_once",
        ),
    ),
    Mutant(
        "doubt-not-settled",
        "a repeat that UP shows to be another message makes no fork",
        "hub/backhaul_hub/continuity/repeats.py",
        "if not held or held == run.own.hex():",
        "if held or not held:",
        named(
            "tests/hub/test_hashes.py",
            "test_a_repeat_whose_hash_is_not_at_hand_is_compared_with_what_up_holds",
        ),
    ),
    Mutant(
        "answered-unread",
        "the hub answers of an epoch before it has read all of UP",
        "hub/backhaul_hub/uplink/known_epochs.py",
        ANSWERED_WHEN_READ,
        ANSWERED_WHEN_READ.replace(" or not await self._has_read_all(reader)", ""),
        named("tests/hub/test_known.py", "test_nothing_is_said_before_all_is_read"),
    ),
    Mutant(
        "former-told-once",
        "a vehicle that was told of a former epoch does not hear that the hub has lost some of it",
        "hub/backhaul_hub/continuity/former_epochs.py",
        "if self._told.get(place) != held",
        "if place not in self._told",
        named("tests/hub/test_former.py", "test_news_is_told_once_and_what_falls_is_news"),
    ),
    Mutant(
        "return-unseen",
        "a machine that is back after another one counts as its replacement",
        "hub/backhaul_hub/vehicles/identities.py",
        "    if back and not other_login:\n",
        "    if back and level > 3:\n",
        named(
            "tests/hub/test_identities.py",
            "test_what_gives_two_machines_away",
            "test_two_that_alternate_are_told_until_a_day_after_the_last_time",
        ),
    ),
    Mutant(
        "no-turns",
        "of two machines that are online at once both keep the link",
        "hub/backhaul_hub/vehicles/turns.py",
        "if known.holder != who and now_s < known.until_s:",
        "if known.holder is None and now_s < known.until_s:",
        named("tests/hub/test_turns.py", "test_they_take_turns_and_both_get_one"),
    ),
    Mutant(
        "revoked-rebuilt",
        "a rebuilt registry lets in again the keys that servers have shut out",
        "hub/backhaul_hub/backup/rebuild.py",
        "        void = revoked.keys() | told.keys()\n",
        "        void = revoked.keys()\n",
        named("tests/hub/test_rebuild.py", "test_all_that_traces_say_comes_back"),
    ),
)
