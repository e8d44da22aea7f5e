// Keeps of node_modules the files that the page loads, in lib/ with their licences, and removes the rest: npm run vendor
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const FILES = {
  "onnxruntime-web": ["dist/ort.wasm.min.mjs", "dist/ort-wasm-simd-threaded.mjs", "dist/ort-wasm-simd-threaded.wasm"],
  "@mediapipe/tasks-vision": ["vision_bundle.mjs", "wasm/vision_wasm_internal.js", "wasm/vision_wasm_internal.wasm"],
};
const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8"));
const notices = [];
mkdirSync("lib", { recursive: true });
for (const [name, files] of Object.entries(FILES)) {
  const { version, license, integrity } = packages[`node_modules/${name}`];
  notices.push(`${name} ${version}, ${license}, ${integrity}`);
  for (const file of files) copyFileSync(`node_modules/${name}/${file}`, `lib/${file.split("/").at(-1)}`);
}
writeFileSync("lib/NOTICES.txt", `${notices.join("\n")}\n`);
rmSync("node_modules", { recursive: true });
