// Questions to the hub: a JSON object each way (docs/people.md).
import { NoRespondersError, PermissionViolationError, TimeoutError } from "@nats-io/nats-core";
import { connection } from "./connection";
import { Refused } from "./refused";
import { session } from "./session";
import { encodeToken } from "./subjects";

export { Refused };

const TIMEOUT_MS = 15_000;
/** The hub answers four questions of one person at once, and refuses a fifth: one is left to other tabs. */
const AT_ONCE = 3;

let busy = 0;
const queue: (() => void)[] = [];

/** Ask a service of the hub. Throws Refused. */
export async function ask<T>(service: string, question: object = {}): Promise<T> {
  if (busy >= AT_ONCE) await new Promise<void>((go) => queue.push(go));
  busy += 1;
  try {
    return await put<T>(service, question);
  } finally {
    busy -= 1;
    queue.shift()?.();
  }
}

async function put<T>(service: string, question: object): Promise<T> {
  const who = session.peek();
  const to = connection();
  if (who === null || to === null) throw new Refused("nobody is logged in");
  const subject = `ask.${who.may}.${encodeToken(who.group)}.${who.name}.${service}`;
  let answer: unknown;
  try {
    const message = await to.request(subject, JSON.stringify(question), { timeout: TIMEOUT_MS });
    answer = message.json();
  } catch (error) {
    throw told(error);
  }
  const refusal = (answer as { error?: { message?: string; hint?: string } } | null)?.error;
  if (refusal) throw new Refused(refusal.message ?? "refused", refusal.hint ?? "");
  return answer as T;
}

function told(error: unknown): Refused {
  if (error instanceof TimeoutError || error instanceof NoRespondersError)
    return new Refused("the control plane does not answer", "on the hub: backhaul-hub status");
  if (error instanceof PermissionViolationError) return new Refused("the server refuses this question");
  return new Refused(error instanceof Error ? error.message : String(error));
}
