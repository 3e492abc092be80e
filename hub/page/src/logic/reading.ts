// What a chart says in words: the reading at the cursor, and a summary of all that is in view. Pure.
import { bandAt, type Band } from "./bands";
import { gapAt, gapsIn, nearest, type Drawn, type History } from "./series";
import { durationText, numberText, timeText, withUnit } from "./text";

const GAP_WORDS: Record<string, string> = {
  waiting: "the vehicle still has these readings",
  explained: "the vehicle gave these readings up, with a receipt",
  silent: "the vehicle has said nothing of this time",
};

/** Return what a gap's reason means; a reason that is not known stands for itself. */
export function gapText(why: string): string {
  const means = GAP_WORDS[why];
  return means === undefined ? `no readings: ${why}` : `no readings, ${why}: ${means}`;
}

export interface Reading {
  text: string;
  /** When it was so, in microseconds; null where there is no reading. */
  tUs: number | null;
  gap: string | null;
}

const NONE: Reading = { text: "no readings", tUs: null, gap: null };

/** Return the reading nearest to a time (microseconds), or why there is none. `reachUs` is how far near goes. */
export function numberAt(points: Drawn, history: History, tUs: number, reachUs: number, unit?: string): Reading {
  const at = nearest(points, tUs / 1e6);
  const found = at === null ? null : (points.t[at] ?? 0) * 1e6;
  const gap = gapAt(history.gaps, tUs);
  if (at === null || found === null || Math.abs(found - tUs) > reachUs)
    return gap === null ? NONE : { text: gapText(gap), tUs: null, gap };
  const [low, high] = [points.low[at] ?? 0, points.high[at] ?? 0];
  const text = low === high ? withUnit(low, unit) : `${numberText(low, 4)} … ${withUnit(Number(high.toPrecision(4)), unit)}`;
  return { text, tUs: found, gap: null };
}

/** Return the value that held at a time (microseconds), or why there is none. */
export function bandReading(bands: readonly Band[], history: History, tUs: number): Reading {
  const band = bandAt(bands, tUs);
  if (band !== null) return { text: band.text, tUs: band.fromUs, gap: null };
  const gap = gapAt(history.gaps, tUs);
  return gap === null ? NONE : { text: gapText(gap), tUs: null, gap };
}

/** Return what a chart shows, for people who do not see it. Times in microseconds. */
export function summary(
  name: string,
  points: Drawn | null,
  bands: readonly Band[],
  history: History,
  fromUs: number,
  toUs: number,
  unit?: string,
): string {
  const said = [`${name}, ${timeText(fromUs / 1000)} to ${timeText(toUs / 1000)}.`];
  if (points !== null) said.push(numbers(points, fromUs, toUs, unit));
  else if (bands.length === 0) said.push("No values.");
  else {
    const last = bands.at(-1);
    said.push(`${bands.length} stretches of ${new Set(bands.map((each) => each.text)).size} values; the newest is ${last?.text ?? ""}.`);
  }
  const gaps = gapsIn(history.gaps, fromUs, toUs);
  for (const why of new Set(gaps.map((each) => each[2]))) {
    const some = gaps.filter((each) => each[2] === why);
    const seconds = some.reduce((sum, [from, to]) => sum + (to - from) / 1e6, 0);
    said.push(`${some.length} ${some.length === 1 ? "gap" : "gaps"}, ${durationText(seconds)}: ${gapText(why)}.`);
  }
  return said.join(" ");
}

function numbers(points: Drawn, fromUs: number, toUs: number, unit?: string): string {
  let [low, high, newest] = [Infinity, -Infinity, null as number | null];
  points.t.forEach((t, at) => {
    const [least, most] = [points.low[at], points.high[at]];
    if (t * 1e6 < fromUs || t * 1e6 > toUs || least === null || least === undefined) return;
    low = Math.min(low, least);
    high = Math.max(high, most ?? least);
    newest = most ?? least;
  });
  if (newest === null) return "No readings.";
  const between = low === high ? withUnit(low, unit) : `between ${numberText(low)} and ${withUnit(high, unit)}`;
  return `${points.count} ${points.banded ? "readings and buckets" : "readings"}, ${between}; the newest is ${withUnit(newest, unit)}.`;
}
