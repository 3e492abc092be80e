export function Fleet() {
  return <h1>Fleet</h1>;
}
