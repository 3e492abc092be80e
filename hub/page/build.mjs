// Bundle the fleet's page into a directory, and the technician's into another: `node build.mjs OUT TECHNICIAN`; with
// --tests their unit tests, for `node --test`.
//
// esbuild does it: one program without plugins, which takes TypeScript, JSX and CSS as they are.
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const tests = process.argv.includes("--tests");
const said = process.argv.slice(2).filter((each) => !each.startsWith("--"));
const [out, technician] = [path.resolve(said[0] ?? "dist"), path.resolve(said[1] ?? "dist-technician")];

if (tests) await bundleTests();
else {
  await bundlePage(out, { page: "main", look: "index", html: "index" });
  // A vehicle's disk has one form of each file.
  await bundlePage(technician, { page: "technician", look: "technician", html: "technician", packed: true });
}

async function emptied(directory) {
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { recursive: true });
}

async function bundleTests() {
  await emptied(out);
  const names = (await readdir(path.join(here, "tests"))).filter((each) => /\.test\.tsx?$/.test(each));
  await build({
    entryPoints: names.map((each) => path.join(here, "tests", each)),
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    jsx: "automatic",
    jsxImportSource: "preact",
    outdir: out,
    // Packages in CommonJS ask for modules of Node.
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
  });
}

async function bundlePage(out, { page, look, html: from, packed = false }) {
  await emptied(out);
  const result = await build({
    absWorkingDir: here,
    entryPoints: { page: `src/${page}.tsx`, look: `src/look/${look}.css` },
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    define: { "process.env.NODE_ENV": '"production"' },
    entryNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    splitting: true,
    chunkNames: "[name]-[hash]",
    loader: { ".png": "empty", ".svg": "file", ".geojson": "file", ".topojson": "file" },
    outdir: out,
    write: false,
    logLevel: "warning",
  });
  const files = new Map();
  for (const file of result.outputFiles) files.set(path.basename(file.path), Buffer.from(file.contents));
  const named = (pattern) => [...files.keys()].find((each) => pattern.test(each));
  const html = await readFile(path.join(here, `${from}.html`), "utf8");
  const filled = html.replace("%CSS%", named(/^look-.*\.css$/)).replace("%JS%", named(/^page-.*\.js$/));
  files.set("index.html", Buffer.from(filled));
  files.set("icon.svg", await readFile(path.join(here, "icon.svg")));

  let total = 0;
  for (const [name, body] of files) {
    const gzip = gzipSync(body, { level: 9 });
    total += gzip.length;
    await writeFile(path.join(out, `${name}.gz`), gzip);
    if (packed) continue;
    await writeFile(path.join(out, name), body);
    const brotli = brotliCompressSync(body, {
      params: { [constants.BROTLI_PARAM_SIZE_HINT]: body.length },
    });
    await writeFile(path.join(out, `${name}.br`), brotli);
  }
  const digest = createHash("sha256");
  for (const name of [...files.keys()].sort()) digest.update(name).update(files.get(name));
  await writeFile(path.join(out, "built.json"), `${JSON.stringify({ gzip_bytes: total, sha256: digest.digest("hex") })}\n`);
  console.error(`${from}: ${files.size} files, ${(total / 1000).toFixed(1)} kB compressed`);
}
