// What somebody sees who is not logged in: how to, and what went wrong.
import { useSignal } from "@preact/signals";
import { logInByCredentials } from "../hub/login";
import { ended } from "../hub/session";
import { attempt, login } from "../state/login";

const FILE_BYTES_MAX = 64 * 1024;

export function Login() {
  const over = useSignal(false);
  const state = login.value;
  const take = (file: File | null | undefined): void => {
    if (!file || file.size > FILE_BYTES_MAX) return;
    void attempt("Logging in", async () => logInByCredentials(await file.text()));
  };
  return (
    <main
      id="main"
      class={`login${over.value ? " drop" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        over.value = true;
      }}
      onDragLeave={() => (over.value = false)}
      onDrop={(event) => {
        event.preventDefault();
        over.value = false;
        take(event.dataTransfer?.files[0]);
      }}
    >
      <h1>
        <img src="icon.svg" alt="" width="28" height="28" /> backhaul
      </h1>
      <div aria-live="polite">
        {state.kind === "busy" && <p class="note">{state.doing} …</p>}
        {state.kind === "refused" && (
          <div class="note error" role="alert">
            <strong>Not logged in: {state.message}</strong>
            {state.hint && <p>{state.hint}</p>}
          </div>
        )}
        {state.kind === "idle" && ended.value && (
          <div class="note error" role="alert">
            <strong>Logged out: {ended.value}</strong>
          </div>
        )}
      </div>
      <p>Open a link that an operator of the hub has printed for you. It works once.</p>
      <pre>
        <code>backhaul-hub user link NAME</code>
      </pre>
      <label class="file">
        <span>Or choose your credentials file, or drop it here. It stays in the memory of this tab.</span>
        <input
          type="file"
          accept=".creds"
          onChange={(event) => take(event.currentTarget.files?.[0])}
        />
      </label>
    </main>
  );
}
