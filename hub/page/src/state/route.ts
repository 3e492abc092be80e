// The whole state of a screen, and its URL: `#/device/VID-001?series=gps.speed&range=last:3600`. Pure;
// `bindRoute` alone knows a window.
import { effect, signal } from "@preact/signals";
import { formatRange, LAST_DAY, parseRange, type Range } from "./time";

export type Screen = "fleet" | "device" | "alerts" | "system";

export interface Route {
  screen: Screen;
  /** Of the screen Device. */
  device: string | null;
  /** `<node>.<type>` or `<node>.<type>.<key>`, in the order in which they are drawn. */
  series: readonly string[];
  range: Range;
  /** Whatever else a screen keeps in its URL, by name; an empty value is left out. */
  filters: Readonly<Record<string, string>>;
}

export const HOME: Route = { screen: "fleet", device: null, series: [], range: LAST_DAY, filters: {} };

const SCREENS: readonly string[] = ["fleet", "device", "alerts", "system"];

export const route = signal<Route>(HOME);

/** Go somewhere: what is not said stays. Another screen begins with no filters, where none are said. */
export function go(partial: Partial<Route>): void {
  route.value = moved(route.peek(), partial);
}

/** Change filters of this screen; an empty value takes one away. */
export function filter(some: Readonly<Record<string, string>>): void {
  go({ filters: { ...route.peek().filters, ...some } });
}

/** Return where a step leads. */
export function moved(from: Route, partial: Partial<Route>): Route {
  const elsewhere = partial.screen !== undefined && partial.screen !== from.screen;
  const base = elsewhere ? { ...from, filters: {}, series: [] } : from;
  return { ...base, ...partial };
}

/** Return the hash of a route, for a link's `href`, too. */
export function href(partial: Partial<Route>, from: Route = route.peek()): string {
  return format(moved(from, partial));
}

export function format(to: Route): string {
  const query = new URLSearchParams();
  for (const each of to.series) query.append("series", each);
  const range = formatRange(to.range);
  if (range !== formatRange(HOME.range)) query.set("range", range);
  for (const name of Object.keys(to.filters).sort()) {
    const value = to.filters[name];
    if (value) query.set(`f.${name}`, value);
  }
  const device = to.screen === "device" && to.device !== null ? `/${encodeURIComponent(to.device)}` : "";
  const text = query.toString();
  return `#/${to.screen}${device}${text === "" ? "" : `?${text}`}`;
}

/** Return the route of a hash; what it does not say, or says wrongly, is as at home. */
export function parse(hash: string): Route {
  const [path, query] = split(hash.replace(/^#\/?/, ""));
  const [screen, device] = path.split("/");
  const said = new URLSearchParams(query);
  const filters: Record<string, string> = {};
  for (const [name, value] of said) if (name.startsWith("f.") && value) filters[name.slice(2)] = value;
  return {
    screen: SCREENS.includes(screen ?? "") ? (screen as Screen) : HOME.screen,
    device: screen === "device" && device ? decoded(device) : null,
    series: said.getAll("series").filter((each) => each !== ""),
    range: parseRange(said.get("range") ?? "") ?? HOME.range,
    filters,
  };
}

function split(text: string): [string, string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/**
 * Hold the route and a window's hash together, from now on.
 * Another screen or device is a step that "back" undoes; a filter or a range is not.
 */
export function bindRoute(window: Window): void {
  const read = (): void => {
    route.value = parse(window.location.hash);
  };
  read();
  window.addEventListener("hashchange", read);
  let at = route.peek();
  effect(() => {
    const to = route.value;
    const hash = format(to);
    const step = to.screen !== at.screen || to.device !== at.device;
    at = to;
    if (format(parse(window.location.hash)) === hash) return;
    if (step) window.history.pushState(null, "", hash);
    else window.history.replaceState(null, "", hash);
  });
}
