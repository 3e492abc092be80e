// The past of the vehicle's series: what it still has of them.
import type { History } from "../logic/series";
import type { Past } from "../parts/Charts";
import { ask } from "./ask";
import { silentSince } from "./session";
import { ahead } from "./vehicle";

const AGAIN_MS = 15_000;

/** Return who knows the past. */
export function pastOfVehicle(): Past {
  return {
    ask: ({ parts, fromMs, toMs, pointsMax }) =>
      ask<History & { notes?: string[] }>("history", { ...parts, from_ns: fromMs * 1e6, to_ns: toMs * 1e6, points_max: pointsMax }),
    answers: silentSince.value === null,
    nowMs: () => Date.now() + ahead.peek(),
    againMs: () => AGAIN_MS,
  };
}
