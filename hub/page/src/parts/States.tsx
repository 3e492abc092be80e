// Nothing there, not yet there, refused: each says which, and what to do.
import type { ComponentChildren } from "preact";

/** Nothing to show, and why that is so. */
export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="state empty">{children}</p>;
}

/** An answer is awaited. */
export function Loading({ what }: { what: string }) {
  return (
    <p class="state loading" role="status">
      <span class="spinner" aria-hidden="true" /> Loading {what} …
    </p>
  );
}

export interface Failing {
  message: string;
  hint?: string;
}

/** A refusal, with its hint, and a way to try again where there is one. */
export function Failure({ error, onRetry }: { error: Failing; onRetry?: (() => void) | undefined }) {
  return (
    <div class="state failure" role="alert">
      <p>
        <span class="sign" aria-hidden="true">
          ⚠
        </span>
        <strong>{sentence(error.message)}</strong>
      </p>
      {error.hint && <p class="small">{sentence(error.hint)}</p>}
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** What is shown of an answer that is not there: it is awaited, or was refused. */
export function Awaited({ of, what }: { of: { value: unknown; error: Failing | null; again: () => void }; what: string }) {
  if (of.error) return <Failure error={of.error} onRetry={of.again} />;
  return of.value === null ? <Loading what={what} /> : null;
}

/** Return what was thrown as something to show. */
export function failing(error: unknown): Failing {
  if (error instanceof Error) {
    const hint = (error as Error & { hint?: string }).hint;
    return hint ? { message: error.message, hint } : { message: error.message };
  }
  return { message: String(error) };
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
