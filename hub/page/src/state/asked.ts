// Answers and news as a screen uses them: asked when it opens, and again after each time the link was away.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../hub/ask";
import { link } from "../hub/connection";
import { listen, type Heard } from "../hub/listen";
import { failing, type Failing } from "../parts/States";
import { useLooked, type Asked } from "./looked";

export type { Asked };

/** Ask a service; once more where the question changes, and where the link comes back, and every `everyMs`. null asks nothing. */
export function useAsked<T>(service: string, question: object | null, everyMs = 0): Asked<T> {
  const key = question === null ? "" : `${service} ${JSON.stringify(question)}`;
  return useLooked(() => ask<T>(service, question ?? {}), key, key !== "" && link.value === "up", everyMs);
}

/** Call `on` with each message of these tails, for as long as the part is shown. */
export function useHeard(tails: readonly string[], on: Heard): void {
  const call = useRef(on);
  call.current = on;
  const key = tails.join(" ");
  useEffect(() => {
    const ends = tails.map((tail) => listen(tail, (tokens, payload) => call.current(tokens, payload)));
    return () => ends.forEach((end) => end());
  }, [key]);
}

export interface Doing {
  busy: boolean;
  error: Failing | null;
  /** Do something that may be refused; its outcome is told in `error`. Returns whether it was done. */
  run: (what: () => Promise<unknown>) => Promise<boolean>;
  clear: () => void;
}

/** Something that a person does: under way, done, or refused. */
export function useDoing(): Doing {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Failing | null>(null);
  return {
    busy,
    error,
    clear: () => setError(null),
    run: async (what) => {
      setBusy(true);
      setError(null);
      try {
        await what();
        return true;
      } catch (thrown) {
        setError(failing(thrown));
        return false;
      } finally {
        setBusy(false);
      }
    },
  };
}
