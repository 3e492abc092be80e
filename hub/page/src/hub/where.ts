// What the server of this page says: where the hub's servers are, and what an operator gave it: a map, units of series.
import { signal } from "@preact/signals";
import type { Units } from "../logic/values";
import { Refused } from "./refused";

export interface MapFile {
  url: string;
  /** Why it can be no map; empty: it can be one. */
  problem: string;
}

interface Where {
  kind: string;
  websocket: string[];
  map?: MapFile;
  units?: Units;
}

/** The operator's own map; null: there is none, or nobody has asked yet. */
export const mapFile = signal<MapFile | null>(null);

export const units = signal<Units>({});

/** Ask. Throws Refused. */
export async function where(): Promise<Where> {
  try {
    const response = await fetch("where.json");
    const found = (await response.json()) as Where;
    mapFile.value = found.map ?? null;
    units.value = found.units ?? {};
    return found;
  } catch {
    throw new Refused("the server of this page does not answer");
  }
}
