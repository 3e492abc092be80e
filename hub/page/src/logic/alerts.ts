// Alerts as people sort, filter and follow them (docs/alerts.md). Pure.

export type Severity = "critical" | "warning" | "info";

export interface Alert {
  id: string;
  source: "rule" | "health" | "anomaly";
  /** Empty: the hub itself. */
  device: string;
  name: string;
  about: string;
  severity: Severity;
  state: "open" | "past";
  text: string;
  hint: string;
  since_ns: number;
  heard_ns?: number;
  seen_ns?: number;
  late?: boolean;
  ended_ns: number | null;
  ended_why: string;
  acknowledged: { by: string; time_ns: number; note: string } | null;
  silent_until_ns?: number | null;
}

export interface Silence {
  id: number;
  group: string;
  name: string;
  from_ns: number;
  until_ns: number;
  who: string;
  why: string;
  holds: boolean;
  ended_ns: number | null;
  ended_by: string;
}

export interface Filters {
  state: "open" | "past" | "all";
  severity: Severity | "";
  source: Alert["source"] | "";
  device: string;
  text: string;
  acknowledged: "yes" | "no" | "";
}

export const SEVERITIES: readonly Severity[] = ["critical", "warning", "info"];
export const SOURCES: readonly Alert["source"][] = ["rule", "health", "anomaly"];

/** Return the filters that a URL names; what it does not name, or names wrongly, does not filter. */
export function filtersOf(named: Readonly<Record<string, string>>): Filters {
  const one = <T extends string>(name: string, of: readonly T[]): T | "" => of.find((each) => each === named[name]) ?? "";
  return {
    state: one("state", ["open", "past", "all"] as const) || "open",
    severity: one("severity", SEVERITIES),
    source: one("source", SOURCES),
    device: named["device"] ?? "",
    text: named["text"] ?? "",
    acknowledged: one("acknowledged", ["yes", "no"] as const),
  };
}

/** Tell whether an alert is shown. A severity means this one, or worse. */
export function fits(alert: Alert, filters: Filters): boolean {
  if (filters.state !== "all" && alert.state !== filters.state) return false;
  if (filters.severity && rank(alert.severity) > rank(filters.severity)) return false;
  if (filters.source && alert.source !== filters.source) return false;
  if (filters.device && alert.device !== filters.device) return false;
  if (filters.acknowledged && (alert.acknowledged !== null) !== (filters.acknowledged === "yes")) return false;
  const words = filters.text.toLowerCase();
  const said = `${alert.device} ${alert.name} ${alert.about} ${alert.text}`.toLowerCase();
  return said.includes(words);
}

/** Return how bad a severity is: 0 is the worst. */
export function rank(severity: Severity): number {
  const at = SEVERITIES.indexOf(severity);
  return at < 0 ? SEVERITIES.length : at;
}

/** Return alerts with one that came live in its former place, the newest first. */
export function withAlert(alerts: readonly Alert[], one: Alert): Alert[] {
  const before = alerts.find((each) => each.id === one.id);
  // What comes live says nothing of silences: the former word holds until the next answer.
  const merged = { ...one, silent_until_ns: one.silent_until_ns ?? (one.ended_ns ? null : (before?.silent_until_ns ?? null)) };
  const all = before === undefined ? [...alerts, merged] : alerts.map((each) => (each === before ? merged : each));
  return all.sort((a, b) => b.since_ns - a.since_ns);
}

/** Return how many are open of each severity. */
export function counts(alerts: readonly Alert[]): Record<Severity, number> {
  const found = { critical: 0, warning: 0, info: 0 };
  for (const each of alerts) if (each.state === "open" && each.severity in found) found[each.severity] += 1;
  return found;
}

/** Return the source as people call it. */
export function sourceText(source: Alert["source"]): string {
  return { rule: "rule", health: "health condition", anomaly: "anomaly" }[source] ?? source;
}
