// Whether this browser has got in, and whether the agent answers. The session's token stays in this tab.
import { signal } from "@preact/signals";

export interface Session {
  token: string;
  device: string;
}

const KEY = "backhaul-technician";

function kept(): Session | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Partial<Session> | null;
    return found && typeof found.token === "string" && typeof found.device === "string"
      ? { token: found.token, device: found.device }
      : null;
  } catch {
    return null; // a browser that keeps nothing
  }
}

export const session = signal<Session | null>(kept());

/** Since when the agent has not answered, in milliseconds by the browser's clock; null: it does. */
export const silentSince = signal<number | null>(null);

/** Why the code is asked for again; null: it was not typed yet. */
export const ended = signal<string | null>(null);

export function begin(some: Session): void {
  session.value = some;
  ended.value = null;
  try {
    sessionStorage.setItem(KEY, JSON.stringify(some));
  } catch {
    // then it is gone with a reload
  }
}

export function end(why: string | null): void {
  session.value = null;
  ended.value = why;
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // there is none
  }
}
