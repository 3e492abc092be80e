// Answers as a tab uses them: asked when it opens, and again every few seconds.
import { useLooked, type Asked } from "../state/looked";
import { ask } from "./ask";
import { silentSince } from "./session";

export type { Asked };

/** Ask the agent now, and every `everyMs`, while the page is seen. */
export function useAsked<T>(name: string, everyMs: number): Asked<T> {
  const silent = silentSince.value !== null;
  const asked = useLooked(() => ask<T>(name), name, !silent, everyMs);
  // While the agent is silent, the page says so once, at its top.
  return silent && asked.value !== null ? { ...asked, error: null } : asked;
}
