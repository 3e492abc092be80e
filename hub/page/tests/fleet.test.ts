import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeToken, encodeToken } from "../src/hub/subjects";
import { codesOf } from "../src/logic/heat";
import { fromBase32 } from "../src/hub/login_key";
import { sessionOf } from "../src/hub/login";
import {
  Batch,
  chosen,
  completePart,
  counts,
  groupsOf,
  heatRows,
  only,
  withHours,
  withLive,
  withRows,
  type Fleet,
  type ToldRow,
} from "../src/state/fleet";
import { bytesText, grouped, part, standText, type ShownCondition, type Stream } from "../src/state/health";
import { loginToken } from "../src/state/login";
import { placesOf, Trails, wayOf } from "../src/state/places";

const HOUR_NS = 3_600_000_000_000;
const NOTHING: Fleet = new Map();

function told(device: string, more: Partial<ToldRow> = {}): ToldRow {
  const row: ToldRow = {
    device,
    up: true,
    since_ns: 5e9,
    agent: true,
    newest_ns: 7e9,
    lag: null,
    owed: 0,
    gaps: 0,
    revoked: false,
    conditions: [],
    conditions_not_shown: 0,
    values: [],
    groups: ["plant"],
  };
  return { ...row, ...more };
}

test("a row that is told the same again is the same, so that nothing is drawn anew", () => {
  const before = withRows(NOTHING, [told("a", { values: [[1, 5]] }), told("b")], ["x.y"]);
  const after = withRows(before, [told("a", { values: [[1, 5]] }), told("b", { owed: 3, lag: 4 })], ["x.y"]);
  assert.equal(after.get("a"), before.get("a"));
  assert.equal(after.get("b")?.backlog, 4);
  assert.equal(only(after, new Set(["a", "b"])), after);
  assert.deepEqual([...only(after, new Set(["b"])).keys()], ["b"]);
});

test("what came live stays until something newer is told", () => {
  let fleet = withRows(NOTHING, [told("a", { values: [[1, 5]] })], ["x.y"]);
  const same = withLive(fleet, [{ device: "a", series: "x.y", value: 0, timeNs: 5 }]);
  assert.equal(same, fleet, "no newer one, no change");
  fleet = withLive(fleet, [
    { device: "a", series: "x.y", value: 3, timeNs: 9 },
    { device: "a", series: "x.y", value: 2, timeNs: 7 },
    { device: "gone", series: "x.y", value: 2, timeNs: 7 },
  ]);
  assert.equal(fleet.size, 1);
  fleet = withRows(fleet, [told("a", { values: [[1, 8]] })], ["x.y"]);
  assert.equal(fleet.get("a")?.values["x.y"]?.value, 3);
  fleet = withRows(fleet, [told("a", { values: [[4, 10]] })], ["x.y"]);
  assert.equal(fleet.get("a")?.values["x.y"]?.value, 4);
});

test("a link that never was is neither up nor down", () => {
  const fleet = withRows(
    NOTHING,
    [told("a"), told("b", { up: false }), told("c", { up: false, since_ns: null }), told("d", { up: false, revoked: true })],
    [],
  );
  assert.deepEqual(
    [...fleet.values()].map((each) => each.up),
    [true, false, null, false],
  );
  const { devices, up, down } = counts(fleet.values(), null);
  assert.deepEqual([devices, up, down], [4, 1, 2], "one that was revoked misses nobody");
});

test("filters and counts go by group, words, and what is wrong", () => {
  const fleet = withRows(
    NOTHING,
    [
      told("VID-1", { conditions: [["error", "gap-open", "bulk"]] }),
      told("VID-2", { conditions: [["warning", "link-down", ""]], groups: ["depot"], up: false }),
    ],
    [],
  );
  const hours = withHours(null, { from_ns: 0, hours: 3, devices: [{ device: "VID-2", hours: "cwc" }], next: null });
  const ids = (filter: Partial<Parameters<typeof chosen>[2]>): string[] =>
    chosen(fleet, hours, { text: "", group: "", show: "", ...filter }).map((each) => each.device);
  assert.deepEqual(ids({ group: "depot" }), ["VID-2"]);
  assert.deepEqual(ids({ text: "vid GAP" }), ["VID-1"]);
  assert.deepEqual(ids({ text: "gap depot" }), []);
  assert.deepEqual(ids({ show: "errors" }), ["VID-1"]);
  assert.deepEqual(ids({ show: "down" }), ["VID-2"]);
  assert.deepEqual(ids({ show: "waiting" }), ["VID-2"]);
  assert.deepEqual(groupsOf(fleet), ["depot", "plant"]);
});

test("the heat map has those first that miss most, the open hour left out", () => {
  const fleet = withRows(NOTHING, ["a", "b", "c10", "c9"].map((each) => told(each)), []);
  const pages = [
    { device: "a", hours: "cccw" },
    { device: "b", hours: "cwws" },
  ];
  let hours = withHours(null, { from_ns: HOUR_NS, hours: 4, devices: pages.slice(0, 1), next: "a" });
  hours = withHours(hours, { from_ns: HOUR_NS, hours: 4, devices: pages.slice(1), next: null });
  const rows = chosen(fleet, hours, { text: "", group: "", show: "" });
  assert.deepEqual(
    heatRows(rows, hours, 1e12).map((each) => each.id),
    ["b", "a", "c9", "c10"],
  );
  assert.equal(completePart(rows, hours, 4.5 * 3_600_000), 4 / 6, "of the three hours that are over");
  assert.equal(completePart([], hours, 1e12), null);
  assert.equal(withHours(hours, { from_ns: HOUR_NS, hours: 4, devices: [], next: null }), hours, "nothing has changed");
  const fresh = withHours(hours, { from_ns: HOUR_NS, hours: 4, devices: [{ device: "b", hours: "cccc" }], next: null });
  assert.deepEqual([...hours.waiting], ["a", "b"]);
  assert.deepEqual([[...fresh.waiting], fresh.of.size], [["a"], 2], "what was not told again stays");
  const other = withHours(hours, { from_ns: 0, hours: 4, devices: [], next: null });
  assert.equal(other.of.size, 0, "another stretch begins anew");
});

test("a batch hands on once a frame, in order, and is bounded", () => {
  const frames: (() => void)[] = [];
  const taken: number[][] = [];
  const batch = new Batch<number>((run) => frames.push(run), (some) => taken.push(some), 10);
  for (let each = 0; each < 11; each += 1) batch.add(each);
  assert.equal(frames.length, 1);
  frames.shift()?.();
  assert.deepEqual(taken, [[6, 7, 8, 9, 10]]);
  batch.add(1);
  frames.shift()?.();
  assert.deepEqual(taken[1], [1]);
});

test("positions that are none have no place, and a trail is what was seen", () => {
  const at = (lat: unknown, lon: unknown): Fleet =>
    withRows(NOTHING, [told("a", { values: [[lat, 1], [lon, 1]], up: false })], ["gps.lat", "gps.lon"]);
  const places = (fleet: Fleet) => placesOf([...fleet.values()], "gps.lat", "gps.lon");
  assert.deepEqual(places(at("<b>", 2)), []);
  assert.deepEqual(places(at(91, 2)), []);
  assert.deepEqual(places(at(NaN, 2)), []);
  assert.equal(places(at(1, 2))[0]?.tone, "away");
  const trails = new Trails();
  trails.take(places(at(1, 2)));
  trails.take(places(at(1, 2)));
  assert.deepEqual(trails.take(places(at(3, 4)))[0]?.points, [[1, 2], [3, 4]]);
});

test("a trail begins with the history that latitude and longitude have in common", () => {
  const told = (t: number[], low: number[], high = low) => ({
    kind: "number" as const, t_us: t.map((each) => each * 1e6), min: low, max: high, runs: [], gaps: [],
  });
  const way = wayOf(told([15, 31, 45], [1, 2, 4], [1, 4, 4]), told([16, 30, 60], [7, 8, 9]));
  assert.deepEqual(way, [[1, 7], [3, 8]]);
  const trails = new Trails();
  const places = [{ id: "a", label: "a", lat: 5, lon: 6, tone: "good" as const }];
  assert.deepEqual(trails.take(places), [{ id: "a", points: [[5, 6]] }]);
  assert.deepEqual([trails.next(places), trails.next(places)], ["a", null], "its history is asked for once");
  trails.before("a", way);
  assert.deepEqual(trails.take(places)[0]?.points, [[1, 7], [3, 8], [5, 6]]);
});

test("of an hour that is open still nobody says that it is silent", () => {
  const hours = withHours(null, { from_ns: HOUR_NS, hours: 3, devices: [{ device: "a", hours: "css" }], next: null });
  const rows = [...withRows(NOTHING, [told("a")], []).values()];
  const shown = (hour: number) => heatRows(rows, hours, (hour + 0.5) * 3_600_000)[0]?.hours;
  assert.deepEqual(shown(3), codesOf("cs"));
  assert.deepEqual(shown(4), codesOf("css"));
});

test("a trail is broken where no place was told for more than five usual steps", () => {
  const told = (t: number[]) => ({
    kind: "number" as const, t_us: t.map((each) => each * 15e6), min: t, max: t, runs: [], gaps: [],
  });
  const [all, gone] = [[1, 2, 3, 8, 9, 15], [20, 21]].map(told);
  assert.deepEqual(wayOf(all!, all!), [1, 2, 3, 8, 9, null, 15].map((at) => at && [at, at]));
  assert.deepEqual(wayOf(all!, gone!), []);
});

test("conditions are by their remedy, sizes as people say them", () => {
  const one = (code: string, device: string): ShownCondition => ({
    code, device, severity: "error", title: "", hint: "", about: "", detail: "", since_ns: 0,
  });
  assert.deepEqual(
    grouped([one("x", "a"), one("y", "a"), one("x", "b")]).map((each) => [each.first.code, each.all.length]),
    [["x", 2], ["y", 1]],
  );
  assert.deepEqual([0, 999, 1234, 123456, 2.5e12].map(bytesText), ["0 B", "999 B", "1.2 kB", "123 kB", "2.5 TB"]);
  const stream = { bytes: 5, bytes_max: 10 } as Stream;
  assert.deepEqual([part(stream), part({ ...stream, bytes_max: -1 })], [0.5, null]);
});

test("a job is behind by messages, the rollups by ingests", () => {
  const said = (job: string, behind: number | null): string => standText({ job, behind, still_s: 0 });
  assert.deepEqual(
    [said("ingest", 0), said("ingest", 1), said("twin", 12_345), said("rollup", 1), said("ingest", null)],
    ["has all", "1 message", "12,345 messages", "1 ingest", "not known"],
  );
});

test("names in subjects come back as they were", () => {
  for (const name of ["VID-001/gps", "", "ä.b*>", "<img src=x>", "%41"])
    assert.equal(decodeToken(encodeToken(name)), name);
  assert.equal(encodeToken("a.b"), "a%2Eb");
  assert.equal(encodeToken(""), "%");
});

test("a login is what its JWT says, a link's token no other hash", () => {
  const jwt = (said: object): string => `x.${btoa(JSON.stringify(said)).replace(/\+/g, "-").replace(/\//g, "_")}.y`;
  const of = (...allow: string[]) => jwt({ exp: 5, nats: { pub: { allow } } });
  assert.deepEqual(sessionOf(of("ask.write.plant%2E7.anna.>")), { name: "anna", group: "plant.7", may: "write", endsAt: 5000 });
  for (const wrong of [of(), of(">"), of("ask.all.fleet.a.>"), "x", jwt({})])
    assert.throws(() => sessionOf(wrong), /of no person/);
  assert.equal(loginToken(`#/login/${"a".repeat(43)}`), "a".repeat(43));
  for (const other of ["", "#/fleet", "#/login/", `#/login/${"a".repeat(43)}/x`, "#/login/<script>"])
    assert.equal(loginToken(other), null);
  assert.deepEqual([...fromBase32("MFRGG")], [97, 98, 99]);
});
