// Positions of the rows of the fleet, and trails of them. Pure.
import type { History } from "../logic/series";
import type { FleetRow } from "./fleet";

export interface PlaceOf {
  id: string;
  label: string;
  lat: number;
  lon: number;
  tone: "good" | "warning" | "critical" | "away";
}

export interface TrailOf {
  id: string;
  points: Way;
}

const POINTS_MAX = 500;
/** Of more devices, trails are one tangle. */
const DEVICES_MAX = 300;

/** Return the rows that have a position. */
export function placesOf(rows: readonly FleetRow[], latitude: string, longitude: string): PlaceOf[] {
  const found: PlaceOf[] = [];
  for (const row of rows) {
    const lat = row.values[latitude]?.value;
    const lon = row.values[longitude]?.value;
    if (typeof lat !== "number" || typeof lon !== "number") continue;
    if (!(Math.abs(lat) <= 90 && Math.abs(lon) <= 180)) continue;
    found.push({ id: row.device, label: row.device, lat, lon, tone: tone(row) });
  }
  return found;
}

function tone(row: FleetRow): PlaceOf["tone"] {
  if (row.conditions.some((each) => each.severity === "error")) return "critical";
  if (row.up !== true) return "away";
  return row.conditions.some((each) => each.severity === "warning") ? "warning" : "good";
}

/** Places, the oldest first; null where nobody knows the way between two of them. */
export type Way = readonly (readonly [number, number] | null)[];

/** A trail begins so long ago, in buckets of so many seconds. */
export const PAST_S = 3600;
export const BUCKET_S = 15;

/** After so many usual steps without a place nobody knows the way. */
const STEPS_MAX = 5;

/** Return the way by the histories of latitude and longitude: a place for each bucket that both have. */
export function wayOf(lat: History, lon: History): Way {
  const east = byBucket(lon);
  const both = [...byBucket(lat)].filter(([at]) => east.has(at));
  const steps = both.slice(1).map(([at], index) => at - (both[index]?.[0] ?? at));
  const usual = [...steps].sort((a, b) => a - b)[steps.length >> 1] ?? 1;
  return both.flatMap(([at, north], index) => {
    const place = [north, east.get(at) ?? 0] as const;
    return (steps[index - 1] ?? 0) > STEPS_MAX * usual ? [null, place] : [place];
  });
}

/** The middle of each bucket's values, by the bucket's number. */
function byBucket({ t_us: times, min, max }: History): Map<number, number> {
  const found = new Map<number, number>();
  times.forEach((tUs, index) => {
    const [low, high] = [min[index], max[index]];
    if (typeof low === "number" && typeof high === "number")
      found.set(Math.floor(tUs / (BUCKET_S * 1e6)), (low + high) / 2);
  });
  return found;
}

/** The ways that devices have come: as this page saw them, and before that by their history. */
export class Trails {
  private readonly known = new Map<string, Way>();
  private readonly begun = new Set<string>();

  /** Return the first device whose history was not asked for, and take it that it is now; null: there is none. */
  next(places: readonly PlaceOf[]): string | null {
    if (places.length > DEVICES_MAX) return null;
    const found = places.find(({ id }) => !this.begun.has(id))?.id ?? null;
    if (found !== null) this.begun.add(found);
    return found;
  }

  /** Put a way before what this page has seen of a device. */
  before(id: string, way: Way): void {
    this.known.set(id, [...way, ...(this.known.get(id) ?? [])].slice(-POINTS_MAX));
  }

  take(places: readonly PlaceOf[]): TrailOf[] {
    if (places.length > DEVICES_MAX) {
      this.known.clear();
      this.begun.clear();
      return [];
    }
    for (const { id, lat, lon } of places) {
      const way = this.known.get(id) ?? [];
      const last = way[way.length - 1];
      if (last?.[0] === lat && last[1] === lon) continue;
      this.known.set(id, [...way, [lat, lon] as const].slice(-POINTS_MAX));
    }
    return places.map(({ id }) => ({ id, points: this.known.get(id) ?? [] }));
  }
}
