// Ways to log in: by a link, by a credentials file, and by what this browser has kept over a reload.
import { fromSeed } from "@nats-io/nkeys";
import { close, connect, link, type Login } from "./connection";
import { forget, keep, kept } from "./kept";
import { keyFromSeed, newKey, type LoginKey } from "./login_key";
import { Refused } from "./refused";
import { ended, type May, type Session } from "./session";
import { decodeToken } from "./subjects";
import { where } from "./where";

/** Log in by the token of a link, with a key that is made here. Throws Refused. */
export async function logInByLink(token: string): Promise<void> {
  const key = await newKey();
  const answer = await post<{ jwt: string; name: string; group: string; may: May; ends_s: number }>(
    "login",
    { token, public_key: key.publicKey },
  );
  const { jwt, name, group, may } = answer;
  const session: Session = { name, group, may, endsAt: answer.ends_s * 1000 };
  await forget();
  await connected({ session, jwt, signer: key });
  if (key.keepable !== null) await keep({ session, jwt, key: key.keepable });
}

/** Log in with the text of a credentials file; it stays in memory. Throws Refused. */
export async function logInByCredentials(text: string): Promise<void> {
  const jwt = between(text, "USER JWT");
  const seed = between(text, "USER NKEY SEED");
  if (jwt === null || seed === null) throw new Refused("this is no credentials file");
  let key: LoginKey;
  try {
    key = keyFromSeed(fromSeed(new TextEncoder().encode(seed)));
  } catch {
    throw new Refused("the key in this file is damaged");
  }
  await connected({ session: sessionOf(jwt), jwt, signer: key });
}

/** Log in with what this browser has kept; tells whether there was anything. Throws Refused. */
export async function resume(): Promise<boolean> {
  const found = await kept();
  if (found === null) return false;
  const { session, jwt, key } = found;
  if (session.endsAt !== null && session.endsAt <= Date.now()) {
    await forget();
    throw new Refused("this login has ended", "ask for another link: backhaul-hub user link NAME");
  }
  const signer = {
    sign: async (nonce: string) =>
      new Uint8Array(await crypto.subtle.sign("Ed25519", key, new TextEncoder().encode(nonce))),
  };
  await connected({ session, jwt, signer });
  return true;
}

/** Log out: what this browser has kept is gone. */
export async function logOut(): Promise<void> {
  await forget();
  await close();
}

/** Forget a login that the server takes no longer; from now on. */
export function watchForEnd(): void {
  link.subscribe((now) => {
    if (now === "refused") void forget();
  });
}

async function connected(login: Login): Promise<void> {
  const { websocket } = await where();
  ended.value = null;
  try {
    await connect(websocket, login);
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    if (/authorization|authentication/i.test(said)) {
      await forget();
      throw new Refused("the hub takes this login no longer", "ask for a link: backhaul-hub user link NAME");
    }
    throw new Refused("the hub's server cannot be reached", `tried ${websocket.join(", ")}`);
  }
}

async function post<T>(path: string, body: object): Promise<T> {
  let answer: T & { error?: { message: string; hint: string } };
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    answer = (await response.json()) as typeof answer;
  } catch {
    throw new Refused("the server of this page does not answer");
  }
  if (answer.error) throw new Refused(answer.error.message, answer.error.hint);
  return answer;
}

function between(text: string, what: string): string | null {
  const found = new RegExp(`-+BEGIN (?:NATS )?${what}-+\\s+(\\S+)\\s+-+END (?:NATS )?${what}-+`).exec(text);
  return found?.[1] ?? null;
}

/** Return who a JWT is for, as it says itself. Throws Refused. */
export function sessionOf(jwt: string): Session {
  try {
    const part = (jwt.split(".")[1] ?? "").replace(/-/g, "+").replace(/_/g, "/");
    const said = JSON.parse(atob(part)) as { exp?: number; nats: { pub: { allow: string[] } } };
    const [ask, may, group, name] = (said.nats.pub.allow[0] ?? "").split(".");
    if (ask !== "ask" || !name || !group || !["read", "write", "command"].includes(may ?? ""))
      throw new Error("no person");
    const endsAt = said.exp === undefined ? null : said.exp * 1000;
    return { name, group: decodeToken(group), may: may as May, endsAt };
  } catch {
    throw new Refused("these credentials are of no person", "backhaul-hub user add makes such");
  }
}
