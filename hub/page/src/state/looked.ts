// An answer that a part of the page shows: asked for when it opens, again where the question changes, and now and then.
import { useEffect, useState } from "preact/hooks";
import { failing, type Failing } from "../parts/States";

export interface Asked<T> {
  /** The newest answer; it stays while another one is awaited. null: there was none yet. */
  value: T | null;
  error: Failing | null;
  again: () => void;
  /** Take in what came live. */
  change: (by: (value: T) => T) => void;
}

/**
 * Have a question answered; `key` is another one where the question is, and it is not asked unless `ready`.
 * `everyMs`: also again so long after each answer, while the page is seen; 0: not.
 */
export function useLooked<T>(ask: () => Promise<T>, key: string, ready: boolean, everyMs: number): Asked<T> {
  const [value, setValue] = useState<T | null>(null);
  const [error, setError] = useState<Failing | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!ready) return;
    let over = false;
    let timer = 0;
    const look = async (): Promise<void> => {
      try {
        if (!everyMs || !document.hidden) {
          const answer = await ask();
          if (!over) setValue(answer);
        }
        if (!over) setError(null);
      } catch (thrown) {
        if (!over) setError(failing(thrown));
      }
      if (!over && everyMs) timer = window.setTimeout(() => void look(), everyMs);
    };
    void look();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [key, turn, ready, everyMs]);
  return {
    value,
    error,
    again: () => setTurn((before) => before + 1),
    change: (by) => setValue((before) => (before === null ? before : by(before))),
  };
}
