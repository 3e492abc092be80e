// The past of a device's series, as the hub knows it.
import { ask } from "../hub/ask";
import { link } from "../hub/connection";
import type { History } from "../logic/series";
import type { Past } from "../parts/Charts";

/** A long range is asked for less often. */
const AGAIN_MS = 15_000;
const LONG_AGAIN_MS = 60_000;
const LONG_S = 6 * 3600;

/** Return who knows the past of a device. */
export function pastOf(device: string): Past {
  return {
    ask: ({ parts, fromMs, toMs, pointsMax }) =>
      ask<History>("history", { device, ...parts, from_us: fromMs * 1000, to_us: toMs * 1000, points_max: pointsMax }),
    answers: link.value === "up",
    nowMs: () => Date.now(),
    againMs: (range) => (range.kind === "last" && range.seconds <= LONG_S ? AGAIN_MS : LONG_AGAIN_MS),
  };
}
