// Recognises movements in the browser: camera or video → skeletons (MediaPipe) → model.onnx → a label per stride.
const MINUTE = 60; // seconds that the timeline shows
const LONGEST = 0.5; // seconds without a picture, beyond which nobody is assumed
const FEWEST = 5; // pictures that a window needs
const LARGEST = 1280; // pixels of the longer side of a picture that is looked at
const SURE = 0.3; // visibility from which a joint counts as seen
const at = (id) => document.getElementById(id);

// The last seconds of key points, and the model that classifies them.
export class Recogniser {
  constructor(ort, session, facts) {
    Object.assign(this, { ort, session, facts });
    this.clear();
  }

  clear() {
    this.frames = []; // {time, people: [Float32Array(joints × coordinates), NaN where missing; or undefined]}
    this.answers = 0;
  }

  // Takes the people of a moment (seconds); whether a stride is complete.
  push(time, people) {
    if (this.frames.length && time <= this.frames.at(-1).time) this.clear();
    const { window, stride } = this.facts, step = time - (this.frames.at(-1)?.time ?? time);
    if (!this.frames.length) this.start = time;
    this.frames.push({ time, people });
    while (this.frames[0].time < time - window - LONGEST) this.frames.shift();
    const passed = time + step - this.start; // a picture lasts until the next one
    if (passed < window + this.answers * stride - 1e-6) return false;
    this.answers = Math.floor((passed - window + 1e-6) / stride) + 1;
    return true;
  }

  // The last window at an even rate, that of the pictures: {points, shape, pictures, seen}.
  window() {
    const { window, joints, coordinates } = this.facts, end = this.frames.at(-1).time;
    const inside = this.frames.filter(({ time }) => time > end - window - 1e-6);
    const steps = inside.slice(1).map(({ time }, place) => time - inside[place].time).sort((a, b) => a - b);
    const count = Math.max(2, Math.round(window / (steps[steps.length >> 1] ?? window)));
    const persons = Math.max(1, ...inside.map(({ people }) => people.length));
    const size = joints * coordinates, points = new Float32Array(count * persons * size).fill(NaN);
    let seen = 0, after = 0;
    for (let slot = 0; slot < count; slot++) {
      const time = end - ((count - 1 - slot) * window) / count;
      while (after < this.frames.length - 1 && this.frames[after].time < time - 1e-6) after++;
      const pair = [this.frames[Math.max(0, after - 1)], this.frames[after]];
      let somebody = false;
      for (let person = 0; person < persons; person++) {
        const place = (slot * persons + person) * size;
        somebody = blend(pair, time, person, points.subarray(place, place + size), coordinates) || somebody;
      }
      seen += somebody;
    }
    return { points, shape: [1, count, persons, joints, coordinates], pictures: inside.length, seen: seen / count };
  }

  // Class probabilities of raw key points of this shape (batch, frames, persons, joints, coordinates).
  async predict(points, shape) {
    const { probabilities, rejected } = await this.session.run({ points: new this.ort.Tensor("float32", points, shape) });
    const all = Array.from(probabilities.data), best = all.indexOf(Math.max(...all));
    return {
      best: this.facts.classes[best], probability: all[best], probabilities: all,
      rejected: this.facts.rejects ? Boolean(rejected.data[0]) : null,
    };
  }

  // The answer for the last window, with what it says where there is none.
  async answer() {
    const { points, shape, pictures, seen } = this.window();
    if (pictures < FEWEST) return { none: "too few pictures per second" };
    return seen < this.facts.seen ? { none: "nobody" } : this.predict(points, shape);
  }
}

// Writes a person at a moment between two frames; whether any joint is seen.
function blend([before, after], time, person, out, coordinates) {
  const gap = after.time - before.time, share = gap > 0 ? Math.min(1, Math.max(0, (time - before.time) / gap)) : 1;
  const near = share < 0.5 ? before : after, one = before.people[person], two = after.people[person];
  if (Math.abs(near.time - time) > LONGEST) return false;
  let somebody = false;
  for (let first = 0; first < out.length; first += coordinates) {
    const there = [one, two].map((body) => Boolean(body) && !Number.isNaN(body[first]));
    const nearest = near === before ? 0 : 1;
    if (!there[nearest]) continue;
    somebody = true;
    for (let place = first; place < first + coordinates; place++) {
      if (share < 1e-6 || !there[1]) out[place] = one[place];
      else if (share > 1 - 1e-6 || !there[0]) out[place] = two[place];
      else out[place] = (1 - share) * one[place] + share * two[place];
    }
  }
  return somebody;
}

// Key points of MediaPipe's people, as halp reads them: metres with x and y turned, or pixels of the picture.
export function keyPoints(found, facts, width, height) {
  const flat = facts.coordinates === 2;
  return (flat ? found.landmarks : found.worldLandmarks).map((marks, person) =>
    Float32Array.from(marks.flatMap(({ x, y, z }, joint) => {
      if (found.landmarks[person][joint].visibility < SURE) return new Array(facts.coordinates).fill(NaN);
      return flat ? [x * width, y * height] : [-x, -y, z];
    })));
}

// Keeps people in their places from picture to picture: whoever is nearest to where a person was stays that person.
export class Places {
  constructor(most) { this.most = most; this.middles = []; }

  order(middles) {
    const order = new Array(this.most).fill(-1), pairs = [];
    this.middles.forEach((old, place) => middles.forEach((middle, index) =>
      old && pairs.push([Math.hypot(old[0] - middle[0], old[1] - middle[1]), place, index])));
    for (const [, place, index] of pairs.sort((a, b) => a[0] - b[0])) {
      if (order[place] < 0 && !order.includes(index)) order[place] = index;
    }
    middles.forEach((_, index) => { if (!order.includes(index)) order[order.indexOf(-1)] = index; });
    order.forEach((index, place) => { if (index >= 0) this.middles[place] = middles[index]; });
    return order;
  }
}

const colour = (index) => `hsl(${(index * 137.5) % 360} 65% 50%)`;

// What is seen: picture, skeletons, label and the last minute.
class Display {
  constructor(facts) {
    this.facts = facts;
    this.answers = [];
    this.picture = document.createElement("canvas");
    this.people = [];
    at("picture").onchange = () => this.draw(this.people); // also of a video that has ended
    at("name").textContent = facts.name;
    document.title = facts.name;
    for (const [index, name] of [...facts.classes, "unsure"].entries()) {
      const item = document.createElement("li"), mark = document.createElement("span");
      mark.textContent = "■ ";
      mark.style.color = index < facts.classes.length ? colour(index) : "gray";
      item.append(mark, name);
      if (index < facts.classes.length || facts.rejects) at("classes").append(item);
    }
  }

  // The picture of this moment, which the skeletons belong to.
  take(video) {
    const { picture } = this, scale = Math.min(1, LARGEST / Math.max(video.videoWidth, video.videoHeight));
    const [width, height] = [video.videoWidth, video.videoHeight].map((side) => Math.round(scale * side));
    if (picture.width !== width || picture.height !== height) {
      for (const canvas of [picture, at("view")]) [canvas.width, canvas.height] = [width, height];
    }
    picture.getContext("2d").drawImage(video, 0, 0, width, height);
    return picture;
  }

  draw(people) {
    this.people = people;
    const view = at("view"), pen = view.getContext("2d");
    pen.clearRect(0, 0, view.width, view.height);
    if (at("picture").checked) pen.drawImage(this.picture, 0, 0);
    pen.lineWidth = Math.max(2, view.height / 150);
    pen.lineCap = "round";
    people.forEach((marks, person) => {
      pen.strokeStyle = person ? "#ffb347" : "#4fc3f7";
      for (const bone of this.facts.bones) {
        const [a, b] = bone.map((joint) => marks[joint]);
        if (Math.min(a.visibility, b.visibility) < SURE) continue;
        pen.beginPath();
        pen.moveTo(a.x * view.width, a.y * view.height);
        pen.lineTo(b.x * view.width, b.y * view.height);
        pen.stroke();
      }
    });
  }

  show(time, answer, milliseconds) {
    this.answers.push({ time, answer });
    this.answers = this.answers.filter((one) => one.time > time - MINUTE && one.time <= time);
    const { best, rejected, none } = answer, percent = `${Math.round(100 * answer.probability)} %`, label = at("label");
    label.className = none || rejected ? "unsure" : "";
    label.textContent = none ?? (rejected ? "unsure" : `${best} ${percent}`);
    const nearest = rejected ? `unlike everything labelled; most similar: ${best} (${percent}) · ` : "";
    at("detail").textContent = `${nearest}${milliseconds.toFixed(0)} ms`;
    this.drawLine(time);
  }

  drawLine(now) {
    const line = at("line"), pen = line.getContext("2d"), { stride, classes } = this.facts;
    line.width = line.clientWidth;
    const x = (time) => line.width * (1 - (now - time) / MINUTE);
    for (const { time, answer } of this.answers.filter((one) => !one.answer.none)) {
      const high = answer.rejected ? 0.25 : answer.probability;
      pen.fillStyle = answer.rejected ? "gray" : colour(classes.indexOf(answer.best));
      pen.fillRect(x(time - stride), line.height * (1 - high), Math.max(1, x(time) - x(time - stride) - 1), line.height * high);
    }
  }
}

// Pictures of the video element to answers, one picture at a time.
class Player {
  constructor(recogniser, estimator, display) {
    Object.assign(this, { recogniser, estimator, display, video: at("video"), run: 0 });
  }

  async start(open) {
    this.stop();
    const run = ++this.run;
    this.recogniser.clear();
    this.display.answers = [];
    this.places = new Places(this.recogniser.facts.persons);
    await open(this.video);
    say("Loading the pose estimator.");
    this.landmarker ??= await this.estimator();
    await this.video.play();
    at("stop").disabled = false;
    this.video.onended = () => say("The video has ended.");
    say("Looking.");
    const next = () => this.video.requestVideoFrameCallback(async (now, { mediaTime }) => {
      if (run !== this.run) return;
      try {
        await this.look(this.video.srcObject ? now / 1000 : mediaTime);
        next();
      } catch (error) { fail(error); }
    });
    next();
  }

  async look(time) {
    const began = performance.now(), { video, recogniser, display } = this, last = recogniser.frames.at(-1)?.time;
    if (last !== undefined && time <= last && time > last - 0.1) return; // the same picture once more
    const found = this.landmarker.detectForVideo(display.take(video), began);
    const middles = found.landmarks.map((marks) => [(marks[23].x + marks[24].x) / 2, (marks[23].y + marks[24].y) / 2]);
    const order = this.places.order(middles), people = keyPoints(found, recogniser.facts, video.videoWidth, video.videoHeight);
    display.draw(order.filter((index) => index >= 0).map((index) => found.landmarks[index]));
    const due = recogniser.push(time, order.map((index) => people[index]));
    if (due) display.show(time, await recogniser.answer(), performance.now() - began);
    // a video is slowed down where pictures come faster than they can be looked at
    const spent = (performance.now() - began) / 1000;
    if (!video.srcObject) video.playbackRate = Math.min(1, Math.max(0.1, 0.05 / spent));
  }

  stop() {
    this.run++;
    this.video.pause();
    this.video.srcObject?.getTracks().forEach((track) => track.stop());
    this.video.srcObject = null;
    if (this.video.src) URL.revokeObjectURL(this.video.src);
    this.video.removeAttribute("src");
    this.video.playbackRate = 1;
    at("stop").disabled = true;
    say("Ready.");
  }
}

function say(text) {
  at("status").className = "";
  at("status").textContent = text;
}

const REFUSED = {
  NotAllowedError: "The camera was not allowed.",
  NotFoundError: "No camera was found; connect one or open a video.",
  NotReadableError: "The camera cannot be read; close other programs that use it.",
};

function fail(error) {
  at("status").className = "error";
  at("status").textContent = REFUSED[error.name] ?? error.message ?? String(error);
}

async function openCamera(video) {
  if (!navigator.mediaDevices) throw new Error("A camera needs https or localhost; open a video instead.");
  video.srcObject = await navigator.mediaDevices.getUserMedia({ video: true, audio: false });
}

function openFilm(file, video) {
  return new Promise((resolve, reject) => {
    video.onloadeddata = resolve;
    video.onerror = () => reject(new Error(`This browser cannot play '${file.name}'.`));
    video.src = URL.createObjectURL(file);
  });
}

async function load() {
  const here = new URL(".", import.meta.url).href;
  const [ort, vision] = await Promise.all([import("./lib/ort.wasm.min.mjs"), import("./lib/vision_bundle.mjs")]).catch(() => {
    throw new Error("The libraries are missing; run in this folder: npm ci --ignore-scripts && npm run vendor");
  });
  ort.env.wasm.wasmPaths = `${here}lib/`;
  ort.env.wasm.numThreads = 1;
  const facts = await (await fetch("page.json")).json();
  const session = await ort.InferenceSession.create(`${here}model.onnx`);
  const wasm = { wasmLoaderPath: `${here}lib/vision_wasm_internal.js`, wasmBinaryPath: `${here}lib/vision_wasm_internal.wasm` };
  const estimator = () => vision.PoseLandmarker.createFromOptions(wasm, {
    baseOptions: { modelAssetPath: `${here}pose.task` }, runningMode: "VIDEO", numPoses: facts.persons,
  });
  return { recogniser: new Recogniser(ort, session, facts), estimator };
}

try {
  const { recogniser, estimator } = await load();
  const player = new Player(recogniser, estimator, new Display(recogniser.facts));
  globalThis.halp = { recogniser, player };
  at("camera").onclick = () => player.start(openCamera).catch(fail);
  at("film").onchange = ({ target }) => target.files[0] && player.start((video) => openFilm(target.files[0], video)).catch(fail);
  at("stop").onclick = () => player.stop();
  for (const id of ["camera", "film"]) at(id).disabled = false;
  say("Ready.");
  document.documentElement.dataset.ready = "true";
} catch (error) {
  fail(error);
}
