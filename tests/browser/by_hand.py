"""What somebody types into the console of the page."""

from __future__ import annotations

# In the page: the login that it keeps over a reload.
KEPT = """async () => {
  const opened = indexedDB.open("backhaul", 1)
  await new Promise(done => opened.onsuccess = done)
  const got = opened.result.transaction("login").objectStore("login").get("now")
  await new Promise(done => got.onsuccess = done)
  opened.result.close()
  return got.result
}"""

# In the page: another connection with the key that is kept, to say what no screen says. Returns what the server
# says, and all that it brings, until it has answered as many pings as there are lines.
BY_HAND = rf"""async lines => {{
  const {{ key, jwt }} = await ({KEPT})()
  const {{ websocket }} = await (await fetch("where.json")).json()
  const socket = new WebSocket(websocket[0])
  socket.binaryType = "arraybuffer"
  let heard = "", pongs = 0, look = () => {{}}
  socket.onmessage = event => {{
    heard += new TextDecoder().decode(event.data)
    look()
  }}
  const until = holds => new Promise(done => {{
    look = () => {{ if (holds()) done() }}
    look()
  }})
  await until(() => heard.endsWith("\r\n"))
  const nonce = JSON.parse(heard.slice(5)).nonce
  const signed = new Uint8Array(await crypto.subtle.sign("Ed25519", key, new TextEncoder().encode(nonce)))
  const sig = btoa(String.fromCharCode(...signed)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "")
  const say = text => {{
    pongs += 1
    socket.send(new TextEncoder().encode(`${{text}}\r\nPING\r\n`))
    return until(() => heard.split("PONG").length > pongs)
  }}
  await say(`CONNECT ${{JSON.stringify({{ jwt, sig, verbose: false, pedantic: false, protocol: 1 }})}}`)
  for (const line of lines) {{
    heard += `\n> ${{line}}\n`
    await say(line.replace("|", "\r\n"))
  }}
  // What is asked is answered a moment later.
  await until(() => lines.every(line => !line.includes("?") || heard.includes(`MSG ${{line.split(" ")[2]}}`)))
  socket.close()
  return heard
}}"""
