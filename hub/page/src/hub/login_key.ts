// A key that signs logins: made here, and where the browser can, one that nobody ever reads.
import { createUser, type KeyPair } from "@nats-io/nkeys";
import type { Signer } from "./signing_socket";

export interface LoginKey extends Signer {
  /** 32 bytes in base64url. */
  publicKey: string;
  /** What may be kept over a reload: a key that cannot be read. null: it lives in memory. */
  keepable: CryptoKey | null;
}

/** Make a key: by WebCrypto, not extractable; where the browser has no Ed25519 one in memory. */
export async function newKey(): Promise<LoginKey> {
  const made = await webCryptoKey();
  return made ?? keyFromSeed(createUser());
}

async function webCryptoKey(): Promise<LoginKey | null> {
  try {
    const pair = (await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"])) as CryptoKeyPair;
    const raw = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
    return {
      publicKey: base64Url(raw),
      keepable: pair.privateKey,
      sign: async (nonce) =>
        new Uint8Array(
          await crypto.subtle.sign("Ed25519", pair.privateKey, new TextEncoder().encode(nonce)),
        ),
    };
  } catch {
    // No WebCrypto (the page came over plain HTTP), or one without Ed25519.
    return null;
  }
}

/** Return a key of NATS as one that signs here. */
export function keyFromSeed(pair: KeyPair): LoginKey {
  // A tag of one byte, the key, a checksum of two.
  const raw = fromBase32(pair.getPublicKey()).slice(1, 33);
  return {
    publicKey: base64Url(raw),
    keepable: null,
    sign: (nonce) => Promise.resolve(pair.sign(new TextEncoder().encode(nonce))),
  };
}

export function base64Url(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

export function fromBase32(text: string): Uint8Array {
  const found = new Uint8Array(Math.floor((text.length * 5) / 8));
  let bits = 0;
  let held = 0;
  let at = 0;
  for (const char of text) {
    bits = (bits << 5) | BASE32.indexOf(char);
    held += 5;
    if (held >= 8) {
      held -= 8;
      found[at++] = (bits >> held) & 0xff;
    }
  }
  return found;
}
