// Builds the explorer's page into src/halp/explorer/static: one script, one style sheet, one document, and the licences of what is
// inside; and the figures of single pages, made of the same parts, into src/halp/reports. With a folder as argument all of it goes there.
import { build } from "esbuild";
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import path from "node:path";

const here = path.dirname(fileURLToPath(import.meta.url));
const home = path.join(here, "..", "src", "halp");
const out = process.argv[2] ?? path.join(home, "explorer", "static");
await mkdir(out, { recursive: true });
const options = {
  absWorkingDir: here,
  outdir: out,
  bundle: true,
  minify: true,
  target: ["es2021"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
};
const result = await build({ ...options, format: "iife", entryPoints: [{ in: "src/app.jsx", out: "app" }, { in: "src/style.css", out: "app" }] });
await build({ ...options, format: "esm", entryPoints: ["src/widget.js"] }); // for notebooks
await build({ ...options, format: "iife", outdir: process.argv[2] ?? path.join(home, "reports"), entryPoints: ["src/figures.jsx", "src/figures.css"], banner: { js: "/* with Preact, (c) 2015-present Jason Miller, MIT licence */" } });
const packages = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
  const match = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (match) packages.add(match[1]);
}
const parts = [];
for (const name of [...packages].sort()) {
  const facts = JSON.parse(await readFile(path.join(here, "node_modules", name, "package.json"), "utf8"));
  const text = await readFile(path.join(here, "node_modules", name, "LICENSE"), "utf8");
  parts.push(`${name} ${facts.version} (${facts.license})\n\n${text.trim()}\n`);
}
await writeFile(path.join(out, "LICENSES.txt"), parts.join("\n" + "-".repeat(80) + "\n\n"));
await writeFile(path.join(out, "index.html"), await readFile(path.join(here, "src", "index.html")));
