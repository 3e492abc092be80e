import { render } from "preact";
import { startTheme } from "./look/theme";
import { codeIn } from "./logic/vehicle";
import { failing, Loading, type Failing } from "./parts/States";
import { logIn } from "./technician/ask";
import { Frame } from "./technician/Frame";
import { CommandsTab, EventsTab } from "./technician/Happened";
import { HoursTab } from "./technician/HoursTab";
import { Login } from "./technician/Login";
import { Now } from "./technician/Now";
import { bindPlace, place, type Tab } from "./technician/place";
import { session } from "./technician/session";
import { TestTab } from "./technician/TestTab";
import { ValuesTab } from "./technician/ValuesTab";
import { watch } from "./technician/vehicle";
import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";

const PARTS: Record<Tab, FunctionComponent> = {
  now: Now,
  values: ValuesTab,
  commands: CommandsTab,
  events: EventsTab,
  hours: HoursTab,
  test: TestTab,
};

const entering = signal(false);
const refused = signal<Failing | null>(null);

function Page() {
  if (entering.value) return <Loading what="the vehicle" />;
  if (session.value === null) return <Login refused={refused.value} />;
  const Part = PARTS[place.value.tab];
  return (
    <Frame>
      <Part />
    </Frame>
  );
}

/** Get in by the code that stands in the address, if one does; it goes from there at once. */
async function enter(): Promise<void> {
  const code = codeIn(window.location.hash);
  if (code === null) return;
  window.history.replaceState(null, "", "#/now");
  entering.value = true;
  try {
    await logIn(code);
    refused.value = null;
  } catch (error) {
    refused.value = failing(error);
  } finally {
    entering.value = false;
  }
}

startTheme();
void enter();
window.addEventListener("hashchange", () => void enter());
bindPlace(window);
watch();
const box = document.getElementById("page");
if (box !== null) render(<Page />, box);
