// The page: a map, panels beside it, a timeline below, and the keyboard.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { effect } from "@preact/signals";
import { acts, label, moveEdge, refused, turn } from "./acts.js";
import { api, isStatic } from "./api.js";
import { Camera } from "./camera.jsx";
import { DIAMOND, MARKS, css, ramp } from "./colours.js";
import { ScatterMap, categoryNames } from "./map.js";
import { Dialog, clockText, inStep, rowsText, spanText } from "./parts.jsx";
import { barsFigure, mapFigure, save } from "./figure.js";
import { Categories, Icon, IconButton, Stage } from "./stage.jsx";
import { Compare, Groups, Label, Method, Similar, Watch, Wide } from "./panels.jsx";
import { SPEEDS } from "./playing.js";
import { Timeline } from "./timeline.js";
import * as s from "./state.js";

// What the page says about the collection, always in sight.
function Warnings() {
  const { warnings = [] } = s.facts.value;
  if (!warnings.length) return null;
  return (
    <details class="warnings">
      <summary>{warnings.length > 1 ? `${warnings.length} notes about these recordings: ` : "Note: "}{warnings[0]}</summary>
      <ul>{warnings.map((text) => <li key={text}>{text}</li>)}</ul>
    </details>
  );
}

const PANELS = { watch: ["Watch", Watch], similar: ["Similar", Similar], label: ["Label", Label], groups: ["Groups", Groups], compare: ["Compare", Compare], method: ["Method", Method], camera: ["Camera", Camera] };
const MAPS = { pca: ["distances", "far apart on the map means unlike", "principal components"], tsne: ["neighbours", "what moves alike lies together; how far groups are apart means little", "t-SNE"], umap: ["UMAP", "neighbours, and more of the whole; the first time takes a while", "UMAP"] };
let map = null;

// -- top --------------------------------------------------------------------------------------------------------------
function Find() {
  const [hits, setHits] = useState([]);
  const [place, setPlace] = useState(0);
  const turn = useRef(0);
  const type = async (event) => {
    const text = event.currentTarget.value.trim();
    const number = ++turn.current;
    const answer = text ? await s.attempt(() => api.get("find", { text })) : [];
    if (number === turn.current) {
      setHits((answer ?? []).slice(0, 12));
      setPlace(0);
    }
  };
  const go = (hit) => {
    setHits([]);
    Object.assign(document.getElementById("find"), { value: "" }).blur(); // keys mean the movement from now on
    s.look(hit.row);
  };
  const key = (event) => {
    if (event.key === "Escape") setHits([]);
    if (!hits.length) return;
    if (event.key === "ArrowDown") setPlace((place + 1) % hits.length);
    else if (event.key === "ArrowUp") setPlace((place + hits.length - 1) % hits.length);
    else if (event.key === "Enter") go(hits[place]);
    else return;
    event.preventDefault();
  };
  return (
    <div class="find">
      <input id="find" type="search" role="combobox" aria-label="find a recording by name" aria-expanded={hits.length > 0} aria-controls="find-list" aria-activedescendant={hits.length ? `find-${place}` : undefined} placeholder="Find by name  /" onInput={type} onKeyDown={key} onBlur={() => setTimeout(() => setHits([]), 150)} autocomplete="off" />
      <ul id="find-list" role="listbox" aria-label="recordings" hidden={!hits.length}>
        {hits.map((hit, i) => <li key={hit.row} id={`find-${i}`} role="option" aria-selected={i === place} onMouseDown={() => go(hit)}>{hit.name}</li>)}
      </ul>
    </div>
  );
}

function Top() {
  const state = s.facts.value;
  const ready = (name) => !((name === "group" && !state.group) || ((name === "prediction" || name === "confidence") && !state.few) || (name === "label" && !s.classes.value.length));
  return (
    <header class="top">
      <div class="brand"><b>halp</b><h1 title={state.source}>{state.source}</h1><span class="soft count">{state.rows.toLocaleString()} {state.window ? `windows of ${state.window} s` : "movements"}</span></div>
      <Find />
      <label class="field">Colour
        <select value={s.colourBy.value ?? ""} onChange={(event) => { s.asked.colour = true; s.paintBy(event.currentTarget.value); }}>
          {state.columns.filter(ready).map((name) => <option key={name} value={name}>{s.titleOf(name)}</option>)}
        </select>
      </label>
      <span class="segmented" role="group" aria-label="map">
        {Object.entries(MAPS).filter(([name]) => name !== "umap" || (isStatic ? state.maps.includes(name) : s.researcher.value)).map(([name, [title, words, method]]) => <button type="button" key={name} aria-pressed={s.method.value === name} disabled={name !== "umap" && !state.maps.includes(name)} title={s.researcher.value ? `${words} (${method})` : words} onClick={() => s.layOut(name)}>{title}</button>)}
      </span>
      <IconButton icon="help" label="help and settings (?)" onClick={() => (s.help.value = true)} />
    </header>
  );
}

// -- map --------------------------------------------------------------------------------------------------------------
function useMap(points, over) {
  useEffect(() => {
    map = new ScatterMap(points.current, over.current, {
      focus: (row, event) => (event.altKey ? s.compareWith(row) : s.look(row)),
      hover: (row, x, y) => (s.hover.value = row >= 0 ? { row, x, y } : null),
      choose: (rows) => s.choose(rows),
    });
    window.halpMap = map;
    const ends = [
      effect(() => { if (s.places.value) map.setPlaces(s.places.value); }),
      effect(() => {
        if (!s.column.value || !s.facts.value.rows) return;
        const [colours, shapes, range] = s.pointColours();
        map.setColours(colours, shapes);
        map.range = range;
      }),
      effect(() => map.setChosen(s.chosen.value)),
      effect(() => { map.mode = s.tool.value; }),
      effect(() => map.setMarks({ focus: s.focus.value, hover: s.hover.value?.row })),
      effect(() => map.setMarks({ rows: exampleMarks() })),
      effect(() => map.setMarks(s.panel.value === "method" && s.places.value ? positiveMarks() : { lines: [], spots: [] })),
      effect(() => map.setMarks({ words: s.places.value ? names() : [] })),
      // what tests and pictures wait for: the map is there and has what it draws
      effect(() => { document.documentElement.dataset.ready = String(Boolean(s.places.value && s.column.value)); }),
    ];
    // what the legend covers is no place for points
    const legend = new ResizeObserver(([entry]) => map.setCovered(entry.target.open ? entry.target.offsetLeft + entry.target.offsetWidth : 0, points.current.clientHeight - entry.target.offsetTop));
    const look = effect(() => { s.column.value; requestAnimationFrame(() => { const own = points.current?.parentElement.querySelector(".legend"); if (own) legend.observe(own); }); });
    return () => {
      [...ends, look].forEach((end) => end());
      legend.disconnect();
      map.end();
    };
  }, []);
}

const own = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function exampleMarks() {
  const marks = [];
  if (s.panel.value === "similar") {
    for (const hit of s.found.value?.hits.slice(0, 24) ?? []) marks.push([hit.row, own("--soft"), ""]);
    for (const row of s.yes.value) marks.push([row, own("--good"), "✓"]);
    for (const row of s.no.value) marks.push([row, own("--bad"), "✗"]);
  }
  if (s.panel.value === "compare" && s.other.value >= 0) marks.push([s.other.value, own("--heat"), ""]);
  return marks;
}

// Made-up movements between the real ones that they are most like.
function positiveMarks() {
  const answer = s.understood.value;
  if (!answer?.arrays) return { lines: [], spots: [] };
  const places = s.places.value;
  const middle = (rows, weights) => {
    let [x, y, sum] = [0, 0, 0];
    rows.forEach((row, i) => {
      const weight = Math.exp(12 * (weights[i] - weights[0]));
      x += weight * places[2 * row];
      y += weight * places[2 * row + 1];
      sum += weight;
    });
    return [x / sum, y / sum];
  };
  const from = [places[2 * answer.row], places[2 * answer.row + 1]];
  const [lines, spots] = [[], []];
  const { near, nearness, keep, typical, typicality } = answer.arrays;
  const [width, wide] = [near.shape[1], typical.shape[1]];
  const found = Array.from(keep.keys(), (i) => middle([...near.subarray(i * width, (i + 1) * width)], nearness.subarray(i * width, (i + 1) * width)));
  for (const kept of [1, 0]) { // those that are left out lie on top
    found.forEach((at, i) => {
      if (keep[i] !== kept) return;
      const colour = own(kept ? "--good" : "--bad");
      lines.push([from, at, colour + "55"]);
      spots.push([...at, colour, !kept]);
    });
  }
  for (let i = 0; i < typical.shape[0]; i++) spots.push([...middle([...typical.subarray(i * wide, (i + 1) * wide)], typicality.subarray(i * wide, (i + 1) * wide)), own(i === answer.closest ? "--accent" : "--soft"), false, DIAMOND]);
  if (s.positive.value >= 0) spots.push([...found[s.positive.value], own("--ink"), true, 0, 7]);
  return { lines, spots };
}

// Names of recordings without what all of them begin with.
const shownNames = (title, categories) => (title === "recording" ? categories.map(s.shortName) : categories);

function names() {
  const { categories, values, title } = s.column.value ?? {};
  if (!categories || !values || categories.length > 30 || s.colourBy.value === "subject" || s.colourBy.value === "camera") return [];
  return categoryNames(shownNames(title, categories), values, s.places.value, s.passes);
}

function Legend() {
  const { categories, values, title } = s.column.value ?? {};
  if (!values) return null;
  if (!categories) {
    const [low, high] = map?.range ?? s.pointColours()[2] ?? [0, 1];
    const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => css(ramp(share))).join(", ");
    return <details class="legend" open><summary>{s.titleOf(title)}</summary><div class="ramp" style={{ background: `linear-gradient(to right, ${stops})` }} /><div class="between"><span>{s.numberText(title, low)}</span><span>{s.numberText(title, high)}</span></div><Filtered /></details>;
  }
  const named = categories.filter(Boolean).length;
  return (
    <details class="legend" open={innerWidth > 720}>
      <summary>{s.titleOf(title)}</summary>
      <Categories categories={shownNames(title, categories)} values={values} hidden={s.hidden} />
      <Filtered />
      {!isStatic && !["label", "group", "prediction"].includes(title) && named > 1 && named <= MARKS && <button type="button" class="link" onClick={() => labelBy(categories, values, title)}>use as labels</button>}
    </details>
  );
}

// Filters of other columns, and what to do with what they let through.
function Filtered() {
  if (!s.filtering.value) return null;
  return (
    <>
      {s.filters.value.map((one) => {
        const names = one.categories.filter((_, place) => !one.hidden.has(place));
        return <p key={one.name} class="small">only {s.titleOf(one.name)}: <b>{names.slice(0, 3).join(", ") || "without"}{names.length > 3 && ", …"}</b> <button type="button" class="link" aria-label={`show every ${s.titleOf(one.name)}`} onClick={() => s.letGo(one.name)}>show all</button></p>;
      })}
      <button type="button" class="link" onClick={() => s.choose(s.passing(), "what the filter shows")}>choose these {s.passing().length.toLocaleString()}</button>
    </>
  );
}

// Every category of a column becomes a class, its movements get the label; what is labelled already and what a filter hides stays as it is.
function labelBy(categories, values, title) {
  const rows = s.passing().filter((row) => (s.labelValues.value?.[row] ?? -1) < 0);
  let given = 0;
  categories.forEach((name, place) => {
    const own = rows.filter((row) => values[row] === place);
    given += own.length;
    if (name && own.length) label(name, { rows: own, text: rowsText(own.length) });
  });
  s.say(given ? `${rowsText(given)}: labels from ${title}; undo takes back one class at a time` : "All of these have labels already.");
}

function HoverCard() {
  const { value } = s.hover;
  const [clip, setClip] = useState(null);
  useEffect(() => {
    let there = true;
    setClip(null);
    if (value) s.clipOf(value.row).then((one) => there && setClip(one), () => {});
    return () => (there = false);
  }, [value?.row]);
  if (!value || !clip) return null;
  const [left, top] = [Math.min(value.x + 16, innerWidth - 196), Math.min(value.y + 16, innerHeight - 240)];
  return (
    <div class="hover-card" style={{ left: `${left}px`, top: `${top}px` }} data-row={value.row}>
      <Stage clip={clip} frame={inStep} label={clip.name} turn={false} />
      <b>{clip.name}</b>
      <span class="soft">{spanText(clip)}{valueText(value.row)}</span>
    </div>
  );
}

function valueText(row) {
  const { categories, values, title } = s.column.value ?? {};
  if (!values) return "";
  if (categories) return values[row] >= 0 ? `, ${categories[values[row]]}` : "";
  return Number.isFinite(values[row]) ? `, ${s.titleOf(title)} ${s.numberText(title, values[row])}` : "";
}

function MapPane() {
  const [points, over] = [useRef(), useRef()];
  useMap(points, over);
  const key = (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (way && event.target === over.current) {
      s.look(s.focus.value < 0 ? 0 : map.step(s.focus.value, ...way), true);
      event.preventDefault();
      event.stopPropagation();
    } else if (event.key === "+" || event.key === "-") map.zoomAt(points.current.width / 2, points.current.height / 2, event.key === "+" ? 1.3 : 1 / 1.3);
  };
  const { progress } = s.facts.value;
  return (
    <section class={s.panel.value === "method" && s.understood.value?.arrays ? "map-pane dim" : "map-pane"} aria-label="map of all movements" onKeyDown={key}>
      <canvas ref={points} class="points" aria-hidden="true" />
      <canvas ref={over} class="over" tabIndex={0} role="application" aria-label={`Map of ${s.facts.value.rows} movements. Arrow keys walk from one to its neighbour, plus and minus zoom.`} />
      <div class="tools" role="toolbar" aria-label="map tools">
        <IconButton icon="pan" label="move the map" pressed={s.tool.value === "pan"} onClick={() => (s.tool.value = "pan")} />
        <IconButton icon="lasso" label="lasso: draw around movements (l, or hold shift)" pressed={s.tool.value === "lasso"} onClick={() => (s.tool.value = "lasso")} />
        <IconButton icon="fit" label="show everything (double click)" onClick={() => map.fit()} />
        <Figures />
      </div>
      <Legend />
      {(progress?.title || s.laying.value) && !isStatic && <div class="working" role="status">{progress?.title || "laying out the map"} …</div>}
      <HoverCard />
    </section>
  );
}

// -- figures and links -------------------------------------------------------------------------------------------------
const FIGURES = {
  map: () => mapFigure(map, s.column.value, s.hidden.value),
  timeline: () => {
    const { name, tiers } = s.line.value;
    const rows = [["human", "labels"], ["model", "model"], ["group", "groups"]].filter(([tier]) => tiers[tier]?.length).map(([tier, title]) => [title, tiers[tier]]);
    const groups = (s.facts.value.group?.groups ?? []).map((one) => one.name);
    return rows.length ? barsFigure(rows, s.facts.value.unit, (label, row) => (row === "groups" ? groups : window.halpLine.labels).indexOf(label)) : s.say(`There is nothing on the timeline of ${name} yet.`);
  },
  ethogram: async () => {
    const events = await s.attempt(() => api.get("events"));
    const rows = new Map();
    for (const one of events ?? []) rows.set(one.recording, [...(rows.get(one.recording) ?? []), one]);
    return rows.size ? barsFigure([...rows].slice(0, 60).map(([name, bars]) => [s.shortName(name), bars]), s.facts.value.unit, (label) => s.labelNames.value.indexOf(label)) : s.say("There are no labels yet.");
  },
};

const FIGURE_NAMES = { map: "the map", timeline: "this timeline", ethogram: "all labels" };

function Figures() {
  const write = async (name, kind) => {
    const markup = await FIGURES[name]();
    if (typeof markup === "string") await save(markup, `${s.facts.value.source}.${name}`, kind);
  };
  const copy = async () => {
    const { origin, pathname, search } = location;
    const link = `${origin}${pathname}${search}#${s.viewText({ zoom: map.zoom.toFixed(3), x: map.centre[0].toFixed(4), y: map.centre[1].toFixed(4) })}`;
    history.replaceState(null, "", link);
    await navigator.clipboard?.writeText(link).catch(() => {});
    s.say("The address of this page now opens the same view, as long as the explorer runs; it is in the clipboard.");
  };
  return (
    <details class="figures">
      <summary class="icon-button" title="save a figure, or a link to this view" aria-label="save a figure, or a link to this view"><Icon name="save" /></summary>
      <div>
        {Object.keys(FIGURES).filter((name) => (name === "map" || !isStatic) && (name !== "timeline" || s.line.value)).map((name) => <p key={name}>{FIGURE_NAMES[name]} <button type="button" onClick={() => write(name, "svg")}>SVG</button> <button type="button" onClick={() => write(name, "png")}>PNG</button></p>)}
        {!isStatic && <button type="button" onClick={copy}>Link to this view</button>}
      </div>
    </details>
  );
}

// -- timeline ---------------------------------------------------------------------------------------------------------
function TimePane() {
  const ref = useRef();
  const line = useRef(null);
  useEffect(() => {
    line.current = new Timeline(ref.current, {
      seek: (time, keep) => { s.seek(time, keep); },
      scrub: (time) => { s.playing.value = false; s.time.value = time; },
      span: (span) => {
        s.span.value = { ...span, recording: line.current.facts.recording };
        s.loop.value = [span.start, span.stop];
        s.time.value = span.start;
      },
      move: moveEdge,
    });
    window.halpLine = line.current;
    const ends = [
      effect(() => {
        const answer = s.line.value;
        if (!answer) return;
        const labels = s.labelNames.value;
        const groups = (s.facts.value.group?.groups ?? []).map((one) => one.name);
        line.current.show(answer, [...labels, ...(answer.classes ?? []).filter((name) => !labels.includes(name))], groups);
      }),
      effect(() => line.current.setTime(s.time.value)),
      effect(() => line.current.setSpan(s.span.value)),
    ];
    return () => { ends.forEach((end) => end()); line.current.end(); };
  }, []);
  const answer = s.line.value;
  const at = (factor) => line.current.zoom(s.time.value, factor);
  return (
    <section class="time-pane" aria-label="timeline" hidden={!answer}>
      <div class="time-head">
        <b>{answer?.name}</b>
        <span class="soft">{answer ? clockText(s.time.value) : ""}</span>
        <span class="grow" />
        {s.span.value && !isStatic && <><span class="soft">{clockText(s.span.value.start)} – {clockText(s.span.value.stop)}</span>
          {s.span.value.tier === "human" && <button type="button" class="link" onClick={() => s.giveLabel("")}>remove label</button>}
          <button type="button" class="link" onClick={s.searchSpan}>find similar</button>
          <button type="button" class="link" onClick={() => { s.span.value = null; }}>clear</button></>}
        {!s.span.value && !isStatic && answer && <><button type="button" class="link" onClick={() => s.drawSpan(answer)}>whole recording</button>
          <span class="soft hint">or drag to draw a span, then {s.classes.value.length ? "press the number of a class" : "type a label"}</span></>}
        <button type="button" class="link" onClick={() => at(0.5)} aria-label="zoom into the timeline">+</button>
        <button type="button" class="link" onClick={() => at(2)} aria-label="zoom out of the timeline">−</button>
      </div>
      <canvas ref={ref} class="line" tabIndex={0} role="slider" aria-label="time in the recording" aria-valuemin={answer?.start ?? 0} aria-valuemax={answer?.stop ?? 1} aria-valuenow={Math.round(s.time.value * 10) / 10} />
    </section>
  );
}

// -- keyboard ---------------------------------------------------------------------------------------------------------
const KEYS = [["space", "play, pause"], ["← →", "one frame back, on"], ["[ ]", "slower, faster"], ["1 – 9", "give the class to what is chosen"], ["Backspace", "take the label off"], ["u, r", "undo, redo"], ["n", "next movement to label; one left without a label is not proposed again"], ["l", "lasso"], ["i, o", "a span begins, ends at this moment of the recording"], ["f", "find similar"], ["t", "trail"], ["/", "find by name"], ["Esc", "let go of everything"], ["Alt + click", "compare with a point of the map"]];

// Keys that a control needs for itself; all others mean the movement, wherever the keyboard is.
function keeps(control, key) {
  if (!control) return false;
  if (control.matches("[type=checkbox]")) return key === " ";
  if (control.matches("[type=range], select")) return /^(Arrow|Home|End|Page|Enter$| $)/.test(key);
  return true;
}

function onKey(event) {
  const open = s.help.value || s.wide.value;
  if (event.ctrlKey || event.metaKey || event.altKey || keeps(event.target.closest("input, select, textarea"), event.key)) {
    if (event.key === "Escape" && !open) event.target.blur();
    return;
  }
  const state = s.facts.value;
  if (!state?.rows) return;
  if (open) {
    if (event.key === "Escape") s.closeWindows();
    else if (event.key.length === 1 && event.key !== " ") s.say("Close the window first (Esc).");
    return;
  }
  const acts = {
    " ": () => (s.playing.value = !s.playing.value),
    ArrowLeft: () => s.step(event.shiftKey ? -10 : -1),
    ArrowRight: () => s.step(event.shiftKey ? 10 : 1),
    "[": () => pace(-1),
    "]": () => pace(1),
    u: () => turn("undo"),
    r: () => turn("redo"),
    Backspace: () => s.giveLabel(""),
    l: () => (s.tool.value = s.tool.value === "lasso" ? "pan" : "lasso"),
    f: () => (s.span.value ? s.searchSpan() : s.focus.value >= 0 ? s.searchLike([s.focus.value]) : s.say("Choose a movement first.")),
    i: () => s.cut("start"),
    o: () => s.cut("stop"),
    t: () => (s.trail.value = !s.trail.value),
    n: s.goNext,
    "/": () => document.getElementById("find").focus(),
    "?": () => (s.help.value = true),
    Escape: () => { s.choose([]); s.span.value = null; s.hover.value = null; document.querySelector(".figures").open = false; },
  };
  if (isStatic && /^[0-9urn]$|^Backspace$/.test(event.key)) s.say("This is a copy to look at: labels are given in halp explore.");
  else if (/^[0-9]$/.test(event.key)) s.giveKey(Number(event.key));
  else if (event.key === " " && event.target.closest("button, summary")) return;
  else if (acts[event.key]) acts[event.key]();
  else if (event.key.length === 1) return s.say(`The key ${event.key} has no meaning here; ? shows those that have.`);
  else return;
  event.preventDefault();
}

function pace(way) {
  const speed = SPEEDS[SPEEDS.indexOf(s.speed.value) + way];
  if (speed) s.speed.value = speed;
  else s.say(way > 0 ? "It does not play faster." : "It does not play slower.");
}

function Help() {
  return (
    <Dialog open={s.help.value} aria-label="help and settings">
      <h2>Keyboard <button type="button" class="link" onClick={s.closeWindows}>close</button></h2>
      <dl class="keys">{KEYS.map(([key, text]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{text}</dd></div>)}</dl>
      <p class="soft">Every point of the map is a movement; movements that are alike lie near each other. Nothing leaves this machine.</p>
      {!isStatic && <h2>Settings</h2>}
      {!isStatic && <p><label class="check"><input type="checkbox" checked={s.facts.value.researcher} onChange={(event) => s.keep({ researcher: event.currentTarget.checked })} /> for researchers: show the panel Method, UMAP and the names of algorithms</label></p>}
      {!isStatic && <p class="soft">Where the names of recordings say what is in them, give their parts names: <code>{s.facts.value.example}</code> may be <code>{"{set}_{action}_{style}_{n}"}</code>. Each part can then colour the map, filter it and become labels.</p>}
      {!isStatic && <form class="acts" onSubmit={(event) => { event.preventDefault(); s.keep({ pattern: event.currentTarget.elements.pattern.value }); }}><label class="check">Names of recordings are <input name="pattern" key={s.facts.value.pattern} defaultValue={s.facts.value.pattern} placeholder="{set}_{action}_{style}_{n}" maxLength={200} /></label><button type="submit">Use as columns</button></form>}
    </Dialog>
  );
}

// -- all of it --------------------------------------------------------------------------------------------------------
function Side() {
  const Panel = PANELS[s.panel.value][1];
  const names = Object.keys(PANELS).filter((name) => (name !== "method" || s.researcher.value) && (!isStatic || !["label", "compare", "camera"].includes(name)));
  const move = (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const next = names[(names.indexOf(s.panel.value) + way + names.length) % names.length];
    s.panel.value = next;
    document.getElementById(`tab-${next}`).focus();
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <aside class="side">
      <div class="tabs" role="tablist" aria-label="panels" onKeyDown={move}>
        {names.map((name) => <button type="button" key={name} id={`tab-${name}`} role="tab" aria-selected={s.panel.value === name} aria-controls="panel" tabIndex={s.panel.value === name ? 0 : -1} onClick={() => (s.panel.value = name)}>{PANELS[name][0]}</button>)}
      </div>
      <div class="panel" id="panel" role="tabpanel" tabIndex={0} aria-labelledby={`tab-${s.panel.value}`}><Panel /></div>
    </aside>
  );
}

function Loading() {
  const state = s.facts.value;
  const { title, done, total, error } = state?.progress ?? {};
  return (
    <main class="loading">
      <div>
        <h1>{state?.source ?? "halp explore"}</h1>
        {error ? <p class="error" role="alert">{error}</p> : (
          <>
            <p role="status">{!state ? "connecting" : `${{ embedding: "looking at every movement", prepare: "reading the recordings", reading: "reading the recordings" }[title] ?? title}`} …</p>
            <progress max={total || 1} value={total ? done : undefined} aria-label="progress" />
            <p class="soft">{total > 0 && `${done.toLocaleString()} of ${total.toLocaleString()}; `}{title === "reading" || title === "embedding" ? "this is done once, as long as the files stay as they are" : "the first time takes a while"}</p>
            {s.preview.value && <PreviewMap />}
          </>
        )}
      </div>
    </main>
  );
}

// Movements that are looked at already, before all are: names appear where the pointer rests.
function PreviewMap() {
  const [points, over] = [useRef(), useRef()];
  const [name, setName] = useState("");
  useEffect(() => {
    const own = new ScatterMap(points.current, over.current, { focus: () => {}, hover: (row) => setName(row < 0 ? "" : s.preview.value.names[s.preview.value.arrays.recording[row]]), choose: () => {} }, true);
    window.halpPreview = own;
    const end = effect(() => s.preview.value && own.setPlaces(s.preview.value.arrays.places, false));
    own.fit();
    return () => { end(); own.end(); };
  }, []);
  return (
    <figure class="preview">
      <div><canvas ref={points} aria-hidden="true" /><canvas ref={over} role="img" aria-label={`map of the first ${s.preview.value.arrays.recording.length} movements`} /></div>
      <figcaption class="soft">{name || `the first ${s.preview.value.arrays.recording.length.toLocaleString()} movements; the others follow`}</figcaption>
    </figure>
  );
}

// What the server did not take: told until somebody has read it.
function Refused() {
  if (!refused.value.length) return null;
  const close = (number) => (refused.value = refused.value.filter((one) => one.number !== number));
  return (
    <div class="refused" role="alert">
      {refused.value.slice(0, 3).map((one) => (
        <p key={one.number}><b>Not done</b> – {one.text}: {one.reason}.
          {one.row >= 0 && <button type="button" class="link" onClick={() => { close(one.number); s.choose([]); s.look(one.row, true); }}>show</button>}
          <button type="button" class="link" onClick={() => close(one.number)}>close</button></p>
      ))}
      {refused.value.length > 3 && <p>{refused.value.length - 3} more <button type="button" class="link" onClick={() => (refused.value = [])}>close all</button></p>}
    </div>
  );
}

function App() {
  if (s.problem.value && !s.facts.value?.rows) return <main class="loading"><div><h1>halp explore</h1><p class="error" role="alert">{s.problem.value}</p></div></main>;
  if (!s.facts.value?.rows) return <Loading />;
  return (
    <>
      <Top />
      <Warnings />
      <main class="work"><MapPane /><Side /></main>
      <TimePane />
      <Help />
      <Wide />
      <div class="notice" role="status" aria-live="polite">{s.notice.value}</div>
      <Refused />
      {s.problem.value && <div class="gone" role="alert">{s.problem.value}{acts.value.length > 0 && ` Not kept yet: ${acts.value.slice(0, 5).map((one) => one.text).join("; ")}${acts.value.length > 5 ? ` and ${acts.value.length - 5} more` : ""}.`}</div>}
    </>
  );
}

render(<App />, document.getElementById("app"));
document.addEventListener("keydown", onKey);
s.start().then(() => {
  const { zoom, x, y } = s.asked.view ?? {};
  if (zoom && map) {
    Object.assign(map, { zoom: Number(zoom), centre: [Number(x), Number(y)] });
    map.draw();
  }
});
