// Small parts: rows of the collection as moving pictures, names of classes as buttons.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Dot, Stage, broken } from "./stage.jsx";
import * as s from "./state.js";

export const clockText = (value) => (s.facts.value?.unit === "s" ? `${value.toFixed(value < 100 ? 2 : 1)} s` : `frame ${Math.round(value)}`);
export const { spanText } = s;

// So many rows of the collection, in words; recordings: of how many recordings.
export function rowsText(count, recordings = 0) {
  const { window, long } = s.facts.value;
  const many = `${count.toLocaleString()} ${window ? "window" : "movement"}${count === 1 ? "" : "s"}`;
  return long && recordings ? `${many} of ${recordings.toLocaleString()} recording${recordings === 1 ? "" : "s"}` : many;
}

// A window in front of the page, open before the next key can be pressed. The browser tells of a close later than it
// happens: the window may be open again by then.
export function Dialog({ open, ...rest }) {
  const ref = useRef();
  useLayoutEffect(() => { if (open) ref.current.showModal(); else ref.current.close(); }, [open]);
  return <dialog ref={ref} onClose={() => ref.current.open || s.closeWindows()} {...rest} />;
}

export const inStep = (clip) => Math.floor(s.clock.passed * clip.rate) % clip.shape[0];

// A row of the collection as a small moving picture that can be clicked.
export function Mini({ row, title, note, children, onPick, onReach, mood = "" }) {
  const [clip, setClip] = useState(null);
  useEffect(() => {
    let there = true;
    setClip(null);
    s.clipOf(row).then((one) => there && setClip(one), () => {});
    return () => (there = false);
  }, [row]);
  const name = title ?? clip?.name ?? "";
  const own = s.labelValues.value?.[row] ?? -1;
  return (
    <figure class={`mini ${mood} ${s.focus.value === row ? "is-focus" : ""}`} data-row={row}>
      <button type="button" class="mini-stage" aria-label={`look at ${name}`} onClick={() => (onPick ?? s.look)(row)} onFocus={(event) => event.currentTarget.matches(":focus-visible") && onReach?.(row)}>
        {clip ? <Stage clip={clip} frame={inStep} label={name} turn={false} /> : <span class="skeleton" />}
      </button>
      <figcaption><span class="mini-name" title={name}>{own >= 0 && <Dot place={own} />}{broken(title ?? s.shortName(name))}</span><span class="soft">{[clip && s.facts.value.long && spanText(clip), note].filter(Boolean).join(" · ")}</span></figcaption>
      {children && <div class="mini-acts">{children}</div>}
    </figure>
  );
}

// at: a row that is always on the page and has the keyboard, unless somebody types. Before anything else happens: later, the keyboard
// would be taken from a field that was chosen meanwhile.
export function Grid({ rows, notes, acts, at = -1, onReach, onPick = (row) => s.look(row, true) }) {
  const [first, setFirst] = useState(0);
  useEffect(() => setFirst(0), [rows]);
  const [grid, reached] = [useRef(), useRef(-1)];
  useLayoutEffect(() => { if (rows.includes(at)) setFirst(rows.indexOf(at) - (rows.indexOf(at) % 12)); }, [at]);
  useLayoutEffect(() => {
    const tile = reached.current !== at && grid.current.querySelector(`[data-row="${at}"] .mini-stage`);
    if (at >= 0 && !tile) return;
    reached.current = at;
    if (tile && !document.activeElement.matches("input, select, textarea")) tile.focus();
  }, [at, first]);
  const page = rows.slice(first, first + 12);
  return (
    <>
      <div class="grid" ref={grid}>{page.map((row, i) => <Mini key={row} row={row} note={notes?.[first + i]} onPick={onPick} onReach={onReach}>{acts?.(row)}</Mini>)}</div>
      {rows.length > 12 && (
        <div class="pager">
          <button type="button" disabled={!first} onClick={() => setFirst(Math.max(0, first - 12))}>previous</button>
          <span class="soft">{first + 1} – {Math.min(rows.length, first + 12)} of {rows.length}</span>
          <button type="button" disabled={first + 12 >= rows.length} onClick={() => setFirst(first + 12)}>next</button>
        </div>
      )}
    </>
  );
}

// Names of classes as buttons, with the keys 1 … 9, and a field for a new one.
export function LabelBar({ given }) {
  const classes = s.classes.value;
  const own = s.focus.value >= 0 && s.labelValues.value ? s.labelValues.value[s.focus.value] : -1;
  const add = (event) => {
    event.preventDefault();
    const field = event.currentTarget.elements.label;
    if (field.value.trim()) s.giveLabel(field.value.trim(), given?.() ?? s.target());
    field.value = "";
    field.blur();
  };
  if (s.facts.value.static) return null;
  return (
    <div class="label-bar" role="group" aria-label="labels">
      {classes.map((one) => (
        <button type="button" key={one.name} class="chip" aria-pressed={own === one.place} onClick={() => s.giveLabel(one, given?.() ?? s.target())}>
          <Dot place={one.place} />{one.name}{one.place < 9 && <kbd>{one.place + 1}</kbd>}
        </button>
      ))}
      <form onSubmit={add}><input name="label" aria-label="new label" placeholder={classes.length ? "new label" : "label, e.g. squat"} maxLength={100} autocomplete="off" /></form>
    </div>
  );
}
