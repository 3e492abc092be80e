// Where logging in stands: what the screen Login shows.
import { signal } from "@preact/signals";
import { Refused } from "../hub/refused";

export type LoginState =
  | { kind: "idle" }
  | { kind: "busy"; doing: string }
  | { kind: "refused"; message: string; hint: string };

export const login = signal<LoginState>({ kind: "idle" });

/** Return the token of a link's hash, `#/login/TOKEN`; null where it is none. */
export function loginToken(hash: string): string | null {
  return /^#\/?login\/([A-Za-z0-9_-]{20,64})$/.exec(hash)?.[1] ?? null;
}

/** Try to log in, and show how that goes. */
export async function attempt(doing: string, way: () => Promise<unknown>): Promise<void> {
  login.value = { kind: "busy", doing };
  try {
    await way();
    login.value = { kind: "idle" };
  } catch (error) {
    const said = error instanceof Refused ? error : new Refused(String(error));
    login.value = { kind: "refused", message: said.message, hint: said.hint };
  }
}
