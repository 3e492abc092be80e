// One series of a chart: history as the hub answers it, live readings on top of it, each point once. Pure.

export type GapReason = string;

/** The answer of the service `history`; times in microseconds since 1970. */
export interface History {
  kind: "number" | "text";
  unit?: string | null;
  level?: string;
  t_us: readonly number[];
  min: readonly (number | null)[];
  max: readonly (number | null)[];
  n?: readonly number[];
  runs: readonly (readonly [number, number, unknown])[];
  gaps: readonly (readonly [number, number, GapReason])[];
  complete_to_us?: number | null;
}

export const NOTHING: History = { kind: "number", t_us: [], min: [], max: [], runs: [], gaps: [] };

/** Points to draw: times in seconds, a null where a line is broken. */
export interface Drawn {
  t: number[];
  low: (number | null)[];
  high: (number | null)[];
  /** Few points: they are drawn as points, and no line says what was between them. */
  sparse: boolean;
  /** Points or buckets in view. */
  count: number;
  /** Buckets that stand for several readings are among them. */
  banded: boolean;
}

export const SPARSE_MAX = 24;

/**
 * Readings that came live. Beyond `capacity` the older half is thinned: two neighbours become one
 * bucket with the smaller minimum and the larger maximum, so that no peak is lost.
 */
export class LivePoints {
  readonly t: number[] = [];
  readonly low: number[] = [];
  readonly high: number[] = [];

  constructor(private readonly capacity = 8000) {}

  /** Take a reading in (time in microseconds); one that is known is taken once. Tells whether it was new. */
  add(tUs: number, value: number): boolean {
    let at = this.t.length;
    while (at > 0 && (this.t[at - 1] ?? 0) > tUs) at -= 1;
    if (at > 0 && this.t[at - 1] === tUs) return false;
    this.t.splice(at, 0, tUs);
    this.low.splice(at, 0, value);
    this.high.splice(at, 0, value);
    if (this.t.length > this.capacity) this.thin();
    return true;
  }

  private thin(): void {
    const pairs = Math.floor(this.t.length / 4);
    const [t, low, high] = [this.t.slice(), this.low.slice(), this.high.slice()];
    let to = 0;
    for (let at = 0; at < t.length; to += 1) {
      const both = at < pairs * 2;
      this.t[to] = t[at] ?? 0;
      this.low[to] = both ? Math.min(low[at] ?? 0, low[at + 1] ?? 0) : (low[at] ?? 0);
      this.high[to] = both ? Math.max(high[at] ?? 0, high[at + 1] ?? 0) : (high[at] ?? 0);
      at += both ? 2 : 1;
    }
    this.t.length = this.low.length = this.high.length = to;
  }
}

/**
 * Return the points in view, history first, then the live ones that are newer than all of it. A
 * neighbour on each side of the view stays, so that lines reach its edges.
 */
export function drawn(history: History, live: LivePoints, fromUs: number, toUs: number): Drawn {
  const found: Drawn = { t: [], low: [], high: [], sparse: false, count: 0, banded: false };
  const breaks = history.gaps;
  let before: number | null = null;
  let gap = 0;
  const put = (tUs: number, low: number | null, high: number | null): void => {
    if (before !== null) {
      while (gap < breaks.length && (breaks[gap]?.[1] ?? 0) <= before) gap += 1;
      const next = breaks[gap];
      if (next !== undefined && parted(next, before, tUs)) {
        found.t.push((before + tUs) / 2e6);
        found.low.push(null);
        found.high.push(null);
      }
    }
    before = tUs;
    found.t.push(tUs / 1e6);
    found.low.push(low);
    found.high.push(high);
    if (tUs >= fromUs && tUs <= toUs && low !== null) {
      found.count += 1;
      found.banded ||= low !== high;
    }
  };
  const { t_us: t, min, max } = history;
  const [begin, end] = view(t, fromUs, toUs);
  for (let at = begin; at < end; at += 1) put(t[at] ?? 0, min[at] ?? null, max[at] ?? null);
  const newest = t.at(-1) ?? -Infinity;
  const [first, last] = view(live.t, fromUs, toUs);
  for (let at = first; at < last; at += 1) {
    const tUs = live.t[at] ?? 0;
    if (tUs > newest) put(tUs, live.low[at] ?? null, live.high[at] ?? null);
  }
  found.sparse = found.count <= SPARSE_MAX;
  return found;
}

/** A gap parts two neighbours where it takes most of the time between them. */
function parted(gap: readonly [number, number, string], before: number, after: number): boolean {
  const overlap = Math.min(gap[1], after) - Math.max(gap[0], before);
  return overlap > (after - before) / 2;
}

/** Return where the points in view begin and end, with one neighbour on each side. */
function view(t: readonly number[], fromUs: number, toUs: number): [number, number] {
  return [Math.max(0, position(t, fromUs) - 1), Math.min(t.length, position(t, toUs) + 1)];
}

/** Return how many times are before one. */
export function position(t: readonly number[], tUs: number): number {
  let [low, high] = [0, t.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((t[middle] ?? 0) < tUs) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return the point nearest to a time (seconds), by its place; null where there is none. */
export function nearest(points: Drawn, seconds: number): number | null {
  const at = position(points.t, seconds);
  let best: number | null = null;
  for (let some = Math.max(0, at - 2); some < Math.min(points.t.length, at + 3); some += 1) {
    if (points.low[some] === null) continue;
    const nearer = best === null || distance(points, some, seconds) < distance(points, best, seconds);
    if (nearer) best = some;
  }
  return best;
}

function distance(points: Drawn, at: number, seconds: number): number {
  return Math.abs((points.t[at] ?? Infinity) - seconds);
}

/** Return why nothing is there at a time (microseconds); null where it lies in no gap. */
export function gapAt(gaps: History["gaps"], tUs: number): GapReason | null {
  return gaps.find(([from, to]) => from <= tUs && tUs < to)?.[2] ?? null;
}

/** Return the gaps in view, cut off at its edges; neighbours with one reason are one. */
export function gapsIn(gaps: History["gaps"], fromUs: number, toUs: number): [number, number, GapReason][] {
  const found: [number, number, GapReason][] = [];
  for (const [from, to, why] of gaps) {
    const [begin, end] = [Math.max(from, fromUs), Math.min(to, toUs)];
    if (begin >= end) continue;
    const last = found.at(-1);
    if (last !== undefined && last[2] === why && last[1] >= begin) last[1] = end;
    else found.push([begin, end, why]);
  }
  return found;
}
