// Events of devices as a line of time shows them (docs/twin.md). Pure.
import { valueText } from "./text";

export interface DeviceEvent {
  vid: string;
  /** Nanoseconds since 1970. */
  time: number;
  kind: string;
  id?: string;
  epoch?: number;
  seq?: number;
  previous?: string;
  reason?: string;
  data?: unknown;
  [other: string]: unknown;
}

/** Return a name of an event that no other has. */
export function eventId(event: DeviceEvent): string {
  return event.id ?? `${event.vid}:${event.epoch ?? ""}:${event.seq ?? ""}:${event.time}`;
}

/** Return events with one that came live, the newest first, each once. */
export function withEvent(events: readonly DeviceEvent[], one: DeviceEvent): DeviceEvent[] {
  const id = eventId(one);
  if (events.some((each) => eventId(each) === id)) return [...events];
  return [one, ...events].sort((a, b) => b.time - a.time);
}

/** Return what an event says beside its kind. */
export function eventText(event: DeviceEvent): string {
  const alert = alertOf(event);
  if (alert !== null) return `${alert.rule} ${alert.kind}${event.reason ? `: ${event.reason}` : ""}`;
  const said: string[] = [];
  if (event.previous) said.push(`after ${event.previous}`);
  if (event.reason) said.push(event.reason);
  if (event.data !== undefined && event.data !== null) said.push(valueText(event.data));
  return said.join(" · ");
}

export function toneOf(event: DeviceEvent): "critical" | "warning" | "info" {
  const alert = alertOf(event);
  if (alert === null || alert.kind !== "raised") return "info";
  return alert.severity === "critical" || alert.severity === "warning" ? alert.severity : "info";
}

/** Return what an alert of a rule says in `data`; null of all other events. */
function alertOf(event: DeviceEvent): { rule: string; kind: string; severity: string } | null {
  const data = event.data;
  if (event.kind !== "alert" || typeof data !== "object" || data === null) return null;
  const { rule, kind, severity } = data as Record<string, unknown>;
  return { rule: valueText(rule ?? ""), kind: valueText(kind ?? ""), severity: valueText(severity ?? "") };
}
