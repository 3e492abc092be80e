// Who is logged in, as the credentials say; the server checks each request by itself.
import { signal } from "@preact/signals";

export type May = "read" | "write" | "command";

export interface Session {
  name: string;
  group: string;
  may: May;
  /** Milliseconds since 1970; null where the credentials do not end by themselves. */
  endsAt: number | null;
}

export const session = signal<Session | null>(null);

/** Why a login ended that nobody has ended here; null: none did. */
export const ended = signal<string | null>(null);

const LEVELS: readonly May[] = ["read", "write", "command"];

/** Tell whether the person who is logged in has a right: what they may not do is not offered. */
export function mayDo(needed: May): boolean {
  const may = session.value?.may;
  return may !== undefined && LEVELS.indexOf(may) >= LEVELS.indexOf(needed);
}
