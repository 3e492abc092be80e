// The heat map of hours: states, their words, and where a cell is. Pure.

export type HourState = "none" | "complete" | "waiting" | "explained" | "imported" | "silent";

/** By the number that stands for a state in a row's bytes. */
export const HOUR_STATES: readonly HourState[] = ["none", "complete", "waiting", "explained", "imported", "silent"];

export const STATE_WORDS: Record<HourState, string> = {
  none: "not known",
  complete: "complete: the hub has all of it",
  waiting: "waiting: the vehicle still has some of it",
  explained: "explained: the vehicle gave some up, with a receipt",
  imported: "imported from old logs",
  silent: "silent: the vehicle has said nothing of it",
};

/** Return the number that stands for a state. */
export function stateCode(state: string): number {
  return Math.max(0, HOUR_STATES.indexOf(state as HourState));
}

const LETTERS: Record<string, HourState> = {
  c: "complete",
  w: "waiting",
  e: "explained",
  i: "imported",
  s: "silent",
};

/** Return the states' numbers of the letters that the service `hours` tells, one an hour. */
export function codesOf(letters: string): Uint8Array {
  return Uint8Array.from(letters, (each) => stateCode(LETTERS[each] ?? "none"));
}

const HOUR_MS = 3_600_000;
const SILENT = stateCode("silent");

/** Return the hours without the one that is open still, if nothing was said of it yet: it is not silent. */
export function untilOpen(codes: Uint8Array, fromMs: number, nowMs: number): Uint8Array {
  const open = Math.floor((nowMs - fromMs) / HOUR_MS);
  return codes[open] === SILENT ? codes.subarray(0, open) : codes;
}

export interface HeatRow {
  id: string;
  label: string;
  /** A state's number for each hour, the oldest first; shorter where the last are not known. */
  hours: Uint8Array;
}

export interface Layout {
  width: number;
  /** Of the column of names, in pixels. */
  names: number;
  rowHeight: number;
  hours: number;
}

/** Return the left edge of an hour, in pixels; of the one behind the last it is the right edge of all. */
export function hourLeft(layout: Layout, hour: number): number {
  return layout.names + ((layout.width - layout.names) * hour) / Math.max(1, layout.hours);
}

/** Return the cell at a place; null beside the cells. */
export function cellAt(layout: Layout, x: number, y: number, rows: number): { row: number; hour: number } | null {
  const wide = layout.width - layout.names;
  const hour = Math.floor(((x - layout.names) / Math.max(1, wide)) * layout.hours);
  const row = Math.floor(y / layout.rowHeight);
  if (hour < 0 || hour >= layout.hours || row < 0 || row >= rows) return null;
  return { row, hour };
}

/** Return every which hour has a label, so that labels stand so many pixels apart; a divisor of a day, or days. */
export function labelStep(hourWidth: number, apart: number): number {
  return [1, 2, 3, 6, 12, 24, 48, 168, 336, 720].find((each) => each * hourWidth >= apart) ?? 8760;
}

/** Return how many hours of a row are in each state. */
export function shareText(row: HeatRow): string {
  const counted = new Map<number, number>();
  for (const each of row.hours) counted.set(each, (counted.get(each) ?? 0) + 1);
  return [...counted]
    .sort((a, b) => b[1] - a[1])
    .map(([code, count]) => `${count} ${HOUR_STATES[code] ?? "none"}`)
    .join(", ");
}
