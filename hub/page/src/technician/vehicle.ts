// The vehicle as it is now: asked again and again, while the page is seen.
import { batch, computed, signal } from "@preact/signals";
import { withPoints, type Point, type Values } from "../logic/values";
import type { VehicleStatus } from "../logic/vehicle";
import { now } from "../parts/Ago";
import { failing, type Failing } from "../parts/States";
import { ask } from "./ask";
import { session, silentSince } from "./session";

const EVERY_MS = 700;
const AFTER_FAILURE_MS = 1500;

export interface Valued extends Point {
  unit?: string;
}

interface Look {
  status: VehicleStatus;
  version: number;
  values: Omit<Valued, "device">[];
  now_ns: number;
}

export const status = signal<VehicleStatus | null>(null);
export const values = signal<Values>(new Map());

/** Why the newest look brought nothing, though the agent answers; null: it brought all. */
export const lookFailed = signal<Failing | null>(null);

/** How far the vehicle's clock is ahead of the browser's, in milliseconds. */
export const ahead = signal(0);

/** The time by the vehicle's clock, in milliseconds, once a second. */
export const vehicleNow = computed(() => now.value + ahead.value);

type Heard = (points: readonly Valued[]) => void;
const listeners = new Set<Heard>();
let version = 0;

/** Call `on` with values that have changed; returns what ends that. */
export function hear(on: Heard): () => void {
  listeners.add(on);
  return () => listeners.delete(on);
}

/** Keep all of it up while somebody is in, from now on. */
export function watch(): void {
  let token: string | null = null;
  const turn = async (): Promise<void> => {
    let wait = EVERY_MS;
    const who = session.peek();
    if (who !== null && !document.hidden) {
      if (who.token !== token) {
        token = who.token;
        version = 0;
        values.value = new Map();
        status.value = null;
      }
      try {
        take(await ask<Partial<Look>>("look", { since: version }), who.device);
        lookFailed.value = null;
      } catch (thrown) {
        wait = AFTER_FAILURE_MS;
        // A silent agent is told of as that.
        lookFailed.value = silentSince.peek() === null ? failing(thrown) : null;
      }
    }
    window.setTimeout(() => void turn(), wait);
  };
  void turn();
}

function take(look: Partial<Look>, device: string): void {
  const { status: told, version: newest, values: changed, now_ns: nowNs } = look;
  if (!told || newest === undefined || changed === undefined || nowNs === undefined)
    throw new Error("a part of its answer is missing");
  batch(() => {
    status.value = told;
    // A few milliseconds under way are no difference between two clocks.
    const found = nowNs / 1e6 - Date.now();
    if (Math.abs(found - ahead.peek()) > 500) ahead.value = found;
    // The agent looks anew where no page has asked for a while, and counts from there.
    version = newest;
    if (changed.length === 0) return;
    const points = changed.map((each) => ({ ...each, device }));
    values.value = withPoints(values.peek(), points);
    for (const on of listeners) on(points);
  });
}
