// The login that this browser keeps over a reload, in IndexedDB: a key in it can be used, and not read.
import type { Session } from "./session";

export interface Kept {
  session: Session;
  jwt: string;
  key: CryptoKey;
}

const DATABASE = "backhaul";
const STORE = "login";
const NOW = "now";

/** Return what is kept; null where nothing is, or the browser keeps nothing. */
export async function kept(): Promise<Kept | null> {
  const found = await using<Kept | undefined>("readonly", (store) => store.get(NOW));
  return found ?? null;
}

/** Keep a login. A browser that cannot, as in a private window, asks for another one after a reload. */
export async function keep(login: Kept): Promise<void> {
  await using("readwrite", (store) => store.put(login, NOW));
}

export async function forget(): Promise<void> {
  await using("readwrite", (store) => store.delete(NOW));
}

async function using<T>(
  mode: IDBTransactionMode,
  act: (store: IDBObjectStore) => IDBRequest,
): Promise<T | undefined> {
  try {
    const database = await opened();
    try {
      const transaction = database.transaction(STORE, mode);
      const result = act(transaction.objectStore(STORE));
      await new Promise<void>((done, failed) => {
        transaction.oncomplete = () => done();
        transaction.onerror = transaction.onabort = () => failed(transaction.error ?? new Error("aborted"));
      });
      return result.result as T;
    } finally {
      database.close();
    }
  } catch {
    return undefined;
  }
}

function opened(): Promise<IDBDatabase> {
  return new Promise((done, failed) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => done(request.result);
    request.onerror = request.onblocked = () => failed(request.error ?? new Error("blocked"));
  });
}
