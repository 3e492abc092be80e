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
  /** Of alerts: */
  rule?: string;
  severity?: string;
  text?: string;
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
  if (event.rule !== undefined) return [event.rule, event.text].filter(Boolean).join(": ");
  const said: string[] = [];
  if (event.previous) said.push(`after ${event.previous}`);
  if (event.reason) said.push(event.reason);
  if (event.data !== undefined && event.data !== null) said.push(valueText(event.data));
  return said.join(" · ");
}

export function toneOf(event: DeviceEvent): "critical" | "warning" | "info" {
  if (event.severity === "critical" || event.severity === "warning") return event.severity;
  return "info";
}
