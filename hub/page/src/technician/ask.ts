// Questions to the agent, over HTTP to where this page came from: a JSON object each way.
import { Refused } from "../hub/refused";
import { begin, end, session, silentSince } from "./session";

const TIMEOUT_MS = 12_000;
/** Its server says so where its loop has not answered. */
const LATE = 503;
/** The agent answers eight connections at once, of all browsers together. */
const AT_ONCE = 3;

let busy = 0;
const queue: (() => void)[] = [];

interface Told {
  error?: { code?: string; message?: string };
  wait_s?: number;
}

/** Ask the agent. Throws Refused. */
export async function ask<T>(name: string, question: object = {}): Promise<T> {
  if (busy >= AT_ONCE) await new Promise<void>((go) => queue.push(go));
  busy += 1;
  try {
    const { status, told } = await post<Told>(`ask/${name}`, question);
    if (status === 401) {
      end("the agent was started anew, or the session has ended");
      throw new Refused("the code is needed, once more");
    }
    if (told.error) throw new Refused(told.error.message ?? "refused", told.error.code ?? "");
    if (status === LATE) throw new Refused("it has not answered in time");
    if (status !== 200) throw new Refused(`it answers ${status}`);
    return told as T;
  } finally {
    busy -= 1;
    queue.shift()?.();
  }
}

/** Get in by the code. Throws Refused, with what to do. */
export async function logIn(code: string): Promise<void> {
  const { status, told } = await post<Told & { token?: string; device?: string }>("login", { code });
  if (status === 200 && told.token !== undefined) {
    begin({ token: told.token, device: told.device ?? "" });
    return;
  }
  const wait = told.wait_s ? `Wait ${Math.ceil(told.wait_s)} s before the next try.` : "";
  if (status === 429) throw new Refused("too many tries", wait);
  if (status === 403 && told.wait_s !== undefined) throw new Refused("this is not the code", wait);
  throw new Refused(told.error?.message ?? `the agent answers ${status}`);
}

export async function logOut(): Promise<void> {
  try {
    await post("logout", {});
  } catch {
    // then it ends with the agent
  }
  end(null);
}

async function post<T>(path: string, said: object): Promise<{ status: number; told: T }> {
  let response: Response;
  let told: unknown = {};
  try {
    response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${session.peek()?.token ?? ""}` },
      body: JSON.stringify(said),
      signal: AbortSignal.timeout(TIMEOUT_MS),
      cache: "no-store",
      credentials: "omit",
    });
    const text = await response.text();
    if (text !== "") told = JSON.parse(text);
  } catch {
    silentSince.value ??= Date.now();
    throw new Refused("the agent does not answer", "On the vehicle: systemctl status backhaul-agent");
  }
  silentSince.value = null;
  return { status: response.status, told: told as T };
}
