// Parts of forms: a label, its control, a hint, an error. Controls are the browser's own.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

export interface FieldProps {
  label: string;
  hint?: string | undefined;
  error?: string | undefined;
  /** Gets the attributes that tie the control to its label and texts. */
  children: (tied: Tied) => ComponentChildren;
}

export interface Tied {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean | undefined;
}

export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const described = error ? `${id}-error` : hint ? `${id}-hint` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": described, "aria-invalid": error ? true : undefined })}
      {error ? (
        <p id={`${id}-error`} class="small error" role="alert">
          {error}
        </p>
      ) : (
        hint && (
          <p id={`${id}-hint`} class="small quiet">
            {hint}
          </p>
        )
      )}
    </div>
  );
}

/** Controls that are sent together, by a button or by Enter. */
export function Form({ class: also, onSend, children }: { class?: string; onSend: () => void; children: ComponentChildren }) {
  return (
    <form
      class={also}
      onSubmit={(event) => {
        event.preventDefault();
        onSend();
      }}
    >
      {children}
    </form>
  );
}

export interface Choice {
  value: string;
  text: string;
}

export interface SelectProps {
  label: string;
  value: string;
  choices: readonly Choice[];
  onChange: (value: string) => void;
}

/** A choice with a label above it. */
export function Select({ label, value, choices, onChange }: SelectProps) {
  return (
    <Field label={label}>
      {(tied) => (
        <select {...tied} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          {choices.map((each) => (
            <option key={each.value} value={each.value} selected={each.value === value}>
              {each.text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export interface SearchProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
}

/** A text to filter by, taken in as it is typed. */
export function Search({ label, value, onInput }: SearchProps) {
  return (
    <Field label={label}>
      {(tied) => (
        <input {...tied} type="search" value={value} onInput={(event) => onInput(event.currentTarget.value)} />
      )}
    </Field>
  );
}

export interface SwitchProps<T extends string> {
  label: string;
  value: T;
  choices: readonly { value: T; text: ComponentChildren }[];
  onChange: (value: T) => void;
}

/** One of a few, all of them seen at once. */
export function Switch<T extends string>({ label, value, choices, onChange }: SwitchProps<T>) {
  return (
    <div class="switch" role="group" aria-label={label}>
      {choices.map((each) => (
        <button
          key={each.value}
          type="button"
          aria-pressed={each.value === value}
          onClick={() => onChange(each.value)}
        >
          {each.text}
        </button>
      ))}
    </div>
  );
}

export interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** A question that has to be answered, or closed, first. Escape closes it; the focus goes back by itself. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const id = useId();
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = ref.current;
    const from = document.activeElement;
    shown?.showModal();
    return () => {
      shown?.close();
      if (from instanceof HTMLElement) from.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}
