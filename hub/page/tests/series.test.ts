import assert from "node:assert/strict";
import { test } from "node:test";
import { bandAt, bandsIn, valuesOf } from "../src/logic/bands";
import { bandReading, numberAt, summary } from "../src/logic/reading";
import { drawn, gapAt, gapsIn, LivePoints, nearest, NOTHING, position, SPARSE_MAX, type History } from "../src/logic/series";

const S = 1_000_000;

function history(count: number, more: Partial<History> = {}): History {
  const t = Array.from({ length: count }, (_, at) => at * S);
  return { ...NOTHING, t_us: t, min: t.map((_, at) => at), max: t.map((_, at) => at + 1), ...more };
}

function live(...points: [seconds: number, value: number][]): LivePoints {
  const found = new LivePoints();
  for (const [seconds, value] of points) found.add(seconds * S, value);
  return found;
}

test("history comes first, live points that are newer follow, each once", () => {
  const found = drawn(history(3), live([1, 99], [2, 99], [3, 7], [4, 8], [3, 7]), 0, 10 * S);
  assert.deepEqual(found.t, [0, 1, 2, 3, 4]);
  assert.deepEqual(found.low, [0, 1, 2, 7, 8]);
  assert.deepEqual(found.high, [1, 2, 3, 7, 8]);
  assert.deepEqual([found.count, found.banded], [5, true]);
});

test("live points that come late stand at their time, one that is known is not new", () => {
  const points = new LivePoints();
  assert.deepEqual([points.add(5, 1), points.add(3, 2), points.add(4, 3), points.add(3, 9)], [true, true, true, false]);
  assert.deepEqual(points.t, [3, 4, 5]);
  assert.deepEqual(points.low, [2, 3, 1]);
});

test("live points are thinned without losing a peak, and the newest stay as they were", () => {
  const points = new LivePoints(100);
  for (let at = 0; at < 1000; at += 1) points.add(at, at === 123 ? 1e6 : at === 124 ? -1e6 : at);
  assert.ok(points.t.length <= 100);
  assert.equal(Math.max(...points.high), 1e6);
  assert.equal(Math.min(...points.low), -1e6);
  assert.deepEqual([points.t.at(-1), points.low.at(-1), points.high.at(-1)], [999, 999, 999]);
  assert.deepEqual(points.t, [...points.t].sort((a, b) => a - b));
});

test("a line is broken where a gap takes most of the time between two points, and nowhere else", () => {
  const gaps: History["gaps"] = [[2.1 * S, 6.9 * S, "waiting"], [8.1 * S, 8.2 * S, "silent"]];
  const t = [0, 1, 2, 7, 8, 9].map((each) => each * S);
  const found = drawn({ ...NOTHING, t_us: t, min: t.map(() => 1), max: t.map(() => 1), gaps }, live(), 0, 9 * S);
  assert.deepEqual(found.t, [0, 1, 2, 4.5, 7, 8, 9]);
  assert.deepEqual(found.low, [1, 1, 1, null, 1, 1, 1]);
});

test("of points out of view one neighbour on each side is drawn, and not counted", () => {
  const found = drawn(history(100), live(), 10 * S, 20 * S);
  assert.deepEqual([found.t[0], found.t.at(-1), found.count], [9, 20, 11]);
});

test("few points are a sparse series", () => {
  assert.equal(drawn(history(SPARSE_MAX), live(), 0, 1000 * S).sparse, true);
  assert.equal(drawn(history(SPARSE_MAX + 1), live(), 0, 1000 * S).sparse, false);
});

test("a position is how many times are before it", () => {
  assert.deepEqual([0, 1, 2, 5, 9].map((each) => position([1, 2, 2, 5], each)), [0, 0, 1, 3, 4]);
});

test("the nearest point is never a break of the line", () => {
  const points = { t: [0, 5, 10], low: [1, null, 2], high: [1, null, 2], sparse: false, count: 2, banded: false };
  assert.deepEqual([nearest(points, 4.9), nearest(points, 5.1), nearest(NONE, 1)], [0, 2, null]);
});

const NONE = { t: [], low: [], high: [], sparse: true, count: 0, banded: false };

test("gaps in view are cut off at its edges and joined where they touch for one reason", () => {
  const gaps: History["gaps"] = [[0, 10, "waiting"], [10, 20, "waiting"], [20, 30, "silent"], [90, 99, "silent"]];
  assert.deepEqual(gapsIn(gaps, 5, 25), [[5, 20, "waiting"], [20, 25, "silent"]]);
  assert.deepEqual([gapAt(gaps, 10), gapAt(gaps, 30), gapAt(gaps, 98)], ["waiting", null, "silent"]);
});

const DOOR: History = {
  ...NOTHING,
  kind: "text",
  runs: [[0, 10, "open"], [10, 20, "closed"], [30, 40, "closed"]],
  gaps: [[20, 30, "waiting"]],
  complete_to_us: 40,
};

test("texts are bands: runs, then live values until the next one", () => {
  const later = [{ tUs: 60, value: "closed" }, { tUs: 50, value: "open" }, { tUs: 35, value: "old" }];
  assert.deepEqual(bandsIn(DOOR, later, 0, 100, 70), [
    { fromUs: 0, toUs: 10, text: "open" },
    { fromUs: 10, toUs: 20, text: "closed" },
    { fromUs: 30, toUs: 50, text: "closed" },
    { fromUs: 50, toUs: 60, text: "open" },
    { fromUs: 60, toUs: 70, text: "closed" },
  ]);
});

test("bands are cut off at the view's edges, and a live value ends where a gap begins", () => {
  const gaps: History["gaps"] = [[55, 58, "silent"]];
  const found = bandsIn({ ...DOOR, gaps }, [{ tUs: 50, value: true }], 5, 60, 60);
  assert.deepEqual(found.at(0), { fromUs: 5, toUs: 10, text: "open" });
  assert.deepEqual(found.at(-1), { fromUs: 50, toUs: 55, text: "true" });
  assert.deepEqual(valuesOf(found), ["closed", "open", "true"]);
  assert.deepEqual([bandAt(found, 7)?.text, bandAt(found, 57)], ["open", null]);
});

test("a reading is the nearest point, or the reason why there is none", () => {
  const some = history(5, { gaps: [[10 * S, 20 * S, "waiting"]] });
  const points = drawn(some, live(), 0, 20 * S);
  assert.equal(numberAt(points, some, 2.2 * S, S, "V").text, "2 … 3\u202fV");
  assert.match(numberAt(points, some, 15 * S, S).text, /waiting: the vehicle still has/);
  assert.equal(numberAt(points, some, 8 * S, S).text, "no readings");
  assert.match(bandReading([], DOOR, 25).text, /waiting/);
});

test("a summary says range, extremes, newest and gaps", () => {
  const some = history(5, { gaps: [[10 * S, 20 * S, "explained"]] });
  const said = summary("battery.soc", drawn(some, live(), 0, 20 * S), [], some, 0, 20 * S, "%");
  assert.match(said, /5 readings and buckets, between 0 and 5\u202f%; the newest is 5\u202f%/);
  assert.match(said, /1 gap, 10 s: no readings, explained: the vehicle gave these readings up/);
  assert.match(summary("a", drawn(NOTHING, live(), 0, S), [], NOTHING, 0, S), /No readings\./);
});
