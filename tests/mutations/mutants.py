"""The planted bugs: each one edit of one file, and the few quick tests that must go red for it."""

from __future__ import annotations

from tests.mutations.mutant import Mutant, named
from tests.mutations.mutants_alerts import ALERT_MUTANTS
from tests.mutations.mutants_chain import CHAIN_MUTANTS
from tests.mutations.mutants_guards import GUARD_MUTANTS
from tests.mutations.mutants_link import LINK_MUTANTS
from tests.mutations.mutants_page import PAGE_MUTANTS
from tests.mutations.mutants_spark import SPARK_MUTANTS

ACKNOWLEDGED_EARLY = """\
        arrival.answer(arrival.content, None)
        arrival = arrival._replace(answer=lambda content, refusal: None)
        self._pending.append("""


MUTANTS = (
    Mutant(
        "ledger-not-synced",
        "the ledger commits without fsync",
        "agent/backhaul_agent/ledger/schema.py",
        'execute("PRAGMA synchronous = FULL")',
        'execute("PRAGMA synchronous = OFF")',
        named("tests/agent/test_ledger.py", "test_synced_at_every_commit"),
    ),
    Mutant(
        "hub-db-not-synced",
        "hub.db commits without fsync",
        "hub/backhaul_hub/db/migrations.py",
        'execute("PRAGMA synchronous = FULL")',
        'execute("PRAGMA synchronous = OFF")',
        named("tests/hub/test_registry.py", "test_synced_at_every_commit"),
    ),
    Mutant(
        "acknowledged-early",
        "a program hears `kept` before the commit",
        "agent/backhaul_agent/commit/queues.py",
        "        self._pending.append(",
        ACKNOWLEDGED_EARLY,
        named("tests/agent/test_writer.py", "test_a_failing_disk_refuses_clearly_and_heals"),
    ),
    Mutant(
        "evicted-in-silence",
        "the ledger evicts without a receipt",
        "agent/backhaul_agent/commit/eviction.py",
        "changes.messages.append(self._receipt(lane.name, lane.epoch, lo, hi, reason, chain))",
        "pass",
        named(
            "tests/agent/test_eviction.py",
            "test_the_oldest_telemetry_goes_with_one_receipt_for_each_spell",
        ),
    ),
    Mutant(
        "expected-sequence-forgotten",
        "messages are appended without the last sequence that is expected",
        "agent/backhaul_agent/uplink/out_stream.py",
        'headers={"Nats-Expected-Last-Sequence": str(expected), **headers}',
        "headers=dict(headers)",
        named("tests/agent/test_lane.py", "test_only_the_first_of_the_late_appends_arrives"),
    ),
    Mutant(
        "resend-dropped",
        "of a resend the first run is dropped",
        "agent/backhaul_agent/uplink/resend.py",
        "self._asked = deque(works)",
        "self._asked = deque(list(works)[1:])",
        named("tests/agent/test_resend.py", "test_a_newer_request_replaces_the_older_but_no_drain"),
    ),
    Mutant(
        "command-run-again",
        "a command that a kill cut short is started again",
        "agent/backhaul_agent/commands/decide.py",
        "return self._is_safe(row) and row.runs < RUNS_MAX",
        "return row.runs < RUNS_MAX",
        named(
            "tests/agent/test_commands.py",
            "test_a_run_cut_short_is_run_again_only_where_that_does_no_harm",
            "test_a_run_cut_short_is_reported_and_never_started_again",
        ),
    ),
    Mutant(
        "repair-skipped",
        "a gap is never asked for",
        "hub/backhaul_hub/continuity/resend_policy.py",
        "return quiet_s >= GRACE_S or known.quiet_since_s < view.up_since_s",
        "return False",
        named("tests/hub/test_repair.py", "test_a_gap_is_asked_for_once_it_has_stood_for_a_while"),
    ),
    Mutant(
        "lag-trusted",
        "a source that reports lag 0 is believed against the vehicle's word",
        "hub/backhaul_hub/links/source_keeper.py",
        'if silent_s < SILENT_LINK_S and source["active"] >= 0:',
        'if silent_s < SILENT_LINK_S and source["active"] >= 0 and source["lag"]:',
        named("tests/hub/test_lag.py", "test_a_source_that_stands_still_at_lag_0_is_set_up_again"),
    ),
    Mutant(
        "watermark-over-hole",
        "the watermark is the highest seq that came, gaps or not",
        "hub/backhaul_hub/continuity/lane_state.py",
        "return self.accounted.contiguous",
        "return self.accounted.highest",
        named(
            "tests/hub/test_continuity.py",
            "test_watermark_never_passes_what_is_neither_held_nor_explained",
        ),
    ),
    Mutant(
        "complete-over-hole",
        "an hour is reported `complete` though something of it is missing",
        "codec/backhaul_codec/assurance/completeness.py",
        '"waiting" if missing or open_ended else',
        '"waiting" if open_ended else',
        named(
            "tests/codec/test_completeness.py",
            "test_a_hole_makes_its_hour_wait_and_no_other",
            "test_never_complete_over_a_hole",
        ),
    ),
    Mutant(
        "older-head-stays",
        "of two values of a head the older one stays",
        "codec/backhaul_codec/state/merge.py",
        "winner = b if _compare(b, a) > 0 else a",
        "winner = b if _compare(b, a) < 0 else a",
        named("tests/codec/test_merge.py", "test_neither_time_nor_tombstone_goes_back"),
    ),
    Mutant(
        "repeat-kept",
        "a repeat of a message in the table counts as new",
        "spark/backhaul_spark/ingest/coverage.py",
        "        repeated[rows[held]] = True\n",
        "",
        named(
            "tests/spark/test_coverage.py",
            "test_each_identity_is_new_once_and_its_first_message_is_the_one_kept",
        )
        + named("tests/spark/test_ingest.py", "test_repeats_are_known_after_a_restart"),
    ),
    Mutant(
        "batch-done-before-its-data",
        "ingest commits a batch's number before its points",
        "spark/backhaul_spark/ingest/batch.py",
        "        number = self.tables.next_ingest\n        messages = pa.",
        "        self.tables.commit_points([], app, batch)\n"
        "        number = self.tables.next_ingest\n        messages = pa.",
        named("tests/spark/test_ingest.py", "test_killed_at_any_step_every_point_is_there_once"),
    ),
    Mutant(
        "gap-in-silence",
        "the source skips deleted messages in a range of a stream, and no row says so",
        "spark/backhaul_spark/source/jetstream_source.py",
        "for lo, hi in holes(part.seqs, expected):",
        "for lo, hi in holes(part.seqs[:1], part.seqs[0]):",
        named(
            "tests/spark/test_direct_get.py", "test_deleted_messages_inside_a_range_are_a_gap_row"
        ),
    ),
    Mutant(
        "wrong-token",
        "the twins' changes are saved under a token that is not theirs",
        "spark/backhaul_spark/rules/kept.py",
        "token = _token(at.token, changes)",
        "token = at.token",
        named(
            "tests/spark/rules/test_kept.py",
            "test_any_worker_goes_on_where_another_was",
            "test_a_batch_that_failed_is_not_remembered",
        ),
    ),
    Mutant(
        "hub-step-followed",
        "the control plane goes by its machine's clock at once, wherever that was set to",
        "hub/backhaul_hub/hub_time.py",
        "if steady - self.step.since_ns < self._confirm_ns:",
        "if steady < self.step.since_ns:",
        named(
            "tests/hub/test_hub_time.py",
            "test_a_step_that_is_taken_back_has_no_effect",
            "test_a_control_plane_that_starts_while_the_clock_is_wrong_knows_it",
        ),
    ),
    Mutant(
        "hub-step-believed",
        "a vehicle follows the hub's clock on one answer, wherever that was set to",
        "agent/backhaul_agent/hub_time/estimator.py",
        "        if not self._confirmed(",
        "        if False and not self._confirmed(",
        named(
            "tests/agent/test_clock_step.py",
            "test_a_step_of_the_hubs_clock_that_comes_back_is_never_followed",
        ),
    ),
    Mutant(
        "future-head-stands",
        "nobody can write above a head that the hub's own wrong clock stamped",
        "hub/backhaul_hub/continuity/future_stamps.py",
        "most_ns = max(most_ns, newest_ns + ABOVE_NS)",
        "del newest_ns",
        named(
            "tests/simulation/test_clock_steps.py",
            "test_a_vehicles_write_stands_after_the_hub_wrote_with_a_wrong_clock",
            "test_whatever_the_clocks_did_both_ends_come_to_the_same",
        ),
    ),
    Mutant(
        "own-future-stands",
        "a state that a wrong clock stamped stands on its vehicle until that time has come",
        "agent/backhaul_agent/commit/heads.py",
        "            if not self._put_instead(parent, point):\n",
        "            if True:\n",
        named(
            "tests/simulation/test_clock_steps.py",
            "test_a_state_that_was_published_by_a_wrong_clock_gives_way_to_the_next",
        ),
    ),
    Mutant(
        "expansion-not-charged",
        "a vehicle whose frames expand is charged for their points only",
        "hub/backhaul_hub/flood/guard.py",
        "if beyond := expansion.beyond(sent):",
        "if (beyond := 0) > 0:",
        named(
            "tests/hub/test_flood_guard.py",
            "test_whose_small_frames_expand_is_kept_out_and_named",
        ),
    ),
    Mutant(
        "frame-passed-whole",
        "a program's frame leaves the vehicle as it is, however far it expands",
        "agent/backhaul_agent/ingest/parse.py",
        "if content.n > FRAME_POINTS_MAX or content.size > FRAME_EXPANDED_MAX:",
        "if content.n < 0:",
        named(
            "tests/agent/test_intake.py",
            "test_a_batch_that_comes_to_more_than_an_agent_writes_becomes_several",
        ),
    ),
    Mutant(
        "texts-decoded-together",
        "messages are decoded together, however large their texts",
        "spark/backhaul_spark/decode/points.py",
        "texts_max=CHUNK_TEXT_BYTES if len(bodies) > 1 else TEXT_BYTES_MAX",
        "texts_max=TEXT_BYTES_MAX",
        named(
            "tests/spark/test_bombs.py",
            "test_messages_are_decoded_apart_whose_texts_come_to_too_much_together",
        ),
    ),
    Mutant(
        "row-group-without-bound",
        "a row group has so many rows, however large they are",
        "spark/backhaul_spark/tables/part_file.py",
        "rows >= rows_max or size + part_size > ROW_GROUP_BYTES",
        "rows >= rows_max",
        named(
            "tests/spark/test_bombs.py",
            "test_row_groups_are_cut_by_what_their_texts_come_to",
            "test_a_batch_of_which_each_row_comes_to_much_is_cut",
        ),
    ),
    Mutant(
        "long-hour-in-memory",
        "a rollup has an hour of a series in memory, however many readings it holds",
        "spark/backhaul_spark/rollup/long_windows.py",
        "if len(rest) > GROUP_ROWS:",
        "if len(rest) > GROUP_ROWS << 9:",
        named(
            "tests/spark/test_long_windows.py",
            "test_of_one_hour_few_rows_are_in_memory_at_a_time",
        ),
    ),
    Mutant(
        "repeat-of-a-part",
        "a reading of a long moment that stands there twice is looked for among some of its rows",
        "spark/backhaul_spark/rollup/long_windows.py",
        "again[firsts] = there[which[firsts]]",
        "again[firsts] = False",
        named(
            "tests/spark/test_long_windows.py",
            "test_windows_are_the_same_whatever_fits_into_memory",
        ),
    ),
    Mutant(
        "samples-of-all-at-once",
        "samples for the twin's rules are made of all messages of a batch together",
        "spark/backhaul_spark/source/jetstream_source.py",
        "for part in chunks(batch))",
        "for part in [batch])",
        named("tests/spark/test_bombs.py", "test_what_the_rules_see_of_many_points_is_cut_too"),
    ),
    Mutant(
        "row-without-end",
        "a row of a recording may be as long as it likes",
        "codec/backhaul_codec/recordings/readers.py",
        "if self.row_chars > ROW_CHARS_MAX:",
        "if self.row_chars < 0:",
        named("tests/codec/test_recording_readers.py", "test_a_line_of_the_longest_length_is_read"),
    ),
    Mutant(
        "former-untold",
        "a vehicle is told of its current epoch alone",
        "hub/backhaul_hub/uplink/notify.py",
        "await self._tell_former(self._untold_of_former())",
        "pass",
        named(
            "tests/hub/test_former.py",
            "test_they_are_written_to_down_once_all_is_read_and_again_where_that_is_needed",
        ),
    ),
    Mutant(
        "ledger-of-two-moments",
        "a ledger with older tables under a newer header is quarantined as damaged",
        "agent/backhaul_agent/ledger/schema.py",
        "if older == version or (older is not None and await _is_sound(db)):",
        "if older == version:",
        named(
            "tests/agent/test_ledger_damage.py",
            "test_older_tables_under_a_newer_header_are_brought_up_and_nothing_is_lost",
        ),
    ),
    Mutant(
        "older-coverage-believed",
        "ingest goes on with a coverage table that is older than its points",
        "spark/backhaul_spark/tables/delta.py",
        "            if ahead < known:",
        "            if ahead < 0:",
        named(
            "tests/spark/test_put_back_alone.py",
            "test_a_table_that_was_put_back_alone_is_named_and_nothing_is_written",
        ),
    ),
    *CHAIN_MUTANTS,
    *LINK_MUTANTS,
    *GUARD_MUTANTS,
    *ALERT_MUTANTS,
    *PAGE_MUTANTS,
    *SPARK_MUTANTS,
)
