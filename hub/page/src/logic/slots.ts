// Slots of a vehicle's artifacts, from its points `artifact.<slot>` and `artifact.<slot>.state` (docs/artifacts.md). Pure.
import { valueText } from "./text";
import type { Point } from "./values";

export interface Slot {
  name: string;
  /** NAME@SHA256; empty: nothing is. */
  wanted: string;
  state: string;
  /** The file that is there, or on its way. */
  held: string;
  error: string;
  /** When the state was reported, in milliseconds. */
  ms: number | null;
}

export function slotsOf(points: Iterable<Point>): Slot[] {
  const slots = new Map<string, Slot>();
  const of = (name: string): Slot => {
    const slot = slots.get(name) ?? { name, wanted: "", state: "", held: "", error: "", ms: null };
    slots.set(name, slot);
    return slot;
  };
  for (const point of points) {
    if (point.node !== "artifact") continue;
    const slot = of(point.type);
    if (point.key === "") slot.wanted = valueText(point.value);
    else if (point.key === "state") {
      const said = (typeof point.value === "object" && point.value !== null ? point.value : {}) as Record<string, unknown>;
      slot.state = valueText(said["state"] ?? "");
      slot.held = said["name"] ? `${valueText(said["name"])}@${valueText(said["digest"] ?? "")}` : "";
      slot.error = said["error"] ? valueText(said["error"]) : "";
      slot.ms = point.time / 1e6;
    }
  }
  return [...slots.values()].sort((a, b) => a.name.localeCompare(b.name));
}
