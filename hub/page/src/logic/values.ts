// The newest values of a device, by series. Pure.
import { encodeToken } from "../hub/subjects";

export interface Point {
  device: string;
  node: string;
  type: string;
  key: string;
  /** Nanoseconds since 1970. */
  time: number;
  value: unknown;
  dtype: string;
  tombstone: boolean;
  /** Who wrote it; empty: a vehicle, or it is a reading. */
  origin: string;
  parent?: string;
}

/** Return the series as the URL names it: `<node>.<type>` or `<node>.<type>.<key>`, percent-encoded. */
export function seriesOf(point: Pick<Point, "node" | "type" | "key">): string {
  const parts = [point.node, point.type, ...(point.key ? [point.key] : [])];
  return parts.map(encodeToken).join(".");
}

export type Values = ReadonlyMap<string, Point>;

/** Return values with points taken in, each where it is newer; edges of the tree are no values. */
export function withPoints(values: Values, points: readonly Point[]): Values {
  const next = new Map(values);
  for (const each of points) {
    if (each.parent) continue;
    const series = seriesOf(each);
    if ((next.get(series)?.time ?? -1) > each.time) continue;
    if (each.tombstone) next.delete(series);
    else next.set(series, each);
  }
  return next;
}

/** Return a name that people read: as in the URL, but decoded. */
export function nameOf(series: string): string {
  try {
    return decodeURIComponent(series);
  } catch {
    return series;
  }
}

/** Return a number where a value is one: numbers, and the words for those that JSON cannot say are none. */
export function numberOf(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** Units of series, by `node.type.key`, `node.type`, or the type alone. */
export type Units = Readonly<Record<string, string>>;

/** Return the unit of a series, such as `battery.soc`; the nearest name counts. */
export function unitOf(units: Units, series: string): string | undefined {
  const [node = "", type = "", key = ""] = series.split(".").map(nameOf);
  return units[`${node}.${type}.${key}`] ?? units[`${node}.${type}`] ?? units[type];
}
