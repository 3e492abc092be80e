// What the server of this page says: where the hub's servers are, and whether an operator gave it a map.
import { signal } from "@preact/signals";
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
}

/** The operator's own map; null: there is none, or nobody has asked yet. */
export const mapFile = signal<MapFile | null>(null);

/** Ask. Throws Refused. */
export async function where(): Promise<Where> {
  try {
    const response = await fetch("where.json");
    const found = (await response.json()) as Where;
    mapFile.value = found.map ?? null;
    return found;
  } catch {
    throw new Refused("the server of this page does not answer");
  }
}
