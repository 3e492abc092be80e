// Where one is on the page, and its URL: `#/values?series=gps.speed&range=last:3600`.
import { effect, signal } from "@preact/signals";
import { formatRange, parseRange, type Range } from "../state/time";

export const TABS = ["now", "values", "commands", "events", "hours", "test"] as const;
export type Tab = (typeof TABS)[number];

export interface Place {
  tab: Tab;
  series: readonly string[];
  range: Range;
  text: string;
}

const HOUR: Range = { kind: "last", seconds: 3600 };
export const HOME: Place = { tab: "now", series: [], range: HOUR, text: "" };

export const place = signal<Place>(HOME);

/** Go somewhere: what is not said stays. */
export function go(partial: Partial<Place>): void {
  place.value = { ...place.peek(), ...partial };
}

export function format(to: Place): string {
  const query = new URLSearchParams();
  for (const each of to.series) query.append("series", each);
  if (formatRange(to.range) !== formatRange(HOUR)) query.set("range", formatRange(to.range));
  if (to.text) query.set("text", to.text);
  const text = query.toString();
  return `#/${to.tab}${text === "" ? "" : `?${text}`}`;
}

/** Return the place of a hash; what it does not say, or says wrongly, is as at home. */
export function parse(hash: string): Place {
  const [tab = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const said = new URLSearchParams(query);
  return {
    tab: TABS.find((each) => each === tab) ?? HOME.tab,
    series: said.getAll("series").filter((each) => each !== ""),
    range: parseRange(said.get("range") ?? "") ?? HOUR,
    text: said.get("text") ?? "",
  };
}

/** Hold the place and a window's hash together, from now on. */
export function bindPlace(window: Window): void {
  const read = (): void => {
    place.value = parse(window.location.hash);
  };
  read();
  window.addEventListener("hashchange", read);
  let tab = place.peek().tab;
  effect(() => {
    const to = place.value;
    const step = to.tab !== tab;
    tab = to.tab;
    const hash = format(to);
    if (format(parse(window.location.hash)) === hash && window.location.hash !== "") return;
    if (step) window.history.pushState(null, "", hash);
    else window.history.replaceState(null, "", hash);
  });
}
