export function Device() {
  return <h1>Device</h1>;
}
