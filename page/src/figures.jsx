// The figures of single pages: clips side by side in step, below them the timeline of a recording, and a map of many.
import { render } from "preact";
import { useLayoutEffect, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { effect, signal } from "@preact/signals";
import { categoryColours, categoryShapes } from "./colours.js";
import { ScatterMap, categoryNames } from "./map.js";
import { Clock, follow, view } from "./playing.js";
import { Categories, Controls, Dot, broken, Film, IconButton, Stage } from "./stage.jsx";
import { Timeline } from "./timeline.js";

follow.value = false; // all of the way that a person goes is in the picture
window.halpView = view;

const moods = { true: "good", false: "bad" };

function unpack(clip, body) {
  const joints = new Int16Array(Uint8Array.from(atob(clip.joints), (letter) => letter.charCodeAt(0)).buffer);
  return { ...clip, joints, body };
}

// A row of clips, the query first; the shorter ones start over while the longest still runs.
function Player({ data, clock }) {
  const [row, setRow] = useState(0);
  const [words, setWords] = useState("");
  const clips = useMemo(() => data.rows[row].map((clip) => unpack(clip, data)), [row]);
  const length = Math.max(...clips.map((clip) => clip.shape[0]));
  useLayoutEffect(() => {
    clock.loop.value = [0, length / data.rate];
    clock.time.value = 0;
  }, [row]);
  const now = () => Math.min(length - 1, Math.floor(clock.time.value * data.rate + 1e-6));
  const step = (frames) => {
    clock.playing.value = false;
    clock.time.value = Math.max(0, Math.min(length - 1, now() + frames)) / data.rate;
  };
  const key = (event) => {
    const act = { " ": () => (clock.playing.value = !clock.playing.value), ArrowLeft: () => step(-1), ArrowRight: () => step(1) }[event.key];
    if (!act || event.target.tagName !== "CANVAS") return;
    act();
    event.preventDefault();
  };
  const titles = data.rows.map((clips) => clips[0].title);
  const fitting = titles.map((_, i) => i).filter((i) => words.toLowerCase().split(/\s+/).every((word) => titles[i].toLowerCase().includes(word)));
  const find = (event) => {
    setWords(event.currentTarget.value);
    const parts = event.currentTarget.value.toLowerCase().split(/\s+/);
    const first = titles.findIndex((title) => parts.every((word) => title.toLowerCase().includes(word)));
    if (first >= 0) setRow(first);
  };
  const turn = (by) => setRow((row + by + titles.length) % titles.length);
  return (
    <div onKeyDown={key}>
      {titles.length > 1 && (
        <div class="chooser">
          <IconButton icon="back" label="previous query" onClick={() => turn(-1)} />
          <select aria-label="query" value={row} onChange={(event) => setRow(Number(event.currentTarget.value))}>
            {fitting.slice(0, 2000).map((i) => <option key={i} value={i}>{`${i + 1}. ${titles[i]}`}</option>)}
          </select>
          <IconButton icon="next" label="next query" onClick={() => turn(1)} />
          {titles.length > 8 && <input type="search" placeholder="find a clip" aria-label="find a clip by its name" aria-invalid={!fitting.length} onInput={find} />}
        </div>
      )}
      <Controls clock={clock} step={step} text={`${now() + 1} / ${length}`} label="frame" />
      <div class={clips.length < 3 ? "cards few" : "cards"}>
        {clips.map((clip, place) => {
          const mood = place ? moods[clip.good] ?? "" : "query";
          const role = clip.role ?? (place ? `neighbour ${place} ${{ good: "✓", bad: "✗" }[mood] ?? ""}` : "query");
          return (
            <div key={`${row}-${place}`} class={`card ${mood}`}>
              <Stage clip={clip} frame={() => now() % clip.shape[0]} label={`${role}: ${clip.title}`} turn={!clip.flat} />
              <div class="caption"><span class="role">{role}</span>{broken(clip.title)}</div>
            </div>
          );
        })}
        {clips.map((clip, place) => clip.film && <Film key={`film-${row}-${place}`} address={clip.film} clock={clock} />)}
      </div>
      <div class="keys">
        {["left", "right", "middle"].map((side) => <span key={side}><Dot colour={`var(--${side})`} />{side}</span>)}
        {data.rows.some((row) => row.some((clip, place) => place && clip.good === true)) && <span><b class="good">✓</b> same class</span>}
        {data.rows.some((row) => row.some((clip, place) => place && clip.good === false)) && <span><b class="bad">✗</b> other class</span>}
        {clips.some((clip) => !clip.flat) && <span>drag to turn, double-click to face the front</span>}
      </div>
    </div>
  );
}

// Segments of the recording that the player before it plays.
function Bar({ data, clock }) {
  const ref = useRef();
  const length = data.stop - data.start;
  const [low, high] = clock.loop.value ?? [0, 1];
  const at = data.start + ((clock.time.value - low) / (high - low)) * length;
  useEffect(() => {
    const seek = (time) => {
      clock.playing.value = false;
      const [low, high] = clock.loop.value;
      clock.time.value = low + ((time - data.start) / length) * (high - low) * 0.999999; // the end belongs to the last frame
    };
    const line = new Timeline(ref.current, { seek });
    line.show({ ...data, plain: true }, data.labels);
    const end = effect(() => line.setTime(data.start + (clock.time.value / clock.loop.value[1]) * length));
    return () => { end(); line.end(); };
  }, []);
  const part = Object.values(data.tiers).flat().find((one) => one.start <= at && at < one.stop);
  const says = part ? `: ${part.label}${part.note ? ` (${part.note})` : ""}` : "";
  return (
    <>
      <canvas ref={ref} class="line" tabIndex={0} role="slider" aria-label="time in the recording" aria-valuemin={data.start} aria-valuemax={data.stop} aria-valuenow={at.toFixed(2)} aria-valuetext={`${at.toFixed(2)} ${data.unit}${says}`} />
      <div class="says">{at.toFixed(2)} {data.unit}{says}</div>
      <div class="keys">{data.labels.map((label, place) => <span key={label}><Dot place={place} />{label}</span>)}{data.faint.map((label) => <span key={label}><Dot place={-1} />{label}</span>)}</div>
    </>
  );
}

// Points that are named where the pointer rests, or the keyboard is.
function PlainMap({ data, hidden }) {
  const [points, over, map] = [useRef(), useRef(), useRef()];
  const [row, setRow] = useState(-1);
  useEffect(() => {
    const focus = (row) => { setRow(row); map.current.setMarks({ focus: row }); };
    map.current = new ScatterMap(points.current, over.current, { focus, hover: (row) => row >= 0 && focus(row) }, true);
    map.current.setPlaces(Float32Array.from(data.places));
    const paint = () => {
      map.current.setColours(categoryColours(data.values, hidden.value, 230), categoryShapes(data.values, data.categories));
      map.current.setMarks({ words: data.categories.length > 30 ? [] : categoryNames(data.categories, data.values, data.places, (row) => !hidden.value.has(data.values[row])) });
    };
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", paint);
    window.halpMap = map.current;
    const end = effect(paint);
    return () => { end(); scheme.removeEventListener("change", paint); map.current.end(); };
  }, []);
  const key = (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    const zoom = { "+": 1.3, "-": 1 / 1.3 }[event.key];
    if (way && data.values.length) map.current.act.focus(row < 0 ? 0 : map.current.step(row, ...way));
    else if (zoom) map.current.zoomAt(points.current.width / 2, points.current.height / 2, zoom);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <div class="ground" onKeyDown={key}>
        <canvas ref={points} aria-hidden="true" />
        <canvas ref={over} tabIndex={0} role="application" aria-label={`Map of ${data.values.length} movements. Arrow keys walk from one to its neighbour, plus and minus zoom.`} />
      </div>
      <div class="says" role="status">{row < 0 ? "Rest on a point to see its name. Drag to move, Ctrl and wheel to zoom, double-click for everything." : [data.names?.[row], data.categories[data.values[row]]].filter(Boolean).join(": ")}</div>
      <div class="keys"><Categories categories={data.categories} values={data.values} hidden={hidden} /></div>
    </>
  );
}

let clock = null;
for (const root of document.querySelectorAll(".halp-player, .halp-timeline, .halp-map")) {
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  if (root.className === "halp-player") {
    clock = new Clock();
    if (data.rows.length) render(<Player data={data} clock={clock} />, root);
    else root.append("no clips to show");
  } else if (root.className === "halp-map") render(<PlainMap data={data} hidden={signal(new Set())} />, root);
  else {
    if (!clock?.loop.value) (clock = new Clock(false)).loop.value = [0, data.stop - data.start];
    render(<Bar data={data} clock={clock} />, root);
  }
}
