export function Login() {
  return (
    <main id="main" class="login">
      <h1>Log in</h1>
      <p>
        Ask an operator for a link: <code>backhaul-hub user link NAME</code>
      </p>
    </main>
  );
}
