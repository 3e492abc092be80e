import { theme, type Theme } from "../look/theme";
import { Switch } from "./forms";

const CHOICES: readonly { value: Theme; text: string }[] = [
  { value: "system", text: "Auto" },
  { value: "light", text: "Light" },
  { value: "dark", text: "Dark" },
];

/** Light, dark, or as the system says. */
export function ThemeSwitch() {
  return (
    <Switch label="Colours" value={theme.value} choices={CHOICES} onChange={(value) => (theme.value = value)} />
  );
}
