"""Planted bugs in guards of the hub and the vehicle against copies, local programs and files from outside."""

from __future__ import annotations

from tests.mutations.mutant import Mutant, named

GUARD_MUTANTS = (
    Mutant(
        "taken-in-as-own",
        "messages that were taken in from OUT count as this ledger's own for rows that are staged",
        "agent/backhaul_agent/uplink/adoption.py",
        "        self._note(out, work)\n",
        "",
        named(
            "tests/agent/test_epoch_words.py",
            "test_what_was_taken_in_from_out_may_be_what_was_staged",
        ),
    ),
    Mutant(
        "purged-before-noted",
        "OUT is emptied before it is written down which messages the hub alone holds then",
        "agent/backhaul_agent/uplink/adoption.py",
        "        if self._noted:  #",
        "        if not self._noted:  #",
        named(
            "tests/agent/test_epoch_words.py",
            "test_a_kill_after_out_was_emptied_forgets_nothing_that_the_hub_alone_holds",
        ),
    ),
    Mutant(
        "older-accounts-pushed",
        "a hub.db that is older than the servers' accounts pushes its own",
        "hub/backhaul_hub/access/generations.py",
        "return newest if newest.digest == wanted else None",
        "return Generation(newest.number + 1, wanted)",
        named(
            "tests/hub/test_generations.py",
            "test_a_generation_goes_up_with_each_change_and_never_down",
        ),
    ),
    Mutant(
        "lost-registry-runs",
        "the control plane runs with an empty registry though there were devices",
        "hub/backhaul_hub/backup/lost_registry.py",
        "    if devices and (api is None or await has_durables(api, devices)):",
        "    if api is None or not devices or await has_durables(api, devices):",
        named("tests/hub/test_rebuild.py", "test_any_trace_of_a_device_is_one_too_many"),
    ),
    Mutant(
        "agentless-is-well",
        "a vehicle whose link is up counts as healthy without an agent",
        "hub/backhaul_hub/health/judge.py",
        "if seen.up and seen.agent is False:",
        "if seen.up and seen.agent is None:",
        named(
            "tests/hub/test_health.py",
            "test_a_link_that_is_up_without_an_agent_is_an_error_after_a_while",
        ),
    ),
    Mutant(
        "backup-name-believed",
        "a backup's manifest may name a file anywhere",
        "hub/backhaul_hub/backup/manifest.py",
        'if FILE.fullmatch(name) is None or name.rpartition("/")[2] in (".", ".."):',
        "if not name:",
        named(
            "tests/hub/test_backup_names.py",
            "test_a_name_that_leads_elsewhere_is_refused_and_nothing_is_written",
            "test_an_absolute_name_is_refused",
        ),
    ),
    Mutant(
        "backup-link-followed",
        "a symbolic link inside a backup is followed",
        "hub/backhaul_hub/backup/names.py",
        "if not stat.S_ISREG(os.lstat(path).st_mode)",
        "if not stat.S_ISREG(os.stat(path).st_mode)",
        named(
            "tests/hub/test_backup_names.py",
            "test_a_symbolic_link_inside_a_backup_is_not_followed",
        ),
    ),
    Mutant(
        "room-promised-twice",
        "room for a file is promised again to the next one before it is used",
        "agent/backhaul_agent/artifacts/store.py",
        "        promised = sum(max(0, end - self.size(each)) for each, end in growing.items())\n",
        "        promised = 0\n",
        named("tests/agent/test_artifact_room.py", "test_room_is_promised_once"),
    ),
    Mutant(
        "bundle-out-of-step",
        "rows of a recording are taken that were kept before",
        "agent/backhaul_agent/ingest/replay_book.py",
        "follows = bundle.first == rows and (kept is None or kept.digest == bundle.before)",
        "follows = bundle.first <= rows",
        named("tests/agent/test_replay_once.py", "test_rows_follow_one_another_in_the_book"),
    ),
    Mutant(
        "wrong-unit-stamped",
        "a recording whose times have another unit is stamped as of now",
        "codec/backhaul_codec/recordings/times.py",
        "        if bad <= max(FEW_ROWS, FEW_SHARE * self.rows) and 2 * bad < max(self.rows, 1):",
        "        if bad <= self.rows:",
        named(
            "tests/agent/test_replay_once.py",
            "test_times_by_a_wrong_unit_are_refused_with_the_one_it_looks_like",
        ),
    ),
    Mutant(
        "name-twice-taken",
        "of a name that stands twice in a JSON object one value vanishes",
        "codec/backhaul_codec/strict/json.py",
        "    if data.count(b'\"') != 2 * found and len(_STRINGS.findall(data)) != found:",
        "    if len(data) < found:",
        named(
            "tests/codec/test_strict_json.py",
            "test_a_name_that_stands_twice_is_refused_wherever_it_stands",
        ),
    ),
    Mutant(
        "child-awaited",
        "a command is over only when nothing holds its output open any more",
        "agent/backhaul_agent/commands/child.py",
        "        await self._exited.wait()\n",
        "        await self._silent.wait()\n",
        named(
            "tests/agent/test_command_runs.py",
            "test_a_run_is_over_when_its_process_is_though_a_child_holds_its_output",
        ),
    ),
    Mutant(
        "silence-of-the-healthy",
        "the rule `silence` warns of a vehicle whose agent has nothing to say",
        "spark/backhaul_spark/rules/catalog/silence.py",
        'state["alive"] & (state["heard_ns"] > 0),',
        'state["alive"] & (state["heard_ns"] < 0),',
        named(
            "tests/spark/rules/test_rules.py",
            "test_a_vehicle_that_is_there_and_has_nothing_to_say_is_not_silent",
        ),
    ),
    Mutant(
        "short-token-logged",
        "a log hides only tokens of the former form",
        "codec/backhaul_codec/programs/log_lines.py",
        "(?=(....)){DEVICE_TOKEN}",
        "(?=(....))[0-9a-f]{{24}}",
        named("tests/codec/test_log_lines.py", "test_a_vehicles_token_stands_in_no_field"),
    ),
    Mutant(
        "requests-forgotten",
        "a request of before the hub's restart goes on naming a machine that may give up nothing any more",
        "hub/backhaul_hub/uplink/notify.py",
        "self._asked = await self.standing() | self._asked",
        "await self.standing()",
        named(
            "tests/hub/test_telling.py",
            "test_a_request_of_an_earlier_control_plane_is_made_anew_for_another_machine",
        ),
    ),
    Mutant(
        "repaired-beside-damage",
        "a server loses its store while another one lacks messages",
        "hub/backhaul_hub/streams/repair_rules.py",
        "        if each.server != server:\n",
        "        if not each.server:\n",
        named(
            "tests/hub/test_repair_rules.py",
            "test_another_one_that_lacks_messages_is_a_reason_against_it",
        ),
    ),
    Mutant(
        "repaired-beside-late",
        "a server loses its store while another one's replica is behind",
        "hub/backhaul_hub/streams/repair_rules.py",
        "_late(stream.cluster, others)",
        "_late(stream.cluster, ())",
        named(
            "tests/hub/test_repair_rules.py",
            "test_a_replica_that_is_not_current_by_its_leaders_word_is",
        ),
    ),
)
