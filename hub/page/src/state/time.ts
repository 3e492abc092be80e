// One time range for all charts. Pure.

export type Range =
  | { kind: "last"; seconds: number }
  | { kind: "between"; fromMs: number; toMs: number };

export interface Bounds {
  fromMs: number;
  toMs: number;
}

/** What is offered, in seconds. */
export const LAST_CHOICES: readonly number[] = [
  3600, 6 * 3600, 24 * 3600, 2 * 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400,
];

export const LAST_DAY: Range = { kind: "last", seconds: 86_400 };

/** Return the range in milliseconds; one that follows the present ends at `nowMs`. */
export function bounds(range: Range, nowMs: number): Bounds {
  if (range.kind === "between") return { fromMs: range.fromMs, toMs: range.toMs };
  return { fromMs: nowMs - range.seconds * 1000, toMs: nowMs };
}

/** Return the range as text for the URL: `last:86400`, or `2026-01-01T00:00:00.000Z~2026-01-02T00:00:00.000Z`. */
export function formatRange(range: Range): string {
  if (range.kind === "last") return `last:${range.seconds}`;
  return `${new Date(range.fromMs).toISOString()}~${new Date(range.toMs).toISOString()}`;
}

/** Return the range that a text stands for; null where it stands for none. */
export function parseRange(text: string): Range | null {
  const last = /^last:(\d{1,9})$/.exec(text);
  if (last) return Number(last[1]) > 0 ? { kind: "last", seconds: Number(last[1]) } : null;
  const [from, to, more] = text.split("~");
  const [fromMs, toMs] = [Date.parse(from ?? ""), Date.parse(to ?? "")];
  if (more !== undefined || !(fromMs < toMs)) return null;
  return { kind: "between", fromMs, toMs };
}

/** Return a duration as people say it: `90 s`, `2 h`, `3 d`. */
export function spoken(seconds: number): string {
  const size = Math.abs(seconds);
  if (size < 120) return `${Math.round(seconds)} s`;
  if (size < 7200) return `${Math.round(seconds / 60)} min`;
  if (size < 2 * 86_400) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/** A range that a chart was drawn to; one that would reach into the future follows the present instead. */
export function ranged(fromMs: number, toMs: number, nowMs: number): Range {
  const least = Math.max(1000, toMs - fromMs);
  if (toMs >= nowMs) return { kind: "last", seconds: Math.max(1, Math.round(least / 1000)) };
  return { kind: "between", fromMs: Math.round(fromMs), toMs: Math.round(fromMs + least) };
}
