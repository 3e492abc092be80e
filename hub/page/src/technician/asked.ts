// Answers as a tab uses them: asked when it opens, and again every few seconds.
import { useEffect, useState } from "preact/hooks";
import { failing, type Failing } from "../parts/States";
import { ask } from "./ask";
import { silentSince } from "./session";

export interface Asked<T> {
  /** The newest answer; it stays while another one is awaited. null: there was none yet. */
  value: T | null;
  error: Failing | null;
  again: () => void;
}

/** Ask the agent now, and every `everyMs`, while the page is seen. */
export function useAsked<T>(name: string, everyMs: number): Asked<T> {
  const [value, setValue] = useState<T | null>(null);
  const [error, setError] = useState<Failing | null>(null);
  const [turn, setTurn] = useState(0);
  const silent = silentSince.value !== null;
  useEffect(() => {
    if (silent) return;
    let over = false;
    const load = (): void => {
      if (document.hidden) return;
      ask<T>(name).then(
        (answer) => {
          if (over) return;
          setValue(answer);
          setError(null);
        },
        (thrown: unknown) => over || setError(failing(thrown)),
      );
    };
    load();
    const timer = setInterval(load, everyMs);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [name, everyMs, turn, silent]);
  // While the agent is silent, the page says so once, at its top.
  return { value, error: silent && value !== null ? null : error, again: () => setTurn((before) => before + 1) };
}
