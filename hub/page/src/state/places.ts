// Positions of the rows of the fleet, and trails of them. Pure.
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
  points: readonly (readonly [number, number])[];
}

const POINTS_MAX = 200;
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

/** The ways that devices have come, as far as this page was there. */
export class Trails {
  private readonly known = new Map<string, [number, number][]>();

  take(places: readonly PlaceOf[]): TrailOf[] {
    if (places.length > DEVICES_MAX) {
      this.known.clear();
      return [];
    }
    for (const { id, lat, lon } of places) {
      const way = this.known.get(id) ?? [];
      const last = way[way.length - 1];
      if (last?.[0] === lat && last[1] === lon) continue;
      this.known.set(id, [...way, [lat, lon] as [number, number]].slice(-POINTS_MAX));
    }
    return places.map(({ id }) => ({ id, points: this.known.get(id) ?? [] }));
  }
}
