// What changes below the person's group, live.
import type { NatsConnection, Subscription } from "@nats-io/nats-core";
import { onConnection } from "./connection";
import { session } from "./session";
import { decodeToken, encodeToken } from "./subjects";

export type Heard = (subjectTokens: string[], payload: unknown) => void;

/**
 * Call `on` with each message of `up.<group>.<tail>`: the tokens after the group, decoded, and the JSON in it.
 * Holds over reconnects, and over a later login; what is missed in between nobody repeats: ask again.
 */
export function listen(tail: string, on: Heard): () => void {
  let subscription: Subscription | null = null;
  const begin = (connection: NatsConnection): void => {
    const group = session.peek()?.group;
    if (group === undefined) return;
    subscription = connection.subscribe(`up.${encodeToken(group)}.${tail}`, {
      callback: (error, message) => {
        if (error !== null) return;
        let payload: unknown;
        try {
          payload = message.json();
        } catch {
          return;
        }
        on(message.subject.split(".").slice(2).map(decodeToken), payload);
      },
    });
  };
  const end = onConnection(begin);
  return () => {
    end();
    subscription?.unsubscribe();
  };
}
