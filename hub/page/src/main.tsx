import { render } from "preact";
import { logInByLink, resume, watchForEnd } from "./hub/login";
import { session } from "./hub/session";
import { startTheme } from "./look/theme";
import { Shell } from "./parts/Shell";
import { Alerts } from "./screens/Alerts";
import { Device } from "./screens/Device";
import { Fleet } from "./screens/Fleet";
import { Login } from "./screens/Login";
import { System } from "./screens/System";
import { attempt, loginToken } from "./state/login";
import { bindRoute, route } from "./state/route";

const SCREENS = { fleet: Fleet, device: Device, alerts: Alerts, system: System };

function Page() {
  if (session.value === null) return <Login />;
  const Screen = SCREENS[route.value.screen];
  return (
    <Shell>
      <Screen />
    </Shell>
  );
}

/** Log in by the link that was opened, or by what this browser has kept. */
function begin(): void {
  const token = loginToken(window.location.hash);
  // Before all else: neither the history nor a bookmark is to hold it.
  if (token !== null) window.history.replaceState(null, "", "#/fleet");
  void (token === null
    ? attempt("Logging in again", resume)
    : attempt("Logging in", () => logInByLink(token)));
}

startTheme();
watchForEnd();
begin();
window.addEventListener("hashchange", () => {
  if (loginToken(window.location.hash) !== null) begin();
});
bindRoute(window);
const place = document.getElementById("page");
if (place !== null) render(<Page />, place);
