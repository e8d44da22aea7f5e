// The player's parts, for the explorer and for single pages: a moving person, what plays it, buttons with icons.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { MARKS, SHAPES, colourOf, shapeOf } from "./colours.js";
import { SPEEDS, follow, stages, trail, view } from "./playing.js";
import { paint, readColours } from "./skeleton.js";

// A name that breaks where its parts end.
export const broken = (title) => title.split(/(?<=[_\-/.,@ ])/).flatMap((part, i) => (i ? [<wbr key={i} />, part] : [part]));

const ICONS = {
  play: "M4 2.5l9 5.5-9 5.5z", pause: "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z", back: "M11 2.5L4.5 8 11 13.5zM3 2.5h1.6v11H3z", next: "M5 2.5L11.5 8 5 13.5zM11.4 2.5H13v11h-1.6z",
  yes: "M2.5 8.5l3.5 3.5 7.5-8", no: "M3.5 3.5l9 9M12.5 3.5l-9 9", pan: "M8 1.5v13M1.5 8h13M8 1.5L6 3.5M8 1.5l2 2M8 14.5l-2-2M8 14.5l2-2M1.5 8l2-2M1.5 8l2 2M14.5 8l-2-2M14.5 8l-2 2",
  lasso: "M8 3C4.4 3 2 4.6 2 6.8s2.6 3.7 6 3.7 6-1.5 6-3.7S11.6 3 8 3zM5 10.4c-1.4.6-1.8 1.6-.9 2.3.8.6 1.9.2 2 1.3", fit: "M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4", undo: "M6 3L2.5 6.5 6 10M2.5 6.5H10a3.5 3.5 0 010 7H7",
  save: "M8 2v8M4.8 7L8 10.2 11.2 7M2.5 13.5h11", close: "M4 4l8 8M12 4l-8 8", help: "M6 6a2 2 0 113 1.7c-.7.4-1 .8-1 1.8M8 12.2v.3",
};
const FILLED = new Set(["play", "pause", "back", "next"]);

export const Icon = ({ name }) => (
  <svg viewBox="0 0 16 16" aria-hidden="true" class={FILLED.has(name) ? "icon filled" : "icon"}><path d={ICONS[name]} /></svg>
);

export const IconButton = ({ icon, label, pressed, ...rest }) => (
  <button type="button" class="icon-button" title={label} aria-label={label} aria-pressed={pressed} {...rest}><Icon name={icon} /></button>
);

// The mark of a category, or a dot of some colour.
export const Dot = ({ place = -1, colour }) => <svg class="dot" viewBox="0 0 16 16" aria-hidden="true" data-shape={shapeOf(place)}><path d={SHAPES[shapeOf(place)]} style={{ fill: colour ?? colourOf(place) }} /></svg>;

export const Ring = ({ colour }) => <svg class="dot" viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="5.5" style={{ fill: "none", stroke: colour, strokeWidth: 2.5 }} /></svg>;

let colours = null;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (colours = null));

// A canvas that is painted whenever its frame or the point of view changes. frame() says which one.
export function Stage({ clip, frame, body, label, heat, main = false, turn = true }) {
  const ref = useRef();
  const latest = useRef();
  latest.current = { clip, frame, body, heat, main };
  useEffect(() => {
    const canvas = ref.current;
    let shown = "";
    let visible = true;
    const size = () => {
      const dense = Math.min(window.devicePixelRatio || 1, 2);
      canvas.width = Math.max(1, Math.round(canvas.clientWidth * dense));
      canvas.height = Math.max(1, Math.round(canvas.clientHeight * dense));
      shown = "";
    };
    const watch = new ResizeObserver(size);
    watch.observe(canvas);
    const seen = new IntersectionObserver((entries) => (visible = entries[entries.length - 1].isIntersecting));
    seen.observe(canvas);
    const stage = () => {
      const { clip, frame, body, heat, main } = latest.current;
      if (!clip || !visible) return;
      colours ??= readColours(document.documentElement); // a canvas may have left the page already
      const number = Math.max(0, Math.min(clip.shape[0] - 1, frame(clip)));
      const key = [number, view.yaw, view.pitch, view.zoom, trail.value, follow.value, clip.row, clip.shape[1], clip.reach, canvas.width, clip.at ? Boolean(clip.at(number)) : "", colours.left, heat ? heat(-1, number) : ""].join();
      if (key === shown) return;
      shown = key;
      paint(canvas, clip, number, main ? view : { ...view, zoom: 1 }, body ?? clip.body, colours, {
        ghosts: trail.value ? 5 : 0, follow: follow.value, reach: clip.reach, heat: heat ? (joint) => heat(joint, number) : null,
      });
      canvas.dataset.frame = number;
    };
    stages.add(stage);
    return () => {
      stages.delete(stage);
      watch.disconnect();
      seen.disconnect();
    };
  }, []);
  return <canvas ref={ref} class="stage" role="img" aria-label={label} tabIndex={turn ? 0 : undefined} {...(turn ? turning() : {})} />;
}

function turning() {
  let last = null;
  const turn = (yaw, pitch) => {
    view.yaw += yaw;
    view.pitch = Math.max(-1.5, Math.min(1.5, view.pitch + pitch));
  };
  return {
    onPointerDown(event) {
      last = event;
      event.currentTarget.setPointerCapture(event.pointerId);
    },
    onPointerMove(event) {
      if (!last) return;
      turn((event.clientX - last.clientX) * 0.012, (event.clientY - last.clientY) * 0.008);
      last = event;
    },
    onPointerUp: () => (last = null),
    onPointerCancel: () => (last = null),
    onDblClick: () => Object.assign(view, { yaw: 0, pitch: 0, zoom: 1 }),
    onKeyDown(event) {
      const way = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (!way || !event.altKey) return;
      turn(...way);
      event.preventDefault();
      event.stopPropagation();
    },
  };
}

// Back, play, on, where, how fast. step(frames) moves by frames; text says where one is.
export function Controls({ clock, step, text, label = "time" }) {
  const { playing, speed, time, loop } = clock;
  const [low, high] = loop.value ?? [0, 1];
  return (
    <div class="controls" role="group" aria-label="playing">
      <IconButton icon="back" label="one frame back (←)" onClick={() => step(-1)} />
      <IconButton icon={playing.value ? "pause" : "play"} label={playing.value ? "pause (space)" : "play (space)"} onClick={() => (playing.value = !playing.value)} />
      <IconButton icon="next" label="one frame on (→)" onClick={() => step(1)} />
      <input type="range" aria-label={label} min={low} max={high} step="any" value={time.value} onInput={(event) => { playing.value = false; time.value = Number(event.currentTarget.value); }} />
      <output>{text}</output>
      <select aria-label="speed" value={speed.value} onChange={(event) => (speed.value = Number(event.currentTarget.value))}>
        {SPEEDS.map((speed) => <option key={speed} value={speed}>{speed}×</option>)}
      </select>
    </div>
  );
}

// A film in step with a clock that counts its seconds; a browser that cannot play it shows the skeleton alone.
export function Film({ address, clock }) {
  const ref = useRef();
  const [broken, setBroken] = useState(false);
  useEffect(() => {
    const stage = () => {
      const film = ref.current;
      if (!film?.duration) return;
      const [time, playing] = [clock.time.value, clock.playing.value];
      if (playing && film.paused) film.play().catch(() => {});
      if (!playing && !film.paused) film.pause();
      film.playbackRate = clock.speed.value;
      if (!film.seeking && Math.abs(time - film.currentTime) > (playing ? 0.15 : 0.02)) film.currentTime = Math.min(time, film.duration);
    };
    stages.add(stage);
    return () => stages.delete(stage);
  }, []);
  return !broken && <video ref={ref} class="film" src={address} muted playsInline preload="auto" aria-label="the film" onError={() => setBroken(true)} />;
}

// Names of categories with their marks, the most frequent first; a press shows one alone, with shift it takes one out. hidden: a signal with the set of those that are faded.
export function Categories({ categories, values, hidden }) {
  const order = useMemo(() => {
    const counts = new Array(categories.length).fill(0);
    for (const value of values) if (value >= 0) counts[value]++;
    return [...counts.keys()].filter((place) => place < MARKS).sort((a, b) => counts[b] - counts[a]);
  }, [categories, values]);
  const toggle = (event, place) => {
    const now = hidden.value;
    if (event.shiftKey || event.altKey) hidden.value = now.has(place) ? new Set([...now].filter((one) => one !== place)) : new Set([...now, place]);
    else hidden.value = now.size === categories.length && !now.has(place) ? new Set() : new Set([-1, ...categories.keys()].filter((one) => one !== place));
  };
  return (
    <>
      <ul>
        {order.map((place) => <li key={place}><button type="button" aria-pressed={!hidden.value.has(place)} title={`show only ${categories[place]}`} onClick={(event) => toggle(event, place)}><Dot place={place} />{categories[place]}</button></li>)}
      </ul>
      {categories.length > MARKS && <p class="soft others"><Dot />{categories.length - MARKS} others: rest on a point to read its name</p>}
      {hidden.value.size > 0 && <button type="button" class="link" onClick={() => (hidden.value = new Set())}>show all</button>}
    </>
  );
}
