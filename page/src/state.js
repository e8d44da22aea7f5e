// What the page shows, and how one moves in it. Every part of the page reads these signals; what people change is in acts.js.
import { batch, computed, effect, signal, untracked } from "@preact/signals";
import { acts, classOfKey, classes, label, labelNames, labelValues, takeColumn, takeState } from "./acts.js";
import { api, isStatic } from "./api.js";
import { attempt, facts, notice, pause, problem, say } from "./base.js";
import { categoryColours, categoryShapes, ramp } from "./colours.js";
import { Clock, follow, stages, trail, view } from "./playing.js";
import { bodyReach } from "./skeleton.js";

export { acts, attempt, classes, facts, labelNames, labelValues, notice, problem, say };
export const method = signal("pca");
export const places = signal(null);
export const laying = signal(false); // whether a map is waited for
export const colourBy = signal(null);
const painted = signal(null); // a column as the server said
export const column = computed(() => (painted.value?.title === "label" ? { ...painted.value, categories: labelNames.value, values: labelValues.value ?? painted.value.values } : painted.value)); // { title, categories, values }
export const hidden = signal(new Set()); // categories that are faded
export const filters = signal([]); // filters of columns that are not shown now: { name, title, categories, values, hidden }
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
export const span = signal(null); // { recording, start, stop }, drawn or chosen on the timeline
export const help = signal(false);
export const closeWindows = () => { help.value = false; wide.value = null; };
export const titleOf = (name) => ({ prediction: "recognised as", confidence: "how sure" })[name] ?? name; // of a column, for people
export const numberText = (name, value) => (name === "confidence" ? `${Math.round(value * 100)} %` : String(Number(value.toFixed(2))));
export const researcher = computed(() => Boolean(facts.value?.researcher || facts.value?.runs?.length)); // whether trainings are of interest

// -- playing ----------------------------------------------------------------------------------------------------------
export { follow, stages, trail, view };
export const clock = new Clock();
export const { playing, speed, time, loop } = clock; // time: of the clock of the recording that is looked at
clock.scale = () => (recording?.clock ? recording.rate / recording.clock : 1); // where times are frames

export function step(frames) {
  playing.value = false;
  const rate = recording?.rate ?? 30;
  clock.passed = Math.max(0, clock.passed + frames / rate);
  if (!recording) return chosen.value.length || found.value || say("Choose a movement first.");
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

// A span from this moment on, or up to it.
export function cut(edge) {
  if (!line.value || recording?.recording !== line.value.recording) return say("Choose a movement first.");
  const { start, stop } = span.value ?? line.value;
  const at = time.value;
  drawSpan(edge === "start" ? { start: at, stop: stop > at ? stop : line.value.stop } : { start: start < at ? start : line.value.start, stop: at });
}

export function drawSpan({ start, stop }) {
  if (!(stop > start)) return say("A span ends after it begins: go on a little, then press o.");
  span.value = { recording: line.value.recording, start, stop };
  loop.value = [start, stop];
}

// -- clips: asked for together, kept for a while -----------------------------------------------------------------------
const clips = new Map();
let wanted = new Map();
let timer = 0;

export function clipOf(row) {
  if (!clips.has(row)) {
    if (clips.size > 600) for (const old of [...clips.keys()].slice(0, 200)) clips.delete(old);
    const promise = new Promise((take, refuse) => wanted.set(row, { take, refuse }));
    promise.then((clip) => (promise.clip = clip), () => clips.delete(row));
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

let wantedLine = -1; // the recording that was asked for last: answers about others come too late

export async function showTimeline(number) {
  wantedLine = number;
  const answer = await attempt(() => api.arrays("timeline", { recording: number }));
  if (!answer || answer.recording !== wantedLine) return;
  if (line.value?.recording === number && answer.labels < line.value.labels) return;
  if (recording?.recording !== number) openRecording(answer);
  if (span.value && span.value.recording !== number) span.value = null;
  line.value = answer;
}

// -- acting ------------------------------------------------------------------------------------------------------------
// Look at a row: it is meant from now on, its frames follow.
export async function look(row, stay = false) {
  if (row < 0 || row >= facts.value.rows) return;
  batch(() => {
    focus.value = row;
    about.value = clips.get(row)?.clip ?? { row, waiting: true };
    hover.value = null;
    span.value = null;
    understood.value = null;
    if (!stay && panel.value !== "label") panel.value = "watch";
  });
  const clip = await attempt(() => clipOf(row));
  if (!clip || focus.value !== row) return;
  batch(() => {
    about.value = clip;
    clock.passed = 0;
    loop.value = [clip.start, clip.stop];
    time.value = clip.start;
  });
  if (isStatic && !facts.value.long) recording = clip; // the clip is all there is of it
  await Promise.all([readDetails(row), recording !== clip && (recording?.recording !== clip.recording || wantedLine !== clip.recording) && showTimeline(clip.recording)]);
}

// others: what the chosen ones are a part of, to go on with; group: the one that they are members of.
export function choose(rows, title = "", others = [], group = -1) {
  batch(() => {
    if (rows.length) span.value = null; // what was chosen last is meant
    chosen.value = rows;
    only.value = -1;
    chosenTitle.value = title;
    further.value = others;
    shownGroup.value = group;
    if (rows.length && panel.value !== "label") panel.value = "watch";
  });
  if (rows.length && !title) say(`${rows.length} chosen`);
}

// A name without what all names begin with.
export const shortName = (name = "") => (facts.value?.shared >= 6 ? `…\u2060${name.slice(facts.value.shared)}` : name);

export const spanText = (row) => (facts.value?.unit === "s" ? `${row.start.toFixed(1)} – ${row.stop.toFixed(1)} s` : `${Math.round(row.stop - row.start)} frames`);

function nameOf(row) {
  const clip = clips.get(row)?.clip;
  return clip ? clip.name + (facts.value.window ? `, ${spanText(clip)}` : "") : "this movement";
}

// What a label would be given to: a drawn span, the chosen rows, or the one that is looked at.
export function target() {
  if (span.value) {
    const { recording, start, stop } = span.value;
    return { spans: [{ recording, start, stop }], text: "the span on the timeline" };
  }
  if (chosen.value.includes(only.value)) return { rows: [only.value], text: nameOf(only.value) };
  if (chosen.value.length) return { rows: [...chosen.value], text: `${chosen.value.length.toLocaleString()} chosen ${facts.value.window ? "windows" : "movements"}` };
  if (focus.value >= 0) return { rows: [focus.value], text: nameOf(focus.value) };
  return null;
}

// what: a class, a name, or "" to take the label off
export function giveLabel(what, given = target()) {
  if (!given) return say("Choose a movement first.");
  if (!what && given.rows?.every((row) => !(labelValues.value?.[row] >= 0))) return say("There is no label to take off.");
  const oneByOne = what && only.value >= 0 && given.rows?.[0] === only.value && given.rows.length === 1;
  const next = oneByOne ? chosen.value[chosen.value.indexOf(only.value) + 1] ?? -1 : -1;
  const name = what.name ?? what;
  say(name ? `${given.text}: ${name}${oneByOne && next < 0 ? ", the last of these" : ""}` : `label taken off ${given.text}`);
  if (given.rows?.length === 1 && clips.get(given.rows[0])?.clip) lately.push(clips.get(given.rows[0]).clip);
  const done = label(what, given);
  if (oneByOne) pickOnly(next);
  return done;
}

export function giveKey(key, given) {
  const own = classOfKey(key);
  if (own) giveLabel(own, given);
  else say(key ? `No class has the key ${key} yet: type a label to make one.` : "Classes have the keys 1 to 9; those beyond are buttons.");
}

// Label the chosen ones one after the other, this one first; the keyboard goes along (Grid).
export function pickOnly(row) {
  only.value = row;
  if (row >= 0) look(row, true);
}

// -- what to label next -------------------------------------------------------------------------------------------------
const lately = []; // clips that were labelled a moment ago: what shares time with them is not proposed

export const proposals = computed(() => {
  const { few, group, skipped } = facts.value ?? {};
  const all = few?.suggestions ?? (group?.groups ?? []).map((one) => one.typical);
  const skip = new Set(skipped);
  return all.filter((one) => passes(one.row) && !skip.has(one.row) && (labelValues.value?.[one.row] ?? -1) < 0);
});

// Go on to the next proposal; one that is left without a label is not proposed again.
export function goNext() {
  const left = proposals.value.find((one) => one.row === focus.value);
  if (left) {
    facts.value = { ...facts.value, skipped: [...facts.value.skipped, left.row] };
    attempt(() => api.ask("skip", { rows: [left.row] }));
  }
  const apart = (one) => lately.every((clip) => clip.recording !== one.recording || one.stop <= clip.start || clip.stop <= one.start);
  const next = proposals.value.find((one) => one.row !== focus.value && apart(one));
  if (!next) return say(facts.value.few || facts.value.group ? "All that was proposed is labelled or skipped; more comes with the next labels." : "Groups are still being found; proposals come with them.");
  choose([]);
  look(next.row, true);
}

async function readDetails(row) {
  const answer = isStatic ? about.value?.about : await attempt(() => api.get("about", { row }));
  if (answer && focus.value === row) details.value = answer;
}

async function readLabels() {
  const answer = await attempt(() => api.arrays("column", { name: "label" }));
  if (answer) takeColumn(answer);
}

// Read again what depends on labels, groups or the model; what changes meanwhile is read once more.
let stale = null;
let reading = false;

async function refresh(what) {
  stale = { ...stale, ...what };
  if (reading) return;
  reading = true;
  while (stale) {
    const { labels, groups, model } = stale;
    stale = null;
    const by = colourBy.value;
    if (labels) await readLabels();
    if (groups) letGo("group"); // its numbers mean other groups now
    if (model) letGo("prediction");
    if ((groups && by === "group") || (model && (by === "prediction" || by === "confidence"))) await paintBy(by);
    if (focus.value >= 0) await readDetails(focus.value);
    if (wantedLine >= 0 && !isStatic) await showTimeline(wantedLine);
  }
  reading = false;
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

// Settings that are kept with the labels; columns may be others afterwards.
export async function keep(settings) {
  const kept = await attempt(() => api.ask("settings", settings));
  if (!kept) return;
  takeState(await api.get("state"));
  if (kept.pattern !== undefined) say("Colour by the parts of the names: see Colour.");
}

export function searchSpan() {
  const { recording, start, stop } = span.value;
  return searchLike([], [{ recording, start, stop }]);
}

let search = 0;

export async function searchAgain() {
  const number = ++search;
  if (!yes.value.length && !spans.value.length) return (found.value = null);
  const answer = await attempt(() => api.ask("search", { rows: yes.value, against: no.value, spans: spans.value, ...filter() }));
  if (answer && number === search) found.value = answer;
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
  const first = focus.value;
  const answer = await attempt(() => api.askArrays("compare", { rows: [first, row] }));
  if (answer && first === focus.value && row === other.value) compared.value = answer;
}

export async function understand() {
  if (focus.value < 0) return;
  positive.value = -1;
  understood.value = "wait";
  const row = focus.value;
  const answer = await attempt(() => api.askArrays("understand", { rows: [row] }));
  if (row === focus.value) understood.value = answer;
}

// Rows of a group by its id; none where it has changed.
export async function membersOf(id) {
  const answer = await attempt(() => api.arrays("column", { name: "group" }));
  const place = answer ? answer.ids.indexOf(id) : -1;
  if (place < 0) {
    if (answer) say("This group was changed in another tab.");
    return [];
  }
  const rows = [];
  answer.arrays.values.forEach((value, row) => value === place && passes(row, "group") && rows.push(row));
  if (!rows.length) say("The filter hides all of this group.");
  return rows;
}

// Rows in an order whose beginning shows what there is: in random order, of each recording one before a second of any.
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

// What the legend hides is not found, shown or proposed either.
const inForce = computed(() => [...filters.value, ...(hidden.value.size && column.value?.categories ? [{ ...column.value, name: colourBy.value, hidden: hidden.value }] : [])]);
const valuesOf = (one) => (one.name === "label" && labelValues.value) || one.values;
export const filtering = computed(() => inForce.value.length > 0);
export const passes = (row, apart) => inForce.value.every((one) => one.name === apart || !one.hidden.has(valuesOf(one)[row]));
export const filter = () => ({ filters: inForce.value.map((one) => ({ column: one.name, hidden: [...one.hidden] })) });
export const passing = () => Array.from({ length: facts.value.rows }, (_, row) => row).filter(passes);

// -- the map -----------------------------------------------------------------------------------------------------------
let wantedColour = "";

export async function paintBy(name) {
  wantedColour = name;
  const answer = await attempt(() => api.arrays("column", { name }));
  if (!answer || name !== wantedColour) return;
  batch(() => {
    if (colourBy.value !== name) {
      const others = inForce.value;
      filters.value = others.filter((one) => one.name !== name);
      hidden.value = others.find((one) => one.name === name)?.hidden ?? new Set();
    }
    colourBy.value = name;
    if (name === "label") takeColumn(answer);
    painted.value = { title: answer.title, categories: answer.categories, values: answer.arrays.values };
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

// Drop the filter of a column.
export function letGo(name) {
  filters.value = filters.value.filter((one) => one.name !== name);
  if (colourBy.value === name) hidden.value = new Set();
}

// Colours of all points, their shapes, and the range of a column of numbers; what a filter hides is faint.
export function pointColours() {
  const found = shownColours();
  if (filters.value.length) for (let row = 0; row < facts.value.rows; row++) if (!passes(row)) found[0][4 * row + 3] = 18;
  return found;
}

function shownColours() {
  const { categories, values } = column.value ?? {};
  const count = facts.value.rows;
  const out = new Uint8Array(count * 4);
  if (!values) return [out.fill(128), null, null];
  const alpha = count > 200000 ? 150 : count > 20000 ? 190 : 230;
  if (categories) return [categoryColours(values, hidden.value, alpha), categoryShapes(values, categories), null];
  let [low, high] = [Infinity, -Infinity];
  if (colourBy.value === "confidence") [low, high] = [0, 1];
  else for (const value of values) if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  for (let row = 0; row < count; row++) {
    const share = (values[row] - low) / (high - low || 1);
    out.set(Number.isFinite(share) ? [...ramp(share), alpha] : [128, 128, 128, 60], row * 4);
  }
  return [out, null, [low, high]];
}

// -- life --------------------------------------------------------------------------------------------------------------
export const asked = { colour: false, view: null }; // whether somebody has chosen the colours; the view that the address asks for

// The view as the end of an address.
export function viewText(more) {
  return new URLSearchParams({ map: method.value, colour: colourBy.value, panel: panel.value, row: focus.value, hide: JSON.stringify(filter().filters), ...more }).toString();
}

function parsed(text) {
  try {
    return Object.values(JSON.parse(text));
  } catch {
    return [];
  }
}

async function openView() {
  const view = (asked.view = Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  if (facts.value.maps.includes(view.map) && view.map !== method.value) await layOut(view.map);
  for (const { column, hidden: without } of parsed(view.hide)) {
    if (!facts.value.columns.includes(column)) continue;
    await paintBy(column);
    hidden.value = new Set(without);
  }
  if (facts.value.columns.includes(view.colour)) {
    asked.colour = true;
    await paintBy(view.colour);
  }
  if (Number(view.row) >= 0) await look(Number(view.row), true);
  if (["watch", "similar", "label", "groups", "compare"].includes(view.panel)) panel.value = view.panel;
}

export const preview = signal(null); // { names, arrays: { recording, places } } of what is done, while the rest is read
let previewed = 0;

async function showPreview() {
  if (isStatic || performance.now() - previewed < 1500) return;
  const answer = await api.arrays("preview").catch(() => null);
  previewed = performance.now();
  if (answer?.names.length && answer.names.length !== preview.value?.names.length) preview.value = answer;
}

export async function start() {
  try {
    let state = await api.get("state");
    while (!state.rows && !state.progress?.error) {
      facts.value = state;
      await pause(250);
      if (state.progress?.done) await showPreview();
      state = await api.get("state");
    }
    facts.value = { progress: state.progress };
    takeState(state);
    document.title = `${state.source} – halp explore`;
    if (!state.rows) return;
    const first = state.columns.find((name) => name === "class") ?? (state.group ? "group" : state.colour); // groups come later
    await Promise.all([layOut(state.maps.includes("tsne") ? "tsne" : "pca"), paintBy(state.classes.length && first !== "class" ? "label" : first)]);
    await readLabels();
    if (location.hash.length > 1) await openView();
    if (isStatic) return;
    follows();
    watch();
  } catch (error) {
    problem.value = error.status === 403 ? "This address has no valid token. Open the one that halp explore printed." : error.message;
  }
}

// Whatever changes labels, groups or the model: what depends on them is read again.
function follows() {
  const marks = () => ({ labels: facts.value.labels, groups: facts.value.group?.revision ?? 0, model: JSON.stringify(facts.value.model) });
  let before = marks();
  const force = computed(() => JSON.stringify(filter()));
  effect(() => {
    force.value;
    untracked(() => found.value && searchAgain()); // hits pass the filters, too
  });
  effect(() => {
    const now = marks();
    const changed = Object.fromEntries(Object.keys(now).map((name) => [name, now[name] !== before[name]]).filter(([, is]) => is));
    before = now;
    if (Object.keys(changed).length) untracked(() => refresh(changed));
  });
}

async function watch() {
  let known = "";
  for (;;) {
    await pause(document.hidden ? 4000 : 700);
    try {
      const pulse = JSON.stringify(await api.get("pulse"));
      if (problem.value && !acts.value[0]?.waits) problem.value = known = "";
      if (pulse === known) continue;
      known = pulse;
      const before = facts.value;
      const state = await api.get("state");
      takeState(state);
      if (state.maps.includes("tsne") && !before.maps.includes("tsne") && method.value === "pca") await layOut("tsne");
      if (!before.group && state.group && !state.columns.includes("class") && !asked.colour) {
        await paintBy("group");
        say("Groups of similar movements were found; their colours are on the map.");
      }
    } catch (error) {
      if (error.gone) problem.value = error.message;
      await pause(1000);
    }
  }
}

// what tests and pictures wait for and call
Object.assign(window, { halpLook: (row) => void look(row, true), halpChoose: choose });
