import assert from "node:assert/strict";
import { test } from "node:test";
import { counts, filtersOf, fits, withAlert, type Alert } from "../src/logic/alerts";
import { gridStep, gridText, roundLength } from "../src/logic/grid";
import { cellAt, codesOf, hourLeft, labelStep, shareText } from "../src/logic/heat";
import { Order, sortOf, sortText, visible } from "../src/logic/rows";
import { ageText, durationText, numberText, valueText, withUnit } from "../src/logic/text";

const HOT: Alert = {
  id: "1", source: "rule", device: "VID-001", name: "too-hot", about: "", severity: "critical", state: "open",
  text: "61 °C", hint: "", since_ns: 5, ended_ns: null, ended_why: "", acknowledged: null, silent_until_ns: 9,
};

function ordered<Row>(...all: Parameters<Order<Row>["of"]>): Row[] {
  return new Order<Row>().of(...all);
}

test("an order is that of the rows as they are now, however many of them were ordered before", () => {
  const order = new Order<{ name: string; v: number }>();
  const by = (row: { name: string }): string => row.name;
  const values = (of: readonly { v: number }[]): number[] => of.map((each) => each.v);
  assert.deepEqual(values(order.of([{ name: "b", v: 1 }, { name: "a", v: 2 }], by, false)), [2, 1]);
  assert.deepEqual(values(order.of([{ name: "b", v: 3 }, { name: "a", v: 4 }], by, false)), [4, 3]);
  assert.deepEqual(values(order.of([{ name: "b", v: 3 }, { name: "a", v: 4 }], by, true)), [3, 4]);
  assert.deepEqual(values(order.of([{ name: "b", v: 3 }, { name: "c", v: 4 }], by, true)), [4, 3]);
  assert.deepEqual(values(order.of([{ name: "c", v: 4 }], by, true)), [4]);
});

test("filters are those that the URL names, and nothing else filters", () => {
  assert.deepEqual(filtersOf({ state: "closed", severity: "fatal", tab: "x" }), {
    state: "open", severity: "", source: "", device: "", text: "", acknowledged: "",
  });
  const shown = (named: Record<string, string>, alert: Alert = HOT): boolean => fits(alert, filtersOf(named));
  assert.deepEqual([shown({}), shown({ state: "past" }), shown({ state: "all" })], [true, false, true]);
  assert.deepEqual([shown({ severity: "warning" }), shown({ severity: "critical" }, { ...HOT, severity: "warning" })], [true, false]);
  assert.deepEqual([shown({ text: "TOO" }), shown({ text: "cold" }), shown({ device: "VID-002" }), shown({ source: "health" })], [true, false, false, false]);
  assert.deepEqual([shown({ acknowledged: "no" }), shown({ acknowledged: "yes" })], [true, false]);
});

test("an alert that comes live takes its former place, and keeps what only answers say", () => {
  const later = { ...HOT, acknowledged: { by: "anna", time_ns: 6, note: "" } };
  delete later.silent_until_ns;
  const other = { ...HOT, id: "2", since_ns: 7 };
  const found = withAlert(withAlert([HOT], other), later);
  assert.deepEqual(found.map((each) => [each.id, each.acknowledged?.by, each.silent_until_ns]), [["2", undefined, 9], ["1", "anna", 9]]);
  assert.equal(withAlert([HOT], { ...later, state: "past", ended_ns: 8 })[0]?.silent_until_ns, null);
  assert.deepEqual(counts([HOT, other, { ...HOT, state: "past" }]), { critical: 2, warning: 0, info: 0 });
});

test("rows are sorted by numbers as numbers, by names as people count, and nulls stand last", () => {
  const rows = [{ v: "VID-10" }, { v: null }, { v: "VID-9" }, { v: 3 }].map((each, at) => ({ ...each, at }));
  assert.deepEqual(ordered(rows.slice(0, 3), (row) => row.v, false).map((each) => each.v), ["VID-9", "VID-10", null]);
  assert.deepEqual(ordered(rows.slice(0, 3), (row) => row.v, true).map((each) => each.v), ["VID-10", "VID-9", null]);
  assert.deepEqual(ordered([3, 20, 100], (each) => each, true), [100, 20, 3]);
  assert.deepEqual(ordered([3, 1], undefined, true), [3, 1]);
});

test("of 10,000 rows those in view are drawn, and some around them", () => {
  assert.deepEqual(visible(0, 400, 40, 10_000), [0, 16]);
  assert.deepEqual(visible(200_000, 400, 40, 10_000), [4994, 5016]);
  assert.deepEqual(visible(399_600, 400, 40, 10_000), [9984, 10_000]);
  assert.deepEqual(visible(9999, 400, 40, 3), [3, 3]);
});

test("a sort and its text say the same, another column sorts nothing", () => {
  for (const text of ["name", "-name"]) assert.equal(sortText(sortOf(text, ["name"])), text);
  assert.deepEqual([sortOf("other", ["name"]), sortOf(undefined, ["name"]), sortText(null)], [null, null, ""]);
});

test("a cell of the heat map is where it is drawn", () => {
  const layout = { width: 340, names: 100, rowHeight: 10, hours: 24 };
  assert.deepEqual([hourLeft(layout, 0), hourLeft(layout, 24)], [100, 340]);
  assert.deepEqual(cellAt(layout, 105, 25, 5), { row: 2, hour: 0 });
  assert.deepEqual([cellAt(layout, 99, 25, 5), cellAt(layout, 341, 25, 5), cellAt(layout, 120, 55, 5)], [null, null, null]);
  assert.deepEqual([labelStep(40, 56), labelStep(2, 56), labelStep(0.1, 56)], [2, 48, 720]);
});

test("letters of the hub are states", () => {
  assert.deepEqual([...codesOf("cwseix-")], [1, 2, 5, 3, 4, 0, 0]);
  assert.equal(shareText({ id: "", label: "", hours: codesOf("ccw") }), "2 complete, 1 waiting");
});

test("lines of the map stand at round degrees, scales at round lengths", () => {
  assert.deepEqual([0.03, 0.2, 1.5, 7, 50].map(gridStep).map((each) => Number(each.toPrecision(3))), [0.05, 0.2, 2, 10, 30]);
  assert.deepEqual([gridText(8.5, "E", "W", 0.5), gridText(-190, "E", "W", 10), gridText(0, "N", "S", 1)], ["8.5° E", "170° E", "0°"]);
  assert.deepEqual([870, 2400, 99_000].map(roundLength), [500, 2000, 50_000]);
});

test("numbers, values and times are short and exact enough", () => {
  const numbers = [5, -0.125, 83763.751, 1234567890123, 0.00001, Number.NaN, -Infinity, 1 / 3].map((each) => numberText(each));
  assert.deepEqual(numbers, ["5", "−0.125", "83763.8", "1234567890123", "1.000e-5", "NaN", "−∞", "0.333333"]);
  assert.deepEqual([valueText("<b>"), valueText({ a: 1 }), valueText(undefined), withUnit(5, "V")], ["<b>", '{"a":1}', "–", "5\u202fV"]);
  assert.deepEqual([0, 59.4, 3700, 90_000, 86_460].map(durationText), ["0 s", "59 s", "1 h 1 min", "1 d 1 h", "1 d"]);
  assert.deepEqual([500, 61_000, -5000, 3 * 86_400_000].map(ageText), ["0 s", "1 min", "in 5 s", "3 d"]);
});
