// Keeps the fleet up to date while a screen shows it: pages of rows and hours, and values as they come.
import { signal, type Signal } from "@preact/signals";
import { Batch, only, withHours, withLive, withRows } from "../state/fleet";
import type { Fleet, Hours, Live, ToldHours, ToldRow } from "../state/fleet";
import { ask, Refused } from "./ask";
import { listen } from "./listen";

const HOUR_NS = 3_600_000_000_000n;
/** Of all rows; a large fleet's are 1.5 MB. */
const ROWS_EVERY_MS = 2_000;
const ROWS_EVERY_MS_OF_MANY = 10_000;
const MANY = 500;
const HOURS_EVERY_MS = 60_000;
const BATCH_MS_OF_MANY = 200;
const HOURS_SHOWN_MS = 1_000;

export interface FleetFeed {
  fleet: Signal<Fleet>;
  hours: Signal<Hours | null>;
  /** Whether all pages have come once. */
  whole: Signal<boolean>;
  failed: Signal<Refused | null>;
  end: () => void;
}

export interface Wanted {
  /** Series whose newest values are shown. */
  series: readonly string[];
  fromMs: number;
  /** null: now, whenever that is. */
  toMs: number | null;
}

/** Begin; `end` stops it. */
export function feedFleet(wanted: Wanted, before?: Pick<FleetFeed, "fleet" | "hours">): FleetFeed {
  const fleet = before?.fleet ?? signal<Fleet>(new Map());
  const hours = before?.hours ?? signal<Hours | null>(null);
  const whole = signal(fleet.peek().size > 0);
  const failed = signal<Refused | null>(null);
  let over = false;

  const rows = async (): Promise<number> => {
    const seen = new Set<string>();
    const told: ToldRow[] = [];
    let after = "";
    for (;;) {
      const page = await ask<{ devices: ToldRow[]; next: string | null }>("fleet", { after, series: wanted.series });
      if (over) return 0;
      for (const each of page.devices) seen.add(each.device);
      // At first each page is shown as it comes; later all of them together: each change is drawn.
      if (whole.peek()) told.push(...page.devices);
      else fleet.value = withRows(fleet.peek(), page.devices, wanted.series);
      if (page.next === null) break;
      after = page.next;
    }
    fleet.value = only(withRows(fleet.peek(), told, wanted.series), seen);
    whole.value = true;
    return seen.size > MANY ? ROWS_EVERY_MS_OF_MANY : ROWS_EVERY_MS;
  };
  // The stretch that was told wholly, and the word by which the hub tells what has changed since.
  let toldOf = "";
  let known = "";
  const completeness = async (): Promise<number> => {
    const question = stretch(wanted, Date.now());
    const of = JSON.stringify(question);
    const since = of === toldOf ? known : "";
    let first = "";
    let after = "";
    let shownMs = 0;
    let waiting: ToldHours[] = [];
    for (;;) {
      const page = await ask<ToldHours>("hours", { ...question, after, since });
      if (over) return 0;
      first ||= page.known ?? "";
      // The first page at once; those after it a few at a time, as each is sorted and drawn. Where an hour has begun
      // the hours that are shown stay until all of the new stretch are there.
      const late = toldOf !== "" && of !== toldOf;
      if (page.next === null || (!late && performance.now() - shownMs > HOURS_SHOWN_MS)) {
        hours.value = withHours(hours.peek(), page, waiting);
        waiting = [];
        shownMs = performance.now();
      } else waiting.push(page);
      if (page.next === null) break;
      after = page.next;
    }
    toldOf = of;
    known = first;
    return HOURS_EVERY_MS;
  };
  const again = async (work: () => Promise<number>): Promise<void> => {
    while (!over) {
      let wait = ROWS_EVERY_MS;
      try {
        // What nobody looks at is not asked for.
        if (!document.hidden) wait = await work();
        failed.value = null;
      } catch (error) {
        if (!over) failed.value = error instanceof Refused ? error : new Refused(String(error));
      }
      await new Promise((go) => setTimeout(go, wait));
    }
  };
  void again(completeness);
  void again(rows);

  const batch = new Batch<Live>(
    // To draw anew what is seen of thousands of rows takes a part of a second's frames: a few a second are enough.
    (run) => {
      if (fleet.peek().size <= MANY) requestAnimationFrame(run);
      else setTimeout(() => requestAnimationFrame(run), BATCH_MS_OF_MANY);
    },
    (some) => (fleet.value = withLive(fleet.peek(), some)),
  );
  const ends = wanted.series.map((series) => {
    const { node, tail } = subjectOf(series);
    return listen(tail, ([address, , key], payload) => {
      const told = payload as { device?: string; node?: string; value?: unknown; time?: number; tombstone?: boolean };
      if (address === undefined || key === undefined || told.device === undefined || told.tombstone) return;
      if (told.node !== node || typeof told.time !== "number") return;
      batch.add({ device: told.device, series, value: told.value, timeNs: told.time });
    });
  });
  return {
    fleet,
    hours,
    whole,
    failed,
    end: () => {
      over = true;
      for (const each of ends) each();
    },
  };
}

/** Return the node of a series, and the tail of its live subject at any device. */
function subjectOf(series: string): { node: string; tail: string } {
  const [node = "", type = "", key = "%"] = series.split(".");
  return { node: decodeURIComponent(node), tail: `*.${type}.${key}` };
}

/** Return the question for the hours of a range: whole ones, a month at most. */
export function stretch(wanted: Pick<Wanted, "fromMs" | "toMs">, nowMs: number): { from_ns: number; to_ns: number } {
  const hourMs = 3_600_000;
  const to = Math.ceil((wanted.toMs ?? nowMs) / hourMs);
  const from = Math.max(Math.floor(wanted.fromMs / hourMs), to - 24 * 31);
  // In nanoseconds a number of JavaScript is no longer exact: hours are, as integers of more digits.
  return { from_ns: Number(BigInt(from) * HOUR_NS), to_ns: Number(BigInt(to) * HOUR_NS) };
}
