// Runs model files in Node: node run_onnx.mjs (node|web) MODULES FOLDER → answers.json. FOLDER holds model.onnx, points.bin, cases.json.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [runtime, modules, folder] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const ort = runtime === "node"
  ? require("onnxruntime-node")
  : await import(pathToFileURL(require.resolve("onnxruntime-web/wasm")).href).then((m) => m.default ?? m);
if (runtime === "web") ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(runtime === "node" ? `${folder}/model.onnx` : readFileSync(`${folder}/model.onnx`));
const bytes = readFileSync(`${folder}/points.bin`);
const answers = [];
let offset = 0;
for (const shape of JSON.parse(readFileSync(`${folder}/cases.json`, "utf8"))) {
  const size = shape.reduce((a, b) => a * b, 1);
  const points = new Float32Array(bytes.buffer.slice(bytes.byteOffset + 4 * offset, bytes.byteOffset + 4 * (offset + size)));
  offset += size;
  const found = await session.run({ points: new ort.Tensor("float32", points, shape) });
  answers.push({
    probabilities: Array.from(found.probabilities.data),
    rejected: Array.from(found.rejected.data, Boolean),
  });
}
writeFileSync(`${folder}/answers.json`, JSON.stringify(answers));
