// Acts: what people change. Each is queued with the ids and the revision that it was meant for, sent in order, and shown at once;
// what the server refuses is taken back and told. An act whose answer was lost is sent again under its number, which the server knows.
import { batch, computed, signal } from "@preact/signals";
import { api } from "./api.js";
import { facts, pause, problem, say } from "./base.js";

export const acts = signal([]); // on their way, oldest first
export const refused = signal([]); // { text, reason, row }, latest first
export const labelColumn = signal(null); // { values, revision }: for every row the place of its class, as the server said last
export const typed = signal({}); // names of groups that are being typed, by id
const answered = signal([]); // acts that are done, but not in the column yet

const client = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
let last = 0;
let running = false;

// Queue an act. text: what it is, for people; rows and place: what it shows until it is answered; fresh: a class that it makes;
// late: what is known only when it is sent. Gives the answer, or null where it was refused.
export function act(name, given, { text = "", rows = null, place = -1, row = -1, fresh = null, late = null, kind = name, on = null } = {}) {
  const one = { name, kind, given: { ...given, based: facts.value.labels ?? 0, client, number: ++last }, text, rows, place, row, fresh, late, on, revision: null, failed: false };
  one.done = new Promise((take) => (one.take = take));
  acts.value = [...acts.value, one];
  acts.last = last;
  run();
  return one.done;
}

async function run() {
  if (running) return;
  running = true;
  while (acts.value.length) {
    const one = acts.value[0];
    let [answer, reason] = [null, ""];
    if (one.on?.failed) reason = "what it was to take back was not done";
    else {
      try {
        answer = await api.ask(one.name, { ...one.given, ...one.late?.() });
      } catch (error) {
        if (error.gone) {
          one.waits = true;
          problem.value = error.message;
          await pause(1000);
          continue;
        }
        reason = error.message;
      }
    }
    batch(() => {
      if (one.waits) problem.value = "";
      acts.value = acts.value.slice(1);
      if (answer) settle(one, answer);
      else refuse(one, reason);
    });
    one.take(answer);
  }
  running = false;
}

function settle(one, answer) {
  one.revision = answer.act ?? null;
  one.failed = answer.act === null && one.kind === "label"; // nothing was changed, so that there is nothing to undo
  if (one.fresh) one.fresh.id = answer.class?.id; // those behind mean this class, whatever it is called by then
  if (one.rows && answer.changed && !answer.left) answered.value = [...answered.value, { ...one, place: answer.class?.place ?? one.place, revision: answer.labels }];
  takeLabels(answer);
  takeGroups(answer.group);
  if (answer.left) say(`${answer.changed} labelled; ${answer.left} were left as they are, because they overlap labels of another class`);
  else if (one.kind === "undo" || one.kind === "redo") say(answer.changed ? `${one.kind}: ${one.text}` : `There is nothing to ${one.kind}.`);
}

function refuse(one, reason) {
  one.failed = true;
  refused.value = [{ text: one.text, reason, row: one.row, number: one.given.number }, ...refused.value].slice(0, 20);
}

// -- facts: an older answer never replaces a newer one ----------------------------------------------------------------
let told = 0;

export function takeLabels({ labels, classes, undo, redo, news }) {
  if (!classes || labels < (facts.value.labels ?? 0)) return;
  facts.value = { ...facts.value, labels, classes, undo, redo };
  if (news?.[0] > told) {
    told = news[0];
    say(news[1]);
  }
}

export function takeGroups(group) {
  if (!group || group.revision < (facts.value.group?.revision ?? 0)) return;
  facts.value = { ...facts.value, group };
  const there = new Set(group.groups.map((one) => String(one.id)));
  if (Object.keys(typed.value).some((id) => !there.has(id))) typed.value = Object.fromEntries(Object.entries(typed.value).filter(([id]) => there.has(id)));
}

export function takeState(state) {
  batch(() => {
    const { labels, classes, undo, redo, group } = facts.value ?? {};
    const older = facts.value ?? {};
    facts.value = { ...state, labels: labels ?? state.labels, classes: classes ?? state.classes ?? [], undo: undo ?? state.undo ?? [], redo: redo ?? state.redo ?? [], group: group ?? null, skipped: [...new Set([...(state.skipped ?? []), ...(older.skipped ?? [])])] };
    takeLabels(state);
    takeGroups(state.group);
  });
}

export function takeColumn(answer) {
  if (answer.revision < (labelColumn.value?.revision ?? 0)) return;
  batch(() => {
    labelColumn.value = { values: answer.arrays.values, revision: answer.revision ?? 0 };
    answered.value = answered.value.filter((one) => one.revision > answer.revision);
  });
}

// -- what is shown: the server's word, and on top of it what is on its way ----------------------------------------------
export const classes = computed(() => {
  const known = facts.value?.classes ?? [];
  const fresh = acts.value.map((one) => one.fresh).filter((one, i, all) => one && !known.some(({ id, name }) => id === one.id || name === one.name) && all.findIndex((other) => other?.name === one.name) === i);
  return [...known, ...fresh].sort((a, b) => a.place - b.place);
});

export const labelValues = computed(() => {
  const { values, revision } = labelColumn.value ?? {};
  const open = values ? [...answered.value.filter((one) => one.revision > revision), ...acts.value].filter((one) => one.rows) : [];
  if (!open.length) return values ?? null;
  const shown = values.slice();
  for (const one of open) for (const row of one.rows) shown[row] = one.place;
  return shown;
});

export const labelNames = computed(() => {
  const names = [];
  for (const { name, place } of classes.value) names[place] = name;
  return Array.from(names, (name) => name ?? "");
});

// -- acts on labels -----------------------------------------------------------------------------------------------------
export const classOfKey = (key) => classes.value.find((one) => one.place === key - 1);

// A class by its name; a new one has the lowest place that is free, as the server gives it.
function classNamed(name) {
  const known = classes.value.find((one) => one.name === name);
  if (known) return known;
  const taken = new Set(classes.value.map((one) => one.place));
  let place = 0;
  while (taken.has(place)) place++;
  return { name, place, rows: 0 };
}

// Give what is meant ({ rows, spans, group, text }) a class, a name that was typed, or nothing ("").
export function label(what, { text, rows, row, ...rest }) {
  const own = typeof what === "string" ? (what ? classNamed(what) : null) : what;
  const late = () => (own?.id ? { class: own.id } : { label: own?.name ?? "" });
  return act("label", { ...rest, ...(rows && { rows }) }, { late, text: `${text}: ${own ? own.name : "take the label off"}`, rows, place: own ? own.place : -1, row: row ?? (rows?.length === 1 ? rows[0] : -1), fresh: own && !own.id ? own : null });
}

// The latest act that stands when those on their way are done; it may be one of them.
function top(kind) {
  const stacks = { undo: [...(facts.value.undo ?? [])], redo: [...(facts.value.redo ?? [])] };
  for (const name of ["undo", "redo"]) stacks[name] = stacks[name].reverse().map(([revision, title]) => ({ revision, text: title }));
  for (const one of acts.value) {
    if (one.name === "groups") continue;
    if (one.kind === "undo" || one.kind === "redo") {
      const moved = stacks[one.kind].pop();
      if (moved) stacks[one.kind === "undo" ? "redo" : "undo"].push(moved);
    } else {
      stacks.undo.push(one);
      stacks.redo = [];
    }
  }
  return stacks[kind].pop();
}

export function turn(kind) {
  const on = top(kind);
  if (!on) return say(`There is nothing to ${kind}.`);
  return act(kind, {}, { text: on.text, late: () => ({ act: on.revision }), on });
}

export const rename = (one, name) => act("rename", { class: one.id, name }, { text: `rename ${one.name} to ${name}` });
export const removeClass = (one) => act("remove", { class: one.id }, { text: `remove the class ${one.name}` });
export const moveEdge = (part, to) => act("move", { event: part.id, start: to.start, stop: to.stop }, { text: `move an edge of ${part.label}` });

// -- acts on groups -----------------------------------------------------------------------------------------------------
export const groupsBusy = computed(() => acts.value.some((one) => one.name === "groups" && one.given.action !== "name"));

export const changeGroups = (given, text) => act("groups", given, { text });

export async function nameGroup(id, name) {
  const known = facts.value.group.groups.find((one) => one.id === id)?.name;
  const answer = !name.trim() || name === known ? true : await act("groups", { action: "name", groups: [id], name }, { text: `call a group ${name}` });
  if (answer && (typed.value[id] ?? "").trim() === name.trim()) {
    const { [id]: done, ...others } = typed.value;
    typed.value = others;
  }
}

Object.assign(window, { halpActs: acts, halpRefused: refused, halpLabels: labelValues, halpClient: client }); // what tests look at

addEventListener("beforeunload", (event) => acts.value.length && event.preventDefault());
