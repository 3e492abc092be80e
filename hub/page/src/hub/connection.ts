// The page's one connection to the hub's server, over WebSocket.
import { signal } from "@preact/signals";
import { wsconnect, type NatsConnection } from "@nats-io/nats-core";
import { base64Url } from "./login_key";
import { ended, session, type Session } from "./session";
import { SigningSocket, type Signer } from "./signing_socket";

/** off: nobody is logged in. down: it is tried again. refused: the server takes these credentials no longer. */
export type Link = "off" | "up" | "down" | "refused";

export const link = signal<Link>("off");

export interface Login {
  session: Session;
  jwt: string;
  signer: Signer;
}

type Listener = (connection: NatsConnection) => void;

let current: NatsConnection | null = null;
const waiting = new Set<Listener>();

/** Call with each connection there is now and later; returns what ends that. */
export function onConnection(listener: Listener): () => void {
  waiting.add(listener);
  if (current !== null) listener(current);
  return () => waiting.delete(listener);
}

/** Return the connection; null where nobody is logged in. */
export function connection(): NatsConnection | null {
  return current;
}

/** Log in. Throws what the server said where it refuses. */
export async function connect(servers: string[], login: Login): Promise<void> {
  await close();
  const signatures = new Map<string, Uint8Array>();
  const opened = await wsconnect({
    servers,
    name: "page",
    inboxPrefix: `inbox.${login.session.name}`,
    ignoreClusterUpdates: true,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 1000,
    pingInterval: 10_000,
    maxPingOut: 2,
    authenticator: (nonce?: string) => {
      const signature = nonce === undefined ? undefined : signatures.get(nonce);
      signatures.clear();
      return { jwt: login.jwt, sig: signature === undefined ? "" : base64Url(signature), nkey: "" };
    },
    wsFactory: (url: string) => {
      const socket = new SigningSocket(new WebSocket(url), login.signer, (nonce, signature) =>
        signatures.set(nonce, signature),
      );
      return Promise.resolve({
        socket: socket as unknown as WebSocket,
        encrypted: url.startsWith("wss:"),
      });
    },
  });
  current = opened;
  session.value = login.session;
  link.value = "up";
  void watch(opened);
  for (const listener of [...waiting]) listener(opened);
}

/** Log out; nothing of the login is kept here. */
export async function close(): Promise<void> {
  const closing = current;
  current = null;
  session.value = null;
  link.value = "off";
  await closing?.close();
}

async function watch(opened: NatsConnection): Promise<void> {
  for await (const status of opened.status()) {
    if (current !== opened) return;
    if (status.type === "reconnect") link.value = "up";
    else if (status.type === "disconnect" || status.type === "staleConnection") link.value = "down";
  }
  if (current !== opened) return;
  // The client tries for ever, but where the server refuses the login.
  const ends = session.peek()?.endsAt ?? null;
  current = null;
  ended.value = ends !== null && ends <= Date.now() ? "this login has ended" : "the hub has ended this login";
  link.value = "refused";
  session.value = null;
}
