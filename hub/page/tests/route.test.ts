import assert from "node:assert/strict";
import { test } from "node:test";
import { format, moved, parse, type Route } from "../src/state/route";
import { bounds, formatRange, parseRange, ranged } from "../src/state/time";

const WHOLE: Route = {
  screen: "device",
  device: "VID/ 1?#<b>",
  series: ["gps.speed", "gps.speed.a&b=c"],
  range: { kind: "between", fromMs: 1000, toMs: 2000 },
  filters: { tab: "files", text: "ä &#" },
};

test("a route and its hash say the same", () => {
  assert.deepEqual(parse(format(WHOLE)), WHOLE);
  assert.equal(format(parse("")), "#/fleet");
});

test("what no screen has is as at home", () => {
  assert.deepEqual(parse("#/elsewhere/%E0%A4%A?range=last:-4&series="), parse("#/fleet"));
  assert.equal(parse("#/device/%E0%A4%A").device, null);
});

test("another screen begins without filters, the range stays", () => {
  const to = moved(WHOLE, { screen: "alerts" });
  assert.deepEqual([to.filters, to.series, to.range], [{}, [], WHOLE.range]);
  assert.deepEqual(moved(WHOLE, { device: "b" }).filters, WHOLE.filters);
});

test("a range is what its text says", () => {
  for (const text of ["last:60", "1970-01-01T00:00:01.000Z~1970-01-01T00:00:02.000Z"]) {
    const range = parseRange(text);
    assert.ok(range);
    assert.equal(formatRange(range), text);
  }
  for (const wrong of ["", "last:", "last:0", "x~y", "2020-01-01~2019-01-01"]) assert.equal(parseRange(wrong), null);
  assert.deepEqual(bounds({ kind: "last", seconds: 5 }, 9000), { fromMs: 4000, toMs: 9000 });
});

test("a range that would reach into the future follows the present", () => {
  assert.deepEqual(ranged(10_000, 70_000, 70_000), { kind: "last", seconds: 60 });
  assert.deepEqual(ranged(10_000.4, 70_000, 70_001), { kind: "between", fromMs: 10_000, toMs: 70_000 });
  assert.deepEqual(ranged(69_900, 70_500, 70_000), { kind: "last", seconds: 1 });
  assert.deepEqual(ranged(10_000, 10_000, 70_000), { kind: "between", fromMs: 10_000, toMs: 11_000 });
});
