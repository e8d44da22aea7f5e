// Talks to the server of `halp explore`, or to the files of a static folder: both answer the same questions.
const TYPES = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array, f4: Float32Array };

export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const [name, part] of Object.entries(facts.arrays)) {
    const size = part.shape.reduce((a, b) => a * b, 1);
    arrays[name] = Object.assign(new TYPES[part.type](buffer, 4 + length + part.offset, size), { shape: part.shape });
  }
  return { ...facts, arrays };
}

// Statuses after which the same request may be taken later.
const WAIT = {
  403: "The explorer was started again: open the address that it printed last.",
  408: "The explorer is slow to answer; it is asked again.",
  503: "Another program is using the file of the labels. They are kept as soon as it lets go of the file.",
};

class Server {
  constructor() {
    this.token = new URLSearchParams(location.search).get("token") ?? "";
  }
  async request(name, options = {}, query = "") {
    let answer;
    try {
      answer = await fetch(`api/${name}${query}`, { ...options, headers: { "X-Halp-Token": this.token, ...options.headers } });
    } catch {
      throw Object.assign(new Error("The explorer is not running any more. Start it again with halp explore."), { gone: true });
    }
    if (!answer.ok) {
      const { error = `The explorer failed (error ${answer.status}); its terminal says why.` } = await answer.json().catch(() => ({}));
      throw Object.assign(new Error(WAIT[answer.status] ?? error), { status: answer.status, gone: answer.status in WAIT });
    }
    return answer;
  }
  // The address of a film, for an element that plays it by parts.
  async film(recording) {
    return `api/film?${new URLSearchParams({ recording, token: this.token })}`;
  }
  query(given) {
    return given ? "?" + new URLSearchParams(given) : "";
  }
  async get(name, given) {
    return (await this.request(name, {}, this.query(given))).json();
  }
  async arrays(name, given) {
    return unpack(await (await this.request(name, {}, this.query(given))).arrayBuffer());
  }
  post(name, given) {
    return this.request(name, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given) });
  }
  async ask(name, given) {
    return (await this.post(name, given)).json();
  }
  async askArrays(name, given) {
    return unpack(await (await this.post(name, given)).arrayBuffer());
  }
}

// A cell of a notebook: what the server would be asked goes to the kernel.
class Kernel extends Server {
  async request(name, { body } = {}, query = "") {
    const given = body ? JSON.parse(body) : Object.fromEntries(new URLSearchParams(query));
    const answer = await window.frameElement.halpKernel(name, given);
    if (answer.error) throw new Error(answer.error);
    return new Response(answer.body);
  }
  async film(recording) {
    return URL.createObjectURL(await (await this.request("film", {}, this.query({ recording }))).blob());
  }
}

// A static folder: every answer is a script file that hands over its content, since a page from disk cannot fetch.
class Folder {
  constructor() {
    this.waiting = new Map();
    window.halpPart = (name, text) => {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      this.waiting.get(name)?.take(bytes.buffer);
    };
  }
  part(name) {
    if (!this.waiting.has(name)) {
      const entry = {};
      entry.promise = new Promise((take, refuse) => {
        entry.take = take;
        const script = document.createElement("script");
        script.src = `data/${name}.js`;
        script.onerror = () => refuse(new Error("This part was not written into the static page."));
        document.head.append(script);
      });
      this.waiting.set(name, entry);
    }
    return this.waiting.get(name).promise;
  }
  async get(name, given = {}) {
    if (name === "pulse") return null;
    if (name === "find") return this.find(given.text);
    return JSON.parse(new TextDecoder().decode(await this.part(name)));
  }
  async find(text) {
    const [rows, names] = [await this.arrays("rows"), await this.get("names")];
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = new Set(names.map((name, i) => (words.every((word) => name.toLowerCase().includes(word)) ? i : -1)).filter((i) => i >= 0));
    const found = [];
    const seen = new Set();
    rows.arrays.recording.forEach((recording, row) => {
      if (fitting.has(recording) && !seen.has(recording) && found.length < 50) {
        seen.add(recording);
        found.push(row);
      }
    });
    return Promise.all(found.map((row) => this.describe(row)));
  }
  async describe(row) {
    const [rows, names] = [await this.arrays("rows"), await this.get("names")];
    const recording = rows.arrays.recording[row];
    return { row, recording, name: names[recording], start: rows.arrays.start[row], stop: rows.arrays.stop[row] };
  }
  async arrays(name, given = {}) {
    if (name === "clips") return this.clips(given.rows.split(",").map(Number));
    const file = [name, given.method ?? given.name ?? given.recording, given.chunk].filter((part) => part !== undefined).join("-");
    return unpack(await this.part(file));
  }
  async clips(rows) {
    const out = { clips: [], arrays: {} };
    for (const row of rows) {
      const block = unpack(await this.part(`clips-${Math.floor(row / 50)}`));
      const place = block.clips.findIndex((clip) => clip.row === row);
      out.arrays[out.clips.length] = block.arrays[place];
      out.clips.push(block.clips[place]);
    }
    return out;
  }
  async ask(name, given) {
    if (name !== "search") throw new Error("This is a copy to look at. Start halp explore to label and to group.");
    const { arrays } = await this.arrays("vectors");
    const [count, width] = arrays.vectors.shape;
    const score = new Float32Array(count).fill(-2);
    const dot = (a, b) => {
      let sum = 0;
      for (let i = 0; i < width; i++) sum += arrays.vectors[a * width + i] * arrays.vectors[b * width + i];
      return sum / 16129;
    };
    for (let row = 0; row < count; row++) {
      for (const example of given.rows) score[row] = Math.max(score[row], dot(row, example));
      for (const other of given.against ?? []) if (dot(row, other) > score[row]) score[row] = -2;
    }
    const skip = new Set([...given.rows, ...(given.against ?? [])]);
    const order = Array.from(score.keys()).sort((a, b) => score[b] - score[a]);
    const { recording, start, stop } = (await this.arrays("rows")).arrays;
    const taken = new Map(); // windows overlap: of those that share time, the nearest one
    const free = (row) => {
      if (!taken.has(recording[row])) taken.set(recording[row], []);
      const spans = taken.get(recording[row]);
      return spans.every(([low, high]) => stop[row] <= low || high <= start[row]) && spans.push([start[row], stop[row]]);
    };
    given.rows.forEach(free);
    const hits = order.filter((row) => !skip.has(row) && score[row] > -2 && free(row)).slice(0, given.k ?? 24);
    const entry = async (row, more) => ({ ...(await this.describe(row)), similarity: Math.round(score[row] * 1e4) / 1e4, ...more });
    const quantiles = [0.99, 0.95, 0.9, 0.75, 0.5].map((quantile) => [quantile, order[Math.round((1 - quantile) * (count - 1))]]);
    return {
      hits: await Promise.all(hits.map((row) => entry(row))),
      quantiles: await Promise.all(quantiles.map(([quantile, row]) => entry(row, { quantile }))),
    };
  }
  async askArrays() {
    throw new Error("This is a copy to look at. Start halp explore for this.");
  }
}

export const isStatic = document.documentElement.dataset.static !== undefined;
export const api = isStatic ? new Folder() : window.frameElement?.halpKernel ? new Kernel() : new Server();
