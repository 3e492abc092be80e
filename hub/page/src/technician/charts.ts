// The charts of the page: what the vehicle still has of each series, and what came live since.
import { useEffect, useRef, useState } from "preact/hooks";
import type { LiveText } from "../logic/bands";
import { LivePoints, type History } from "../logic/series";
import { partsOf } from "../logic/shadow";
import { numberOf, seriesOf } from "../logic/values";
import { failing } from "../parts/States";
import { bounds, formatRange, type Range } from "../state/time";
import { ask } from "./ask";
import { silentSince } from "./session";
import { ahead, hear } from "./vehicle";

const AGAIN_MS = 15_000;
const TEXTS_MAX = 2000;

export interface ChartState {
  history: History | null;
  notice: string | null;
  live: LivePoints;
  texts: LiveText[];
  /** Grows with each change. */
  version: number;
}

const fresh = (): ChartState => ({ history: null, notice: null, live: new LivePoints(), texts: [], version: 0 });

/** Keep up the charts of these series; `pixels` is how wide they are drawn. */
export function useCharts(series: readonly string[], range: Range, pixels: number): (name: string) => ChartState {
  const states = useRef(new Map<string, ChartState>());
  const [, setTurn] = useState(0);
  const of = (name: string): ChartState => {
    const known = states.current.get(name) ?? fresh();
    states.current.set(name, known);
    return known;
  };
  const change = (name: string, by: Partial<ChartState>): void => {
    const state = of(name);
    states.current.set(name, { ...state, ...by, version: state.version + 1 });
    setTurn((before) => before + 1);
  };
  const width = Math.max(200, Math.round(pixels / 200) * 200);
  const silent = silentSince.value !== null;
  useEffect(() => {
    if (silent) return;
    let over = false;
    const load = (): void => {
      const { fromMs, toMs } = bounds(range, Date.now() + ahead.peek());
      for (const name of series) {
        const parts = partsOf(name);
        if (parts === null) {
          change(name, { notice: `${name} names no series` });
          continue;
        }
        const question = { ...parts, from_ns: Math.floor(fromMs) * 1e6, to_ns: Math.ceil(toMs) * 1e6, points_max: width };
        ask<History & { notes?: string[] }>("history", question).then(
          (history) => over || change(name, { history, notice: history.notes?.[0] ?? null }),
          (thrown: unknown) => over || change(name, { notice: `No history: ${failing(thrown).message}. Live values are shown.` }),
        );
      }
    };
    load();
    const timer = range.kind === "last" ? setInterval(load, AGAIN_MS) : undefined;
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [series.join("\n"), formatRange(range), width, silent]);
  useEffect(
    () =>
      hear((points) => {
        for (const point of points) {
          const name = seriesOf(point);
          if (!series.includes(name) || point.tombstone) continue;
          const state = of(name);
          const tUs = Math.round(point.time / 1000);
          const value = numberOf(point.value);
          if (value !== null && state.history?.kind !== "text") {
            if (!state.live.add(tUs, value)) continue;
          } else {
            state.texts.push({ tUs, value: point.value });
            if (state.texts.length > TEXTS_MAX) state.texts.splice(0, TEXTS_MAX / 2);
          }
          change(name, {});
        }
      }),
    [series.join("\n")],
  );
  return of;
}
