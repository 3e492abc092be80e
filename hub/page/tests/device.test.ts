import assert from "node:assert/strict";
import { test } from "node:test";
import { deadlineText, isOver, paramsOf, shareLeft, stateOf, withCommand, type Command } from "../src/logic/commands";
import { eventText, toneOf, withEvent, type DeviceEvent } from "../src/logic/events";
import { reasonsOf } from "../src/logic/hours";
import { differenceText, kindOf, partsOf, shadowOf, split, typed, withRevision, type Documents } from "../src/logic/shadow";
import { slotsOf } from "../src/logic/slots";
import { deviceTree, flat, namesBelow } from "../src/logic/tree";
import { seriesOf, unitOf, withPoints, type Point } from "../src/logic/values";

const COMMAND: Command = {
  device: "VID-001",
  id: "a",
  name: "door.unlock",
  state: "queued",
  params: null,
  who: "anna",
  deadline_ns: 70e9,
  queued_ns: 10e9,
};

test("a deadline counts down, and says what follows it", () => {
  assert.equal(deadlineText(COMMAND, 10_000), "starts within 1 min, or not at all");
  assert.equal(deadlineText(COMMAND, 69_500), "starts within 1 s, or not at all");
  assert.equal(deadlineText({ ...COMMAND, state: "sent" }, 73_000), "deadline passed 3 s ago; waiting for the vehicle's word");
  assert.equal(deadlineText({ ...COMMAND, state: "accepted" }, 99_000), "started in time; waiting for its end");
  assert.equal(deadlineText({ ...COMMAND, state: "done" }, 0), "");
  assert.deepEqual([0, 10_000, 40_000, 99_000].map((now) => shareLeft(COMMAND, now)), [1, 1, 0.5, 0]);
});

test("a command in doubt is called so, and a state of a later version by its own name", () => {
  assert.equal(stateOf({ ...COMMAND, state: "interrupted" }).word, "in doubt");
  assert.equal(stateOf({ ...COMMAND, state: "paused" as Command["state"] }).word, "paused");
  assert.equal(isOver({ ...COMMAND, state: "accepted" }), false);
});

test("what comes live takes the place of what was known, and no end is taken back", () => {
  const done = { ...COMMAND, state: "done" as const };
  const other = { ...COMMAND, id: "b", queued_ns: 20e9 };
  assert.deepEqual(withCommand([COMMAND, other], done), [other, done]);
  assert.deepEqual(withCommand([done], { ...COMMAND, state: "sent" }), [done]);
  assert.equal(withCommand([{ ...COMMAND, state: "expired" }], done)[0]?.state, "done");
});

test("parameters are JSON, or nothing", () => {
  assert.deepEqual([paramsOf(" "), paramsOf('{"door": 2}')], [null, { door: 2 }]);
  assert.throws(() => paramsOf("{door"), SyntaxError);
});

const revision = (number: number, body: unknown) => ({ number, time: "", body: body === null ? null : JSON.stringify(body) });
const DOCUMENTS: Documents = {
  desired: [revision(3, {}), revision(4, { "gps.rate": 5, "a.b:int64": 7, "gps.old": null })],
  reported: [revision(1, { fields: { "gps.rate": 1 } })],
  config: [revision(2, { fields: { "gps.rate": 5, "gps.mode": "eco" }, dtypes: { "gps.mode": "text" } })],
  meta: [
    revision(9, {
      delta: { "gps.rate": { desired: 5, reported: 1, why: "overridden", by: "hub:bob", at: "2026-05-01T12:00:00.25Z" } },
      fields: { "gps.mode": { time: "t", origin: "hub:anna", confirmed: true } },
    }),
  ],
};

test("a shadow has a row for each field that any document names", () => {
  const found = shadowOf(DOCUMENTS);
  assert.deepEqual([found.revision, found.rows.map((each) => each.field)], [4, ["a.b", "gps.mode", "gps.old", "gps.rate"]]);
  const [ab, mode, old, rate] = found.rows;
  assert.deepEqual([ab?.desired, ab?.dtype, ab?.reported], [7, "int64", undefined]);
  assert.deepEqual([mode?.desired, mode?.config, mode?.origin, mode?.confirmed], [undefined, "eco", "hub:anna", true]);
  assert.equal(old?.desired, null);
  assert.deepEqual([rate?.desired, rate?.reported], [5, 1]);
  assert.equal(rate && differenceText(rate), "overridden by hub:bob, 2026-05-01 12:00:00 UTC");
});

test("a shadow of nothing, or of no JSON, is empty", () => {
  assert.deepEqual(shadowOf({}).rows, []);
  assert.deepEqual(shadowOf({ desired: [{ number: 8, time: "", body: "[1" }] }), { revision: 8, rows: [], meta: {}, desired: {} });
  assert.equal(shadowOf({ desired: [revision(8, null)] }).revision, 8);
});

test("a revision that came live is the newest, an older one changes nothing", () => {
  assert.equal(withRevision(DOCUMENTS, "desired", revision(4, {})), DOCUMENTS);
  const next = withRevision(DOCUMENTS, "desired", revision(5, { "gps.rate": 6 }));
  assert.deepEqual([shadowOf(next).revision, shadowOf(next).desired], [5, { "gps.rate": 6 }]);
});

test("fields are names of series", () => {
  assert.deepEqual(partsOf("cell%2E1.mode.a"), { node: "cell.1", type: "mode", key: "a" });
  assert.deepEqual([partsOf("gps"), partsOf("a.b.c.d"), partsOf("%.b"), partsOf(".b")], [null, null, null, null]);
  assert.deepEqual([split("gps.rate:int64"), split("gps.rate")], [["gps.rate", "int64"], ["gps.rate", ""]]);
});

test("a typed value has the dtype of its kind, or a sentence says why not", () => {
  assert.deepEqual(typed(" 5.5 ", "number"), { value: 5.5, dtype: "float64" });
  assert.deepEqual(typed("−7", "integer"), { value: -7, dtype: "int64" });
  assert.deepEqual(typed("5", "text"), { value: "5", dtype: "text" });
  assert.deepEqual(typed("true", "truth"), { value: true, dtype: "json" });
  assert.deepEqual(typed("[1]", "json"), { value: [1], dtype: "json" });
  for (const [text, kind] of [["", "number"], ["1e999", "number"], ["1.5", "integer"], ["9007199254740993", "integer"], ["yes", "truth"], ["{", "json"]] as const)
    assert.throws(() => typed(text, kind), /^Error: (This is no|Say)/);
  assert.deepEqual([kindOf(1, ""), kindOf(1, "int64"), kindOf("a", ""), kindOf(true, "json"), kindOf([], ""), kindOf(undefined, "")], ["number", "integer", "text", "truth", "json", "number"]);
});

const point = (node: string, type: string, key: string, time: number, value: unknown, more: Partial<Point> = {}): Point => ({
  device: "V", node, type, key, time, value, dtype: "", tombstone: false, origin: "", ...more,
});

test("the newest value of a series stands, a deleted one goes, edges are none", () => {
  const first = withPoints(new Map(), [point("a.b", "c", "", 2, "new"), point("a.b", "c", "", 1, "old"), point("x", "y", "z", 1, 1), point("p", "q", "", 1, 1, { parent: "r" })]);
  assert.deepEqual([...first].map(([id, each]) => [id, each.value]), [["a%2Eb.c", "new"], ["x.y.z", 1]]);
  assert.deepEqual([...withPoints(first, [point("x", "y", "z", 3, 1, { tombstone: true })]).keys()], ["a%2Eb.c"]);
  assert.equal(seriesOf({ node: "a b", type: "ä", key: "" }), "a%20b.%C3%A4");
});

test("a tree has the nodes that only readings name, and opens and closes", () => {
  const answer = { root: "fleet", nodes: [{ node: "V", parents: ["fleet"] }, { node: "V/pack", parents: ["V"] }, { node: "V/cell", parents: ["V/pack", "V"] }] };
  const tree = deviceTree(answer, "V", ["pack", "gps"]);
  assert.deepEqual(flat([tree], () => true).map((each) => `${each.level}${each.node.name}`), ["1V", "2cell", "2pack", "3cell", "2gps"]);
  assert.deepEqual(flat([tree], (_, level) => level < 2).length, 4);
  assert.deepEqual(namesBelow(tree.children[1] ?? tree), ["pack", "cell"]);
});

test("a circle in the tree has an end", () => {
  const answer = { root: "fleet", nodes: [{ node: "V", parents: ["V/a"] }, { node: "V/a", parents: ["V"] }] };
  assert.equal(flat([deviceTree(answer, "V", [])], () => true).length, 2);
});

test("events are shown once, alerts of rules by their rule and severity", () => {
  const armed: DeviceEvent = { vid: "V", time: 2, kind: "armed", epoch: 1, seq: 1, previous: "off", reason: "pilot", data: { a: 1 } };
  const hot: DeviceEvent = { vid: "V", time: 3, kind: "alert", id: "x", reason: "61 °C", data: { rule: "too-hot", kind: "raised", severity: "critical" } };
  assert.deepEqual(withEvent(withEvent([armed], hot), armed), [hot, armed]);
  assert.equal(eventText(armed), 'after off · pilot · {"a":1}');
  assert.deepEqual([eventText(hot), toneOf(hot), toneOf(armed)], ["too-hot raised: 61 °C", "critical", "info"]);
});

test("reasons of an hour name lane, range and epoch, and end with how many more there are", () => {
  const range = (low: number, high: number | null, reason?: string) => ({ lane: "bulk", epoch: 2, low, high, ...(reason ? { reason } : {}) });
  const report = { hour: "", state: "waiting", missing: [1, 3, 5, 7, 9, 11].map((low) => range(low, low)), explained: [range(4, null, "no room")], why: "no mark" };
  assert.deepEqual(reasonsOf(report).slice(3), ["bulk 7 (epoch 2) missing", "2 more", "bulk 4 and later (epoch 2) will not come: no room", "no mark"]);
});

test("slots are what is wanted and what is there", () => {
  const found = slotsOf([point("artifact", "maps", "state", 5e6, { state: "ready", name: "m", digest: "d" }), point("artifact", "maps", "", 1, "m@d"), point("gps", "rate", "", 1, 1)]);
  assert.deepEqual(found, [{ name: "maps", wanted: "m@d", state: "ready", held: "m@d", error: "", ms: 5 }]);
});

test("a series has the unit of its nearest name", () => {
  const units = { "battery.soc": "%", "battery.cell.3": "mV", cell: "V", "a.b.c": "x" };
  assert.deepEqual(
    ["battery.soc", "battery.soc.left", "battery.cell.3", "battery.cell.4", "pump.flow", "a%2Eb.c"].map((each) => unitOf(units, each)),
    ["%", "%", "mV", "V", undefined, "x"],
  );
});
