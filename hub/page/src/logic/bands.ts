// Series of texts, enumerations and truth values: stretches of time with one value. Pure.
import { valueText } from "./text";
import type { History } from "./series";

export interface Band {
  fromUs: number;
  toUs: number;
  text: string;
}

/** A text that came live, and its time in microseconds. */
export interface LiveText {
  tUs: number;
  value: unknown;
}

/**
 * Return the bands in view: history's runs, then live values, each of which holds until the next one or
 * until a gap begins; the last one until `nowUs`.
 */
export function bandsIn(
  history: History,
  live: readonly LiveText[],
  fromUs: number,
  toUs: number,
  nowUs: number,
): Band[] {
  const all: Band[] = history.runs.map(([from, to, value]) => ({ fromUs: from, toUs: to, text: valueText(value) }));
  const last = all.at(-1);
  const newest = last?.toUs ?? -Infinity;
  const later = live.filter((each) => each.tUs > newest).sort((a, b) => a.tUs - b.tUs);
  const begins = later[0]?.tUs ?? nowUs;
  if (last !== undefined && (history.complete_to_us ?? newest) <= begins)
    last.toUs = Math.max(last.toUs, until(history, last.toUs, begins));
  later.forEach((each, at) => {
    const end = until(history, each.tUs, later[at + 1]?.tUs ?? Math.max(nowUs, each.tUs));
    all.push({ fromUs: each.tUs, toUs: end, text: valueText(each.value) });
  });
  return joined(all)
    .map((each) => ({ ...each, fromUs: Math.max(each.fromUs, fromUs), toUs: Math.min(each.toUs, toUs) }))
    .filter((each) => each.fromUs < each.toUs);
}

/** Return where a value that held at `fromUs` ends: at the next gap, or at `toUs`. */
function until(history: History, fromUs: number, toUs: number): number {
  const gap = history.gaps.find(([from, to]) => to > fromUs && from < toUs && from >= fromUs);
  return gap ? gap[0] : toUs;
}

function joined(bands: readonly Band[]): Band[] {
  const found: Band[] = [];
  for (const each of bands) {
    const last = found.at(-1);
    if (last !== undefined && last.text === each.text && last.toUs >= each.fromUs) last.toUs = each.toUs;
    else found.push({ ...each });
  }
  return found;
}

/** Return the values of bands, each once, in the order in which they get their colours. */
export function valuesOf(bands: readonly Band[]): string[] {
  return [...new Set(bands.map((each) => each.text))].sort();
}

/** Return the band at a time; null between bands. */
export function bandAt(bands: readonly Band[], tUs: number): Band | null {
  return bands.find((each) => each.fromUs <= tUs && tUs < each.toUs) ?? null;
}
