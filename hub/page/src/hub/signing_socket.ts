// A WebSocket that answers the server's challenge with a key that only signs asynchronously.
//
// nats-core asks its authenticator for the signature in the very call in which it reads the server's INFO.
// WebCrypto signs in a promise. So INFO is held back until the nonce in it is signed; all else passes through.

export interface Signer {
  /** Return the signature of the server's nonce. */
  sign(nonce: string): Promise<Uint8Array>;
}

const INFO = /^INFO\s+(\{.*\})\s*\r\n/s;

type Handler<E> = ((event: E) => void) | null;

export class SigningSocket {
  onopen: Handler<Event> = null;
  onclose: Handler<CloseEvent> = null;
  onerror: Handler<Event> = null;
  onmessage: Handler<MessageEvent<ArrayBuffer>> = null;
  private held: MessageEvent<ArrayBuffer>[] | null = [];
  private early = new Uint8Array(0);

  /** `signed` is called with each nonce and its signature before the client sees the nonce. */
  constructor(
    private readonly socket: WebSocket,
    private readonly signer: Signer,
    private readonly signed: (nonce: string, signature: Uint8Array) => void,
  ) {
    socket.binaryType = "arraybuffer";
    socket.onopen = (event) => this.onopen?.(event);
    socket.onclose = (event) => this.onclose?.(event);
    socket.onerror = (event) => this.onerror?.(event);
    socket.onmessage = (event: MessageEvent<ArrayBuffer>) => this.take(event);
  }

  set binaryType(_: string) {
    // It is "arraybuffer" always; the client sets it again.
  }

  get bufferedAmount(): number {
    return this.socket.bufferedAmount;
  }

  send(frame: ArrayBuffer): void {
    this.socket.send(frame);
  }

  close(): void {
    this.socket.close();
  }

  private take(event: MessageEvent<ArrayBuffer>): void {
    if (this.held === null) {
      this.onmessage?.(event);
      return;
    }
    this.held.push(event);
    const text = new TextDecoder().decode(this.whole(event.data));
    const info = INFO.exec(text);
    if (info === null || this.early.length === 0) return;
    this.early = new Uint8Array(0);
    void this.answer(info[1] ?? "{}");
  }

  private whole(data: ArrayBuffer): Uint8Array {
    const both = new Uint8Array(this.early.length + data.byteLength);
    both.set(this.early);
    both.set(new Uint8Array(data), this.early.length);
    this.early = both;
    return both;
  }

  private async answer(info: string): Promise<void> {
    try {
      const nonce = (JSON.parse(info) as { nonce?: string }).nonce;
      if (nonce !== undefined) this.signed(nonce, await this.signer.sign(nonce));
    } catch {
      // The server refuses a login without a signature, and says so.
    }
    const held = this.held ?? [];
    this.held = null;
    for (const event of held) this.onmessage?.(event);
  }
}
