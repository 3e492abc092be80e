// The charts of a screen: what history answered for each series, and what came live since.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../hub/ask";
import { link } from "../hub/connection";
import type { LiveText } from "../logic/bands";
import { LivePoints, type History } from "../logic/series";
import { partsOf } from "../logic/shadow";
import { numberOf, seriesOf, type Point } from "../logic/values";
import { failing, type Failing } from "../parts/States";
import { bounds, formatRange, type Range } from "./time";

const ASK_AGAIN_MS = 60_000;
const TEXTS_MAX = 2000;

export interface ChartState {
  series: string;
  history: History | null;
  error: Failing | null;
  live: LivePoints;
  texts: LiveText[];
  /** Grows with each change. */
  version: number;
}

export interface Charts {
  of: (series: string) => ChartState;
  /** Take in a point that came live; one of a series without a chart is passed over. */
  add: (point: Point) => void;
}

/** Keep up the charts of a device's series. `pixels` is how wide they are drawn. */
export function useCharts(device: string, series: readonly string[], range: Range, pixels: number): Charts {
  const states = useRef(new Map<string, ChartState>());
  const [, setTurn] = useState(0);
  const frame = useRef(0);
  const redraw = (): void => {
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      setTurn((before) => before + 1);
    });
  };
  const of = (name: string): ChartState => {
    const known = states.current.get(name);
    if (known !== undefined) return known;
    const made = { series: name, history: null, error: null, live: new LivePoints(), texts: [], version: 0 };
    states.current.set(name, made);
    return made;
  };
  const change = (name: string, by: Partial<ChartState>): void => {
    const state = of(name);
    states.current.set(name, { ...state, ...by, version: state.version + 1 });
    redraw();
  };
  const up = link.value === "up";
  const wanted = series.join("\n");
  const width = Math.max(200, Math.round(pixels / 200) * 200);
  useEffect(() => {
    if (!up) return;
    let over = false;
    const load = (): void => {
      const { fromMs, toMs } = bounds(range, Date.now());
      for (const name of series) {
        const parts = partsOf(name);
        if (parts === null) {
          change(name, { error: { message: `${name} names no series` } });
          continue;
        }
        const question = { device, ...parts, from_us: Math.floor(fromMs * 1000), to_us: Math.ceil(toMs * 1000), points_max: width };
        ask<History>("history", question).then(
          (history) => over || change(name, { history, error: null }),
          (thrown: unknown) => over || change(name, { error: failing(thrown) }),
        );
      }
    };
    load();
    const timer = range.kind === "last" ? setInterval(load, ASK_AGAIN_MS) : undefined;
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [device, wanted, formatRange(range), width, up]);
  useEffect(() => () => cancelAnimationFrame(frame.current), []);

  const add = (point: Point): void => {
    const name = seriesOf(point);
    if (!series.includes(name) || point.tombstone) return;
    const state = of(name);
    const tUs = Math.round(point.time / 1000);
    const value = numberOf(point.value);
    if (value !== null && state.history?.kind !== "text") {
      if (!state.live.add(tUs, value)) return;
    } else {
      if (state.texts.some((each) => each.tUs === tUs)) return;
      state.texts.push({ tUs, value: point.value });
      if (state.texts.length > TEXTS_MAX) state.texts.splice(0, TEXTS_MAX / 2);
    }
    change(name, {});
  };
  return { of, add };
}
