// What the page knows and does. Every part of the page reads these signals; the server is the one place that keeps anything.
import { batch, effect, signal } from "@preact/signals";
import { api, isStatic } from "./api.js";
import { categoryColours, categoryShapes, ramp } from "./colours.js";
import { Clock, follow, stages, trail, view } from "./playing.js";
import { bodyReach } from "./skeleton.js";

export const facts = signal(null); // what /api/state says
export const problem = signal("");
export const notice = signal("");
export const method = signal("pca");
export const places = signal(null);
export const laying = signal(false); // whether a map is waited for
export const colourBy = signal(null);
export const column = signal(null); // { title, categories, values }
export const hidden = signal(new Set()); // categories that are faded
export const focus = signal(-1); // the row that is looked at
export const about = signal(null); // what is known about it
export const details = signal([]); // [name, text, place] of its columns
export const chosen = signal([]); // rows of a lasso, of a group …
export const chosenTitle = signal("");
export const only = signal(-1); // the one of them that is labelled now, one after the other; -1: all together
export const further = signal([]); // rows that wait behind the chosen ones
export const shownGroup = signal(-1); // the group that they are members of
export const hover = signal(null); // { row, x, y }
export const panel = signal("watch");
export const tool = signal("pan");
export const yes = signal([]);
export const no = signal([]);
export const spans = signal([]); // examples drawn on a timeline
export const found = signal(null);
export const other = signal(-1); // the row to compare with
export const compared = signal(null);
export const understood = signal(null);
export const positive = signal(-1); // one of the hallucinated positives
export const wide = signal(null); // { title, parts } of a report that are shown in front of the page
export const line = signal(null); // the timeline of the recording that is looked at
export const span = signal(null); // drawn or chosen on the timeline
export const help = signal(false);
export const labelValues = signal(null); // for every row the place of its label

// -- playing ----------------------------------------------------------------------------------------------------------
export { follow, stages, trail, view };
export const clock = new Clock();
export const { playing, speed, time, loop } = clock; // time: of the clock of the recording that is looked at
clock.scale = () => (recording?.clock ? recording.rate / recording.clock : 1); // where times are frames

export function step(frames) {
  playing.value = false;
  const rate = recording?.rate ?? 30;
  clock.passed = Math.max(0, clock.passed + frames / rate);
  if (!recording) return;
  const [low, high] = loop.value ?? [recording.start, recording.stop];
  const length = 1 / recording.clock;
  time.value = Math.max(low, Math.min(high - length, (Math.floor((time.value - recording.start) / length + 1e-6) + frames) * length + recording.start));
}

export function seek(to, keep = false) {
  if (!keep && recording && loop.value && (to < loop.value[0] || to > loop.value[1])) {
    loop.value = [recording.start, recording.stop];
    span.value = null;
  }
  time.value = to;
}

// -- clips: asked for together, kept for a while -----------------------------------------------------------------------
const clips = new Map();
let wanted = new Map();
let timer = 0;

export function clipOf(row) {
  if (!clips.has(row)) {
    if (clips.size > 600) for (const old of [...clips.keys()].slice(0, 200)) clips.delete(old);
    const promise = new Promise((take, refuse) => wanted.set(row, { take, refuse }));
    promise.catch(() => clips.delete(row));
    clips.set(row, promise);
    clearTimeout(timer);
    timer = setTimeout(fetchClips, 12);
  }
  return clips.get(row);
}

async function fetchClips() {
  const asked = [...wanted.entries()];
  wanted = new Map();
  for (let first = 0; first < asked.length; first += 32) {
    const part = asked.slice(first, first + 32);
    try {
      const answer = await api.arrays("clips", { rows: part.map(([row]) => row).join(",") });
      part.forEach(([, { take }], i) => {
        const clip = answer.clips[i];
        take({ ...clip, body: facts.value.body, clock: facts.value.unit === "s" ? clip.rate : 1, joints: answer.arrays[i], reach: bodyReach(answer.arrays[i], clip.shape) * 1.15 });
      });
    } catch (error) {
      part.forEach(([, { refuse }]) => refuse(error));
    }
  }
}

// -- the recording that is looked at -----------------------------------------------------------------------------------
export let recording = null;

function openRecording(extent) {
  const chunks = new Map();
  recording = {
    ...extent,
    body: facts.value.body,
    shape: [extent.frames, 1, 0],
    flat: false,
    radius: 1,
    half: 1,
    at(frame) {
      const number = Math.floor(frame / extent.chunk);
      if (!chunks.has(number)) {
        chunks.set(number, null);
        api.arrays("chunk", { recording: extent.recording, chunk: number }).then((answer) => {
          chunks.set(number, answer.arrays.joints);
          Object.assign(this, { radius: answer.radius, half: answer.half, flat: answer.flat });
          this.shape = [extent.frames, ...answer.shape.slice(1)];
          this.reach ??= bodyReach(answer.arrays.joints, answer.shape) * 1.15;
        }).catch(() => chunks.delete(number));
      }
      const joints = chunks.get(number);
      return joints ? { joints, first: (frame % extent.chunk) * this.shape[1] * this.shape[2] * 3 } : null;
    },
  };
}

export async function showTimeline(number, keep = false) {
  const answer = await attempt(() => api.arrays("timeline", { recording: number }));
  if (!answer) return;
  if (recording?.recording !== number) openRecording(answer);
  if (!keep) span.value = null;
  line.value = answer;
}

// -- acting ------------------------------------------------------------------------------------------------------------
let clearing = 0;
export function say(text) {
  notice.value = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => (notice.value = ""), 5000);
}

export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.gone) problem.value = error.message;
    else say(error.message);
    return null;
  }
}

export async function look(row, stay = false) {
  if (row < 0 || row >= facts.value.rows) return;
  const clip = await attempt(() => clipOf(row));
  if (!clip) return;
  const fresh = recording?.recording !== clip.recording;
  batch(() => {
    focus.value = row;
    about.value = clip;
    hover.value = null;
    clock.passed = 0;
    loop.value = [clip.start, clip.stop];
    time.value = clip.start;
    span.value = null;
    understood.value = null;
    if (!stay && (panel.value === "compare" || panel.value === "method")) panel.value = "watch";
  });
  if (isStatic && !facts.value.long) recording = clip; // the clip is all there is of it
  await Promise.all([readDetails(row), fresh && recording !== clip && showTimeline(clip.recording)]);
}

// others: what the chosen ones are a part of, to go on with; group: the one that they are members of.
export function choose(rows, title = "", others = [], group = -1) {
  batch(() => {
    chosen.value = rows;
    only.value = -1;
    chosenTitle.value = title;
    further.value = others;
    shownGroup.value = group;
    if (rows.length && (panel.value === "compare" || panel.value === "method")) panel.value = "watch";
  });
  if (rows.length && !title) say(`${rows.length} chosen`);
}

// What a label would be given to: a drawn span, the chosen rows, or the one that is looked at.
export function target() {
  if (span.value && line.value && !span.value.row) return { spans: [{ recording: line.value.recording, start: span.value.start, stop: span.value.stop }], text: "the span on the timeline" };
  if (chosen.value.includes(only.value)) return { rows: [only.value], text: about.value?.name ?? "this movement" };
  if (chosen.value.length) return { rows: [...chosen.value], text: `${chosen.value.length} chosen movements` };
  if (focus.value >= 0) return { rows: [focus.value], text: about.value?.name ?? "this movement" };
  return null;
}

export async function giveLabel(label, given = target()) {
  if (!given) return say("Choose a movement first");
  const { text, ...what } = given;
  const answer = await attempt(() => api.ask("label", { ...what, label }));
  if (!answer) return;
  applyLabels(answer);
  const oneByOne = label && only.value >= 0 && what.rows?.[0] === only.value;
  const next = oneByOne ? chosen.value[chosen.value.indexOf(only.value) + 1] ?? -1 : -1;
  say(label ? `${text}: ${label}${oneByOne && next < 0 ? ", the last of these" : ""}` : `label taken off ${text}`);
  if (oneByOne) pickOnly(next);
}

// Label the chosen ones one after the other, this one first; the keyboard goes along.
export function pickOnly(row) {
  only.value = row;
  if (row < 0) return;
  look(row, true);
  requestAnimationFrame(() => document.querySelector(`.chosen .mini[data-row="${row}"] .mini-stage`)?.focus());
}

export async function undo() {
  const answer = await attempt(() => api.ask("undo", {}));
  if (!answer) return;
  applyLabels(answer);
  say(answer.changed ? "undone" : "nothing to undo");
}

export async function moveEdge(part, to) {
  const answer = await attempt(() => api.ask("move", { recording: line.value.recording, start: part.start, stop: part.stop, to_start: to.start, to_stop: to.stop }));
  if (answer) applyLabels(answer);
}

export async function rename(label, name) {
  const answer = await attempt(() => api.ask("rename", { label, name }));
  if (answer) applyLabels(answer);
}

function applyLabels(answer) {
  facts.value = { ...facts.value, classes: answer.classes, undoable: answer.undoable, labels: answer.labels };
  refresh({ labels: true });
}

async function readDetails(row) {
  const answer = isStatic ? about.value?.about : await attempt(() => api.get("about", { row }));
  if (answer && focus.value === row) details.value = answer;
}

async function readLabels() {
  const answer = await attempt(() => api.arrays("column", { name: "label" }));
  if (answer) labelValues.value = answer.arrays.values;
}

async function refresh({ labels = false, groups = false, model = false }) {
  const by = colourBy.value;
  if ((labels && by === "label") || (groups && by === "group") || (model && (by === "prediction" || by === "confidence"))) await paintBy(by);
  if (labels) await readLabels();
  if (focus.value >= 0) await readDetails(focus.value);
  if (line.value) await showTimeline(line.value.recording, true);
}

export async function searchLike(rows, drawn = []) {
  batch(() => {
    yes.value = rows;
    spans.value = drawn;
    no.value = [];
    found.value = null;
    panel.value = "similar";
  });
  await searchAgain();
}

export async function searchAgain() {
  if (!yes.value.length && !spans.value.length) return (found.value = null);
  const answer = await attempt(() => api.ask("search", { rows: yes.value, against: no.value, spans: spans.value }));
  if (answer) found.value = answer;
}

export async function judge(row, good) {
  batch(() => {
    yes.value = yes.value.filter((one) => one !== row);
    no.value = no.value.filter((one) => one !== row);
    if (good === true) yes.value = [...yes.value, row];
    if (good === false) no.value = [...no.value, row];
  });
  await searchAgain();
}

export async function compareWith(row) {
  if (focus.value < 0 || row === focus.value) return;
  batch(() => {
    other.value = row;
    compared.value = null;
    panel.value = "compare";
  });
  const answer = await attempt(() => api.askArrays("compare", { rows: [focus.value, row] }));
  if (answer) compared.value = answer;
}

export async function understand() {
  if (focus.value < 0) return;
  positive.value = -1;
  understood.value = "wait";
  understood.value = await attempt(() => api.askArrays("understand", { rows: [focus.value] }));
}

export async function changeGroups(given) {
  const answer = await attempt(() => api.ask("groups", given));
  if (!answer || answer.revision < facts.value.group.revision) return; // a later one was answered before
  facts.value = { ...facts.value, group: answer };
  await refresh({ groups: true });
}

export async function membersOf(group) {
  const values = (await attempt(() => api.arrays("column", { name: "group" })))?.arrays.values;
  if (!values) return [];
  const rows = [];
  values.forEach((value, row) => value === group && rows.push(row));
  return rows;
}

// Rows in an order whose beginning shows what there is: by chance, of each recording one before a second of any.
export async function spread(rows) {
  const recording = (await attempt(() => api.arrays("rows")))?.arrays.recording;
  const chance = (row) => (Math.imul(row + 1, 2654435761) >>> 0) ^ (row << 7);
  const turns = new Map();
  const turn = (row) => {
    const number = turns.get(recording?.[row]) ?? 0;
    turns.set(recording?.[row], number + 1);
    return number;
  };
  const order = rows.map((row) => [chance(row), row]).sort((a, b) => a[0] - b[0]).map(([, row]) => [recording ? turn(row) : 0, row]);
  return order.sort((a, b) => a[0] - b[0]).map(([, row]) => row);
}

// -- the map -----------------------------------------------------------------------------------------------------------
export async function paintBy(name) {
  const answer = await attempt(() => api.arrays("column", { name }));
  if (!answer) return;
  batch(() => {
    if (colourBy.value !== name) hidden.value = new Set();
    colourBy.value = name;
    column.value = { title: answer.title, categories: answer.categories, values: answer.arrays.values };
  });
}

export async function layOut(name) {
  laying.value = !facts.value.maps.includes(name);
  const answer = await attempt(() => api.arrays("map", { method: name }));
  laying.value = false;
  if (!answer) return;
  batch(() => {
    method.value = name;
    places.value = answer.arrays.places;
  });
}

// Colours of all points, their shapes, and the range of a column of numbers.
export function pointColours() {
  const { categories, values } = column.value ?? {};
  const count = facts.value.rows;
  const out = new Uint8Array(count * 4);
  if (!values) return [out.fill(128), null, null];
  const alpha = count > 200000 ? 150 : count > 20000 ? 190 : 230;
  if (categories) return [categoryColours(values, hidden.value, alpha), categoryShapes(values, categories), null];
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  for (let row = 0; row < count; row++) {
    const share = (values[row] - low) / (high - low || 1);
    out.set(Number.isFinite(share) ? [...ramp(share), alpha] : [128, 128, 128, 60], row * 4);
  }
  return [out, null, [low, high]];
}

// -- life --------------------------------------------------------------------------------------------------------------
let known = null;
export const asked = { colour: false }; // whether somebody has chosen the colours

export async function start() {
  try {
    let state = await api.get("state");
    while (!state.rows && !state.progress?.error) {
      facts.value = state;
      await new Promise((done) => setTimeout(done, 250));
      state = await api.get("state");
    }
    facts.value = state;
    document.title = `${state.source} – halp explore`;
    if (!state.rows) return;
    const first = state.columns.find((name) => name === "class") ?? (state.group ? "group" : state.columns.find((name) => name !== "group")); // groups come later
    await Promise.all([layOut(state.maps.includes("tsne") ? "tsne" : "pca"), paintBy(state.classes.length && first !== "class" ? "label" : first)]);
    await readLabels();
    if (!isStatic) watch();
  } catch (error) {
    problem.value = error.status === 403 ? "This address has no valid token. Open the one that halp explore printed." : error.message;
  }
}

async function watch() {
  for (;;) {
    await new Promise((done) => setTimeout(done, document.hidden ? 4000 : 700));
    try {
      const pulse = await api.get("pulse");
      if (problem.value) {
        problem.value = "";
        known = null;
      }
      if (JSON.stringify(pulse) === known) continue;
      const last = known ? JSON.parse(known) : null;
      known = JSON.stringify(pulse);
      if (last && last.revision === pulse.revision) {
        facts.value = { ...facts.value, progress: pulse.progress };
        continue;
      }
      const state = await api.get("state");
      const before = facts.value;
      facts.value = state;
      if (state.maps.includes("tsne") && !before.maps.includes("tsne") && method.value === "pca") await layOut("tsne");
      if (!before.group && state.group && !state.columns.includes("class") && !asked.colour) await paintBy("group");
      const changed = (name) => JSON.stringify(state[name]) !== JSON.stringify(before[name]);
      await refresh({ labels: changed("labels"), groups: changed("groups"), model: changed("model") });
    } catch (error) {
      if (error.gone) problem.value = error.message;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

// what tests and pictures wait for
effect(() => {
  document.documentElement.dataset.ready = String(Boolean(places.value && column.value));
});
