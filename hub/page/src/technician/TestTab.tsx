// A reading published from here, by the way that programs go, and its answer.
import { useState } from "preact/hooks";
import { Refused } from "../hub/refused";
import { testValue } from "../logic/vehicle";
import { At } from "../parts/Ago";
import { Badge } from "../parts/Badge";
import { Field, Form, Select } from "../parts/forms";
import { Panel } from "../parts/Panel";
import { Empty } from "../parts/States";
import { ask } from "./ask";

const TRIES_MAX = 20;

interface Try {
  ms: number;
  said: string;
  kept: boolean;
  answer: string;
}

export function TestTab() {
  const [type, setType] = useState("page");
  const [value, setValue] = useState("1");
  const [lane, setLane] = useState("bulk");
  const [wrong, setWrong] = useState<{ type?: string; value?: string }>({});
  const [busy, setBusy] = useState(false);
  const [tries, setTries] = useState<Try[]>([]);
  const publish = async (): Promise<void> => {
    const found: typeof wrong = type.trim() === "" ? { type: "A type is needed." } : {};
    let typed: number | string = "";
    try {
      typed = testValue(value);
    } catch (error) {
      found.value = (error as Error).message;
    }
    setWrong(found);
    if (Object.keys(found).length > 0) return;
    setBusy(true);
    const one = { ms: Date.now(), said: `test.${type.trim()} = ${value.trim()}` };
    const note = (kept: boolean, answer: string): void =>
      setTries((before) => [{ ...one, kept, answer }, ...before].slice(0, TRIES_MAX));
    try {
      const told = await ask<{ kept: number; subject: string }>("publish", { type: type.trim(), value: typed, lane });
      note(true, `${told.kept} ${told.kept === 1 ? "reading is" : "readings are"} in the ledger, published on ${told.subject}`);
    } catch (error) {
      const code = error instanceof Refused && error.hint ? ` (${error.hint})` : "";
      note(false, `${error instanceof Error ? error.message : String(error)}${code}`);
    } finally {
      setBusy(false);
    }
  };
  return (
    <div class="stack">
      <Panel title="Publish a test reading">
        <p class="small quiet">
          It goes over the leaf server, as readings of programs do, and to the hub like them. It is always of the node{" "}
          <code>test</code>, so nobody takes it for another one.
        </p>
        <Form class="form send" onSend={() => void publish()}>
          <Field label="Type" error={wrong.type} hint="what follows test.">
            {(tied) => <input {...tied} value={type} maxLength={80} autoComplete="off" onInput={(event) => setType(event.currentTarget.value)} />}
          </Field>
          <Field label="Value" error={wrong.value} hint="a number, or text">
            {(tied) => <input {...tied} value={value} maxLength={1000} autoComplete="off" onInput={(event) => setValue(event.currentTarget.value)} />}
          </Field>
          <Select
            label="Lane"
            value={lane}
            choices={[
              { value: "bulk", text: "bulk, as telemetry" },
              { value: "live", text: "live, ahead of telemetry" },
            ]}
            onChange={setLane}
          />
          <div class="buttons">
            <button type="submit" class="main" disabled={busy}>
              {busy ? "Publishing …" : "Publish"}
            </button>
          </div>
        </Form>
      </Panel>
      <Panel title="Answers">
        {tries.length === 0 ? (
          <Empty>Nothing was published from here yet.</Empty>
        ) : (
          <ol class="tries" aria-live="polite">
            {tries.map((each) => (
              <li key={each.ms} data-kept={each.kept}>
                <Badge tone={each.kept ? "good" : "critical"}>{each.kept ? "kept" : "refused"}</Badge>
                <span class="small quiet">
                  <At ms={each.ms} />
                </span>
                <code class="break">{each.said}</code>
                <span class="break small">{each.answer}</span>
              </li>
            ))}
          </ol>
        )}
      </Panel>
    </div>
  );
}
