// One desired field, edited: based on the revision that the person saw, and refused where that is no longer the newest.
import { useState } from "preact/hooks";
import { ask } from "../../hub/ask";
import { kindOf, partsOf, typed, type FieldRow, type Kind } from "../../logic/shadow";
import { valueText } from "../../logic/text";
import { nameOf } from "../../logic/values";
import { Dialog, Field, Form, Select } from "../../parts/forms";
import { Failure } from "../../parts/States";
import { useDoing } from "../../state/asked";

export interface EditFieldProps {
  device: string;
  /** null: a field that is not there yet. */
  row: FieldRow | null;
  /** The revision of `desired` that the person sees, and the newest that there is by now. */
  base: number;
  newest: number;
  /** The field as it is by now. */
  now: FieldRow | null;
  onRebase: () => void;
  onClose: () => void;
  onDone: () => void;
}

const KINDS: readonly { value: Kind; text: string }[] = [
  { value: "number", text: "number" },
  { value: "integer", text: "whole number" },
  { value: "text", text: "text" },
  { value: "truth", text: "true or false" },
  { value: "json", text: "JSON" },
];

export function EditField({ device, row, base, newest, now, onRebase, onClose, onDone }: EditFieldProps) {
  const there = row === null ? undefined : (row.desired ?? row.reported ?? row.config);
  const [field, setField] = useState(row?.field ?? "");
  const [kind, setKind] = useState<Kind>(kindOf(there, row?.dtype ?? ""));
  const [text, setText] = useState(there === undefined || there === null ? "" : valueOf(there));
  const [wrong, setWrong] = useState<{ field?: string; value?: string }>({});
  const doing = useDoing();
  const behind = newest > base;

  const save = async (): Promise<void> => {
    const parts = partsOf(field.trim());
    if (parts === null) {
      setWrong({ field: "A field is node.type or node.type.key, as in gps.rate." });
      return;
    }
    let value;
    try {
      value = typed(text, kind);
    } catch (error) {
      setWrong({ value: error instanceof Error ? error.message : String(error) });
      return;
    }
    setWrong({});
    const point = { ...parts, value: value.value, ...(value.dtype === null ? {} : { dtype: value.dtype }) };
    if (await doing.run(() => ask("desire", { device, points: [point], based_on: base }))) onDone();
  };

  const forget = async (field: string): Promise<void> => {
    if (await doing.run(() => ask("desire", { device, forget: [field], based_on: base }))) onDone();
  };

  return (
    <Dialog title={row === null ? "Desire another field" : `Desire ${nameOf(row.field)}`} onClose={onClose}>
      <Form class="form" onSend={() => void save()}>
        {row === null ? (
          <Field label="Field" error={wrong.field} hint="node.type or node.type.key">
            {(tied) => <input {...tied} value={field} onInput={(event) => setField(event.currentTarget.value)} autoFocus />}
          </Field>
        ) : (
          <p class="quiet small">Reported now: {valueText(row.reported)}</p>
        )}
        <Select label="Kind of value" value={kind} choices={KINDS} onChange={(value) => setKind(value as Kind)} />
        <Field label="Desired value" error={wrong.value}>
          {(tied) =>
            kind === "json" ? (
              <textarea {...tied} value={text} onInput={(event) => setText(event.currentTarget.value)} />
            ) : (
              <input
                {...tied}
                value={text}
                inputMode={kind === "number" || kind === "integer" ? "decimal" : "text"}
                onInput={(event) => setText(event.currentTarget.value)}
                autoFocus={row !== null}
              />
            )
          }
        </Field>
        {behind && (
          <div class="state failure" role="alert">
            <p>
              <strong>Somebody else changed the desired values meanwhile</strong> (revision {newest}, you saw {base || "none"}).
              {row !== null && ` This field is desired as ${now === null ? "nothing" : valueText(now.desired)} by now.`}
            </p>
            <button type="button" onClick={onRebase}>
              I have seen it: save on top of revision {newest}
            </button>
          </div>
        )}
        {doing.error && <Failure error={doing.error} />}
        <p class="quiet small">Based on revision {base || "–"}.</p>
        <div class="buttons">
          {row !== null && row.desired !== undefined && (
            <button type="button" disabled={doing.busy || behind} onClick={() => void forget(row.field)}>
              Forget it
            </button>
          )}
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main" disabled={doing.busy || behind}>
            {doing.busy ? "Saving …" : "Save"}
          </button>
        </div>
      </Form>
    </Dialog>
  );
}

function valueOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
