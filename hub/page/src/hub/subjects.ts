// Names in subjects: each byte that is not a letter, a digit, - or _ is written %XX. Pure.

const encoder = new TextEncoder();

/** Return a name as one token of a subject. */
export function encodeToken(name: string): string {
  if (name === "") return "%";
  let token = "";
  for (const byte of encoder.encode(name)) {
    const char = String.fromCharCode(byte);
    token += /[A-Za-z0-9_-]/.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return token;
}

/** Return the name that a token stands for. */
export function decodeToken(token: string): string {
  if (token === "%") return "";
  try {
    return decodeURIComponent(token);
  } catch {
    return token;
  }
}
