// What somebody sees who has not typed the code: where it stands, and what went wrong.
import { useState } from "preact/hooks";
import { Field, Form } from "../parts/forms";
import { Failure, failing, type Failing } from "../parts/States";
import { ThemeSwitch } from "../parts/ThemeSwitch";
import { logIn } from "./ask";
import { ended } from "./session";

export function Login({ refused }: { refused: Failing | null }) {
  const [code, setCode] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Failing | null>(refused);
  const enter = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await logIn(code);
    } catch (thrown) {
      setError(failing(thrown));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main id="main" class="login">
      <h1>
        <img src="icon.svg" alt="" width="28" height="28" /> This vehicle
      </h1>
      {error && <Failure error={error} />}
      {!error && ended.value && (
        <div class="note error" role="alert">
          <strong>The code is needed again: {ended.value}.</strong>
        </div>
      )}
      <p>On the vehicle, this shows the code. It is another one after each start of the agent.</p>
      <pre>
        <code>sudo backhaul-agent page</code>
      </pre>
      <Form class="form" onSend={() => void enter()}>
        <Field label="Code" hint="eight letters and digits">
          {(tied) => (
            <input
              {...tied}
              class="fixed code"
              value={code}
              autoComplete="off"
              autoCapitalize="characters"
              spellcheck={false}
              maxLength={12}
              placeholder="XXXX-XXXX"
              onInput={(event) => setCode(event.currentTarget.value)}
            />
          )}
        </Field>
        <div class="buttons">
          <ThemeSwitch />
          <button type="submit" class="main" disabled={busy || code.trim() === ""}>
            {busy ? "Looking …" : "Enter"}
          </button>
        </div>
      </Form>
    </main>
  );
}
