// What is known of the devices, kept up by the report `devices` and by what comes live. Pure.
import { signal } from "@preact/signals";

/** A device as the service `devices` tells it; here is what the page uses of it. */
export interface ReportedDevice {
  device: string;
  link: { up: boolean; since_ns: number; [other: string]: unknown };
  agent: { up: boolean | null; conditions: readonly string[]; [other: string]: unknown };
  lanes: Readonly<Record<string, ReportedLane>>;
  nodes?: readonly string[];
  leaving?: string | null;
  revoked_ns?: number | null;
}

export interface ReportedLane {
  watermark: number;
  highest_seq: number;
  said_seq: number | null;
  gap_ranges: number;
  last_seen_ns: number | null;
  lag_messages: number | null;
  [other: string]: unknown;
}

export interface DeviceRow {
  device: string;
  /** null: nobody knows. */
  up: boolean | null;
  sinceMs: number | null;
  /** Seconds since the newest message was read; null: none ever was. */
  newestMs: number | null;
  /** Messages that the hub knows of, and has not. */
  backlog: number;
  conditions: readonly string[];
  /** The newest value of each series that was heard: `<node>.<type>.<key>`. */
  values: Readonly<Record<string, unknown>>;
}

/** All devices that the person sees, by id. A new map with every change: compare by identity. */
export const fleet = signal<ReadonlyMap<string, DeviceRow>>(new Map());

/** Return a device's row, as its report has it. */
export function rowOf(told: ReportedDevice, before?: DeviceRow): DeviceRow {
  let newest: number | null = null;
  let backlog = 0;
  for (const lane of Object.values(told.lanes)) {
    if (lane.last_seen_ns !== null) newest = Math.max(newest ?? 0, lane.last_seen_ns);
    const highest = Math.max(lane.highest_seq, lane.said_seq ?? 0);
    backlog += Math.max(0, highest - lane.watermark, lane.lag_messages ?? 0);
  }
  return {
    device: told.device,
    up: told.link.since_ns === 0 && !told.link.up ? null : told.link.up,
    sinceMs: told.link.since_ns ? told.link.since_ns / 1e6 : null,
    newestMs: newest === null ? null : newest / 1e6,
    backlog,
    conditions: told.agent.conditions,
    values: before?.values ?? {},
  };
}

/** Take a page of reports. */
export function take(reports: readonly ReportedDevice[]): void {
  const next = new Map(fleet.peek());
  for (const each of reports) next.set(each.device, rowOf(each, next.get(each.device)));
  fleet.value = next;
}
