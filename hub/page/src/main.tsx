import { render } from "preact";
import { session } from "./hub/session";
import { Shell } from "./parts/Shell";
import { Alerts } from "./screens/Alerts";
import { Device } from "./screens/Device";
import { Fleet } from "./screens/Fleet";
import { Login } from "./screens/Login";
import { System } from "./screens/System";
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

bindRoute(window);
const place = document.getElementById("page");
if (place !== null) render(<Page />, place);
