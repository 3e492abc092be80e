// What is known of the devices: rows of the service `fleet`, letters of the service `hours`, values as they come. Pure.
import { codesOf, untilOpen, type HeatRow } from "../logic/heat";

export interface ToldRow {
  device: string;
  up: boolean;
  since_ns: number | null;
  agent: boolean | null;
  newest_ns: number | null;
  lag: number | null;
  owed: number;
  gaps: number;
  revoked: boolean;
  conditions: [string, string, string][];
  conditions_not_shown: number;
  values: ([unknown, number] | null)[];
  groups: string[];
}

export interface Value {
  value: unknown;
  timeNs: number;
}

export interface FleetRow {
  device: string;
  /** null: it never was connected since the hub has looked. */
  up: boolean | null;
  sinceMs: number | null;
  newestMs: number | null;
  /** Messages that the vehicle holds and the hub does not, as far as anybody knows. */
  backlog: number;
  /** Of them, what its sources lag; null: nobody knows. */
  lag: number | null;
  revoked: boolean;
  conditions: readonly Condition[];
  more: number;
  /** By series. */
  values: Readonly<Record<string, Value>>;
  groups: readonly string[];
}

export interface Condition {
  severity: string;
  code: string;
  about: string;
}

export type Fleet = ReadonlyMap<string, FleetRow>;

/** Return a device's row as it was told; a value that came live since is newer, and stays. */
export function rowOf(told: ToldRow, series: readonly string[], before?: FleetRow): FleetRow {
  const values: Record<string, Value> = {};
  series.forEach((name, at) => {
    const said = told.values[at];
    const known = before?.values[name];
    if (said && !(known && known.timeNs > said[1])) values[name] = { value: said[0], timeNs: said[1] };
    else if (known) values[name] = known;
  });
  return {
    device: told.device,
    up: told.up ? true : told.since_ns === null ? null : false,
    sinceMs: ms(told.since_ns),
    newestMs: ms(told.newest_ns),
    backlog: Math.max(told.owed, told.lag ?? 0),
    lag: told.lag,
    revoked: told.revoked,
    conditions: told.conditions.map(([severity, code, about]) => ({ severity, code, about })),
    more: told.conditions_not_shown,
    values,
    groups: told.groups,
  };
}

function ms(ns: number | null): number | null {
  return ns === null ? null : ns / 1e6;
}

/** Return the fleet with rows told; one that was told the same keeps its identity. */
export function withRows(fleet: Fleet, told: readonly ToldRow[], series: readonly string[]): Fleet {
  const next = new Map(fleet);
  for (const each of told) {
    const before = next.get(each.device);
    const row = rowOf(each, series, before);
    if (before === undefined || !same(before, row)) next.set(each.device, row);
  }
  return next;
}

/** Return the fleet without devices that are not among those told: they are gone, or moved out of sight. */
export function only(fleet: Fleet, devices: ReadonlySet<string>): Fleet {
  if ([...fleet.keys()].every((each) => devices.has(each))) return fleet;
  return new Map([...fleet].filter(([device]) => devices.has(device)));
}

function same(a: FleetRow, b: FleetRow): boolean {
  if (a.up !== b.up || a.sinceMs !== b.sinceMs || a.newestMs !== b.newestMs || a.backlog !== b.backlog) return false;
  if (a.lag !== b.lag || a.revoked !== b.revoked || a.more !== b.more) return false;
  const [mine, theirs] = [Object.keys(a.values), Object.keys(b.values)];
  if (mine.length !== theirs.length || mine.some((each) => a.values[each]?.timeNs !== b.values[each]?.timeNs)) return false;
  // Short, and mostly empty.
  return words(a) === words(b);
}

function words({ groups, conditions }: FleetRow): string {
  if (conditions.length === 0 && groups.length === 1) return groups[0] ?? "";
  return JSON.stringify([groups, conditions]);
}

export interface Live {
  device: string;
  series: string;
  value: unknown;
  timeNs: number;
}

/** Return the fleet with values that came live, the newest of each; of devices that are not in it nothing is taken. */
export function withLive(fleet: Fleet, news: readonly Live[]): Fleet {
  let next: Map<string, FleetRow> | null = null;
  for (const { device, series, value, timeNs } of news) {
    const row = (next ?? fleet).get(device);
    if (row === undefined || (row.values[series]?.timeNs ?? -Infinity) >= timeNs) continue;
    next ??= new Map(fleet);
    const newestMs = Math.max(row.newestMs ?? 0, timeNs / 1e6);
    next.set(device, { ...row, newestMs, values: { ...row.values, [series]: { value, timeNs } } });
  }
  return next ?? fleet;
}

export interface Hours {
  fromMs: number;
  hours: number;
  /** A state's number for each hour, by device. */
  of: ReadonlyMap<string, Uint8Array>;
  /** The devices of which an hour waits. */
  waiting: ReadonlySet<string>;
}

export interface ToldHours {
  from_ns: number;
  hours: number;
  devices: { device: string; hours: string }[];
  next: string | null;
  /** By which the hub tells what has changed since. */
  known?: string;
}

/** Return the hours with pages of them; a page of another stretch begins anew. */
export function withHours(hours: Hours | null, told: ToldHours, more: readonly ToldHours[] = []): Hours {
  const fromMs = told.from_ns / 1e6;
  const goesOn = hours !== null && hours.fromMs === fromMs && hours.hours === told.hours;
  if (goesOn && [...more, told].every((page) => page.devices.length === 0)) return hours;
  const of = new Map(goesOn ? hours.of : []);
  const waiting = new Set(goesOn ? hours.waiting : []);
  for (const page of [...more, told])
    for (const each of page.devices) {
      of.set(each.device, codesOf(each.hours));
      if (each.hours.includes("w")) waiting.add(each.device);
      else waiting.delete(each.device);
    }
  return { fromMs, hours: told.hours, of, waiting };
}

export type Show = "" | "down" | "errors" | "warnings" | "waiting";

export interface Filter {
  text: string;
  group: string;
  show: Show;
}

/** Return the rows that a filter lets through. */
export function chosen(fleet: Fleet, hours: Hours | null, filter: Filter): FleetRow[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const found: FleetRow[] = [];
  for (const row of fleet.values()) {
    if (filter.group && !row.groups.includes(filter.group) && row.device !== filter.group) continue;
    if (filter.show && !is(row, hours, filter.show)) continue;
    if (words.length > 0) {
      const said = [row.device, ...row.groups, ...row.conditions.map((each) => each.code)].join(" ").toLowerCase();
      if (!words.every((word) => said.includes(word))) continue;
    }
    found.push(row);
  }
  return found;
}

/** Tell whether a row is of those that a count is of. */
export function is(row: FleetRow, hours: Hours | null, show: Show): boolean {
  if (show === "down") return row.up !== true && !row.revoked;
  if (show === "errors") return row.conditions.some((each) => each.severity === "error");
  if (show === "warnings") return row.conditions.some((each) => each.severity === "warning");
  if (show === "waiting") return hours?.waiting.has(row.device) ?? false;
  return true;
}

const WAITING = codesOf("w")[0] ?? 0;
const COMPLETE = codesOf("c")[0] ?? 0;
const IMPORTED = codesOf("i")[0] ?? 0;

export type Counts = Record<Exclude<Show, ""> | "devices" | "up", number>;

/** Return how many rows are how. */
export function counts(rows: Iterable<FleetRow>, hours: Hours | null): Counts {
  const found: Counts = { devices: 0, up: 0, down: 0, errors: 0, warnings: 0, waiting: 0 };
  for (const row of rows) {
    found.devices += 1;
    if (row.up === true) found.up += 1;
    if (row.up === true && row.conditions.length === 0) {
      if (is(row, hours, "waiting")) found.waiting += 1;
      continue;
    }
    for (const show of ["down", "errors", "warnings", "waiting"] as const)
      if (is(row, hours, show)) found[show] += 1;
  }
  return found;
}

/** Return the heat map's rows: those that miss most first, then by name. */
export function heatRows(rows: readonly FleetRow[], hours: Hours, nowMs: number): HeatRow[] {
  const ranks = ranksOf(rows);
  const found = rows.map((row, at) => {
    const codes = untilOpen(hours.of.get(row.device) ?? NONE, hours.fromMs, nowMs);
    return { id: row.device, label: row.device, hours: codes, missing: missing(codes), rank: ranks[at] ?? 0 };
  });
  found.sort((a, b) => b.missing - a.missing || a.rank - b.rank);
  return found;
}

let ranked: { ids: readonly string[]; ranks: readonly number[] } = { ids: [], ranks: [] };

/** Return each row's place by name. The same devices are ranked once: to compare names as people do takes its time. */
function ranksOf(rows: readonly FleetRow[]): readonly number[] {
  const { ids } = ranked;
  if (ids.length !== rows.length || rows.some((row, at) => row.device !== ids[at])) {
    const now = rows.map((row) => row.device);
    const ranks: number[] = new Array<number>(now.length);
    [...now.keys()].sort((a, b) => order.compare(now[a] ?? "", now[b] ?? "")).forEach((at, rank) => (ranks[at] = rank));
    ranked = { ids: now, ranks };
  }
  return ranked.ranks;
}

const HOUR_MS = 3_600_000;
const NONE = new Uint8Array(0);
const order = new Intl.Collator("en", { numeric: true });

function missing(codes: Uint8Array): number {
  let count = 0;
  // The last hour is open still: all that live are waiting or silent in it.
  for (let at = 0; at < codes.length - 1; at += 1) if (codes[at] === WAITING) count += 1;
  return count;
}

/** Return the part of the hours that are over, and that the vehicles spoke of, that is complete, from 0 to 1; null: there are none. */
export function completePart(rows: readonly FleetRow[], hours: Hours, nowMs: number): number | null {
  let spoken = 0;
  let complete = 0;
  const over = Math.floor((nowMs - hours.fromMs) / HOUR_MS);
  for (const row of rows)
    for (const code of (hours.of.get(row.device) ?? NONE).subarray(0, Math.max(0, over))) {
      if (code === 0 || code === IMPORTED) continue;
      spoken += 1;
      if (code === COMPLETE) complete += 1;
    }
  return spoken === 0 ? null : complete / spoken;
}

/** Return all groups of the rows, by name. */
export function groupsOf(fleet: Fleet): string[] {
  const found = new Set<string>();
  for (const row of fleet.values()) for (const group of row.groups) found.add(group);
  return [...found].sort(order.compare);
}

/** Gathers what comes, and hands it on once a frame: a screen is drawn no more often than it is seen. */
export class Batch<T> {
  private waiting: T[] = [];
  private due = false;

  constructor(
    private readonly schedule: (run: () => void) => void,
    private readonly take: (some: T[]) => void,
    private readonly most = 50_000,
  ) {}

  add(one: T): void {
    this.waiting.push(one);
    // A page in the background has no frames: the oldest of what it would have shown go.
    if (this.waiting.length > this.most) this.waiting.splice(0, this.waiting.length - this.most / 2);
    if (this.due) return;
    this.due = true;
    this.schedule(() => {
      this.due = false;
      const some = this.waiting;
      this.waiting = [];
      this.take(some);
    });
  }
}
