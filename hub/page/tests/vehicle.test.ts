import assert from "node:assert/strict";
import { test } from "node:test";
import {
  codeIn,
  givenUpText,
  hourWhy,
  laneWhy,
  linkStory,
  testValue,
  total,
  type LaneStatus,
  type VehicleStatus,
  type WaitingAnswer,
} from "../src/logic/vehicle";
import { format, HOME, parse } from "../src/technician/place";

const WELL: VehicleStatus = {
  device: "VID-001", uptime_s: 5, memory_bytes_max: 1, connected: true, last_error: "", conditions: [],
  link: { up: true, mode: "always", phase: "idle", next_visit_s: null, last_failure: "", rate_kbit_s: 250, shared: false },
  leaf: { redial: { down_s: null, not_dialing: "" } },
  ledger: { bytes: 1, bytes_max: 100, staged_points: 0, evicted_messages: 0, disk_full: false },
  lanes: {}, clock: { quality: "synced", held_messages: 0 }, counters: { points_kept: 0, refused: {} },
};
const linked = (link: Partial<VehicleStatus["link"]>, leaf = WELL.leaf): VehicleStatus => ({ ...WELL, link: { ...WELL.link, ...link }, leaf });
const LANE: LaneStatus = { state: "running", last_seq: 9, ready_seq: 9, appended: 9, watermark: 9, waits_for_hub: false };
const HOUR = { from_ns: 3.6e12, messages: 2, bytes: 5, held_messages: 0, oldest_ns: 1 };

test("the link is told with its reason and what mends it, the nearest reason first", () => {
  assert.deepEqual([linkStory(WELL).word, linkStory(WELL).mend], ["up", ""]);
  assert.match(linkStory(WELL).why, /250 kbit/);
  const away = linkStory({ ...linked({ up: false }), connected: false, last_error: "refused" });
  assert.deepEqual([away.word, away.tone], ["leaf server away", "critical"]);
  assert.match(away.why, /refused/);
  assert.match(away.mend, /systemctl restart backhaul-leaf/);
  assert.equal(linkStory(linked({ up: null })).word, "not known");
  const down = linkStory(linked({ up: false }, { redial: { down_s: 90, not_dialing: "" } }));
  assert.match(down.why, /for 1 min 30 s/);
  assert.match(down.mend, /sudo backhaul-agent status/);
  const still = linkStory(linked({ up: false }, { redial: { down_s: 900, not_dialing: "its port answered" } }));
  assert.match(still.why, /its port answered/);
  assert.match(still.mend, /systemctl restart backhaul-leaf/);
  assert.match(linkStory(linked({ up: false, shared: true })).why, /another machine/i);
});

test("a link that is down between visits is no trouble, but where the last one failed", () => {
  const idle = linkStory(linked({ up: false, mode: "scheduled", next_visit_s: 61 }));
  assert.deepEqual([idle.tone, idle.mend], ["info", ""]);
  assert.match(idle.why, /in 1 min 1 s/);
  assert.match(linkStory(linked({ up: false, mode: "on-demand" })).why, /when something urgent waits/);
  const failed = linkStory(linked({ up: false, mode: "scheduled", next_visit_s: 5, last_failure: "no network" }));
  assert.equal(failed.tone, "warning");
  assert.match(failed.why, /no network/);
  assert.equal(linkStory(linked({ up: false, mode: "scheduled", phase: "dialing" })).word, "down");
});

test("a lane that waits says why", () => {
  const waits = { ...LANE, watermark: 5 };
  assert.equal(laneWhy(LANE, WELL), "");
  assert.equal(laneWhy(waits, linked({ up: false })), "the link is down");
  assert.equal(laneWhy(waits, { ...WELL, connected: false }), "the leaf server is away");
  assert.match(laneWhy({ ...waits, ready_seq: 5 }, linked({ up: false })), /wait for the time/);
  assert.match(laneWhy({ ...waits, waits_for_hub: true }, WELL), /has not said/);
  assert.match(laneWhy({ ...waits, appended: 7 }, WELL), /leaf server's stream/);
  assert.match(laneWhy(waits, WELL), /not confirmed/);
});

test("an hour that is not complete says why", () => {
  const later = 9e12;
  assert.equal(hourWhy(HOUR, linked({ up: false }), later), "the link is down");
  assert.match(hourWhy(HOUR, WELL, later), /on its way/);
  assert.equal(hourWhy(HOUR, linked({ up: false }), 3.7e12), "the link is down; this hour goes on");
  assert.match(hourWhy({ ...HOUR, held_messages: 2 }, WELL, later), /^stamps wait/);
  assert.equal(hourWhy(HOUR, { ...WELL, connected: false }, later), "the leaf server is away");
});

test("what was given up is told with the times between which it lies", () => {
  const given = { lane: "bulk", epoch: 1, lo: 3, hi: 1200, reason: "room", after_ns: 1e6, before_ns: null };
  assert.equal(givenUpText(given, String), "1198 messages of bulk (3–1200), after 1: room");
  assert.equal(givenUpText({ ...given, hi: 3, after_ns: null }, String), "1 message of bulk (3): room");
});

test("what waits is summed over lanes", () => {
  const sum = (messages: number, oldest_ns: number | null) => ({ lane: "x", epoch: 1, messages, bytes: 10, held_messages: 0, oldest_ns });
  const answer: WaitingAnswer = { lanes: [sum(2, 7), sum(3, 5), sum(0, null)], hours: [], hours_more: 0, given_up: [] };
  assert.deepEqual(total(answer), { messages: 5, bytes: 30, oldestNs: 5 });
  assert.deepEqual([total(null), total({ ...answer, lanes: [] })?.oldestNs], [null, null]);
});

test("a typed value is a number where it reads as one", () => {
  assert.deepEqual([testValue(" 7.5 "), testValue("1e3"), testValue("on"), testValue("Infinity")], [7.5, 1000, "on", "Infinity"]);
  assert.throws(() => testValue("  "));
});

test("a code is told from the place on a page", () => {
  assert.deepEqual([codeIn("#7KQM-2XPA"), codeIn("#7kqm2xpa")], ["7KQM-2XPA", "7kqm2xpa"]);
  for (const hash of ["", "#/now", "#/values", "#7KQM-2XP", "#7KQM-2XPAA", "#0KQM-2XPA"]) assert.equal(codeIn(hash), null);
});

test("a place and its hash say the same, and a wrong hash is home", () => {
  for (const hash of ["#/now", "#/values?series=gps.lat&series=a.b.c&text=x", "#/hours?range=last%3A60"])
    assert.equal(format(parse(hash)), hash);
  assert.deepEqual(parse("#/elsewhere?range=never&series="), HOME);
});
