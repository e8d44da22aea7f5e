// The panels beside the map: watch, similar, label, groups, compare, method.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { changeGroups, groupsBusy, label, nameGroup, removeClass, rename, turn, typed } from "./acts.js";
import { isStatic, api } from "./api.js";
import { DIAMOND, SHAPES } from "./colours.js";
import { Dialog, Grid, LabelBar, Mini, clockText, rowsText, spanText } from "./parts.jsx";
import { Controls, Dot, Film, Icon, IconButton, Ring, Stage } from "./stage.jsx";
import * as s from "./state.js";

const percent = (share) => `${Math.round(share * 100)} %`;
const width = (share) => `${(share * 100).toFixed(1)}%`;

export function Empty({ title, children }) {
  return <div class="empty"><strong>{title}</strong><p>{children}</p></div>;
}

// -- watch ------------------------------------------------------------------------------------------------------------
function Views() {
  const turn = (yaw, pitch) => Object.assign(s.view, { yaw, pitch });
  const flat = s.about.value?.flat;
  return (
    <div class="views">
      {!flat && <span class="segmented" role="group" aria-label="point of view">
        <button type="button" onClick={() => turn(-0.45, 0.16)}>3D</button>
        <button type="button" onClick={() => turn(0, 0)}>front</button>
        <button type="button" onClick={() => turn(Math.PI / 2, 0)}>side</button>
        <button type="button" onClick={() => turn(0, 1.5)}>top</button>
      </span>}
      <label class="check"><input type="checkbox" checked={s.trail.value} onChange={(event) => (s.trail.value = event.currentTarget.checked)} /> trail</label>
      {!flat && <label class="check"><input type="checkbox" checked={s.follow.value} onChange={(event) => (s.follow.value = event.currentTarget.checked)} /> walk along</label>}
    </div>
  );
}

// Everybody in a film, framed: a click looks at that person from this moment on.
function FilmPeople({ recording, children }) {
  const [people, setPeople] = useState([]);
  useEffect(() => {
    let there = true;
    s.attempt(() => api.get("people", { recording })).then((found) => there && setPeople(found ?? []));
    return () => (there = false);
  }, [recording]);
  if (people.length < 2) return children;
  const time = s.time.value;
  const now = (one) => one.times.findIndex((at) => Math.abs(at - time) <= 0.25);
  const choose = (one) => {
    const near = one.starts.map((start) => Math.abs(start - time));
    s.look(one.rows[near.indexOf(Math.min(...near))], true);
  };
  return (
    <>
      <div class="film-people">
      {children}
      {people.map((one) => {
        const at = now(one);
        if (at < 0) return null;
        const [left, top, right, bottom] = one.boxes[at];
        const own = one.rows.includes(s.focus.value);
        return <button type="button" key={one.person} class="person" aria-pressed={own} title={`person ${one.person}`} aria-label={`person ${one.person}`} style={{ left: width(left), top: width(top), width: width(right - left), height: width(bottom - top) }} onClick={() => choose(one)}><span>{one.person}</span></button>;
      })}
      </div>
      <p class="soft small">{people.length} people were found. Click one to look at that person.</p>
    </>
  );
}

// The film that a recording was seen in.
function OwnFilm({ recording }) {
  const [address, setAddress] = useState("");
  useEffect(() => {
    let there = true;
    s.attempt(() => api.film(recording)).then((found) => there && found && setAddress(found));
    return () => (there = false);
  }, [recording]);
  return address && <FilmPeople key={recording} recording={recording}><Film address={address} clock={s.clock} /></FilmPeople>;
}

const frameNow = (clip) => Math.floor((s.time.value - clip.start) * clip.clock + 1e-6);

// What is looked at, moving.
function Player({ low = false }) {
  const clip = s.about.value;
  if (clip.waiting) return <div class={low ? "player low" : "player"} role="status" aria-label="loading"><span class="skeleton" /></div>;
  const whole = s.line.value && s.recording?.recording === clip.recording && s.recording.at;
  return (
    <>
      <div class={low ? "player low" : "player"} data-mode={whole ? "recording" : "clip"} onWheel={(event) => (s.view.zoom = Math.max(0.5, Math.min(4, s.view.zoom * Math.exp(-event.deltaY * 0.002))))}>
        {whole
          ? <Stage key={clip.recording} clip={s.recording} frame={frameNow} label={`${clip.name}, moving`} main />
          : <Stage key="row" clip={clip} frame={frameNow} label={clip.name} main />}
        <span class="sides"><Dot colour="var(--left)" />left <Dot colour="var(--right)" />right</span>
      </div>
      {whole && s.line.value.film && !isStatic && <OwnFilm key={`film-${clip.recording}`} recording={clip.recording} />}
      <Controls clock={s.clock} step={s.step} text={clockText(s.time.value)} />
    </>
  );
}

export function Watch() {
  const clip = s.about.value;
  if (!clip && !s.chosen.value.length) {
    return <Empty title="Choose a movement">Click a point of the map to watch it. Rest on one for a quick look. Draw around several with the lasso to see them side by side.</Empty>;
  }
  return (
    <>
      {s.chosen.value.length > 0 && <Chosen />}
      {clip && <One clip={clip} />}
    </>
  );
}

function One({ clip }) {
  return (
    <>
      <Player />
      <Views />
      {!s.chosen.value.length && <LabelBar />}
      <Details clip={clip} />
      <div class="acts">
        <button type="button" class="primary" onClick={() => (s.span.value ? s.searchSpan() : s.searchLike([s.focus.value]))}>
          {s.span.value ? "Find what is like the span" : "Find similar"}
        </button>
        {!isStatic && <button type="button" onClick={() => { s.panel.value = "compare"; }}>Compare</button>}
        {!isStatic && s.researcher.value && <button type="button" onClick={() => { s.panel.value = "method"; s.understand(); }}>Hallucinated positives</button>}
      </div>
    </>
  );
}

function Details({ clip }) {
  const values = s.details.value;
  const marked = ["label", "prediction", s.colourBy.value]; // what has the same marks elsewhere on the page
  if (clip.waiting) return null;
  return (
    <dl class="details" data-row={clip.row}>
      <div><dt>recording</dt><dd title={clip.name}>{clip.name}</dd></div>
      <div><dt>time</dt><dd>{spanText(clip)}</dd></div>
      {values.map(([name, text, place]) => <div key={name}><dt>{s.titleOf(name)}</dt><dd>{place !== undefined && marked.includes(name) && <Dot place={place} />}{text}</dd></div>)}
    </dl>
  );
}

function Chosen() {
  const rows = s.chosen.value;
  const rest = s.further.value;
  const groups = s.facts.value.group?.groups ?? [];
  const at = groups.findIndex((one) => one.id === s.shownGroup.value);
  const next = at >= 0 && groups[at + 1];
  return (
    <section class="chosen" aria-label="chosen movements">
      <h2>{s.chosenTitle.value || `${rows.length} chosen`}<button type="button" class="link" onClick={() => s.choose([])}>clear (Esc)</button></h2>
      {!isStatic && (s.span.value ? <p class="soft small">A label goes to the span that is drawn on the timeline. <button type="button" class="link" onClick={() => (s.span.value = null)}>to {rows.length === 1 ? "this one" : `these ${rows.length}`}</button></p> : s.only.value < 0
        ? <p class="soft small">A label goes to {rows.length === 1 ? "this one" : `all ${rows.length} of these`}: take out what does not belong. Or click one: labels then go to one after the other.</p>
        : <p class="soft small">A label goes to the marked one; then the next is marked. <button type="button" class="link" onClick={() => (s.only.value = -1)}>to all {rows.length} together</button></p>)}
      <LabelBar />
      <Grid rows={rows} at={s.only.value} onReach={(row) => !isStatic && (s.only.value = row)} onPick={(row) => (isStatic ? s.look(row, true) : s.pickOnly(row))} acts={(row) => <IconButton icon="close" label="take out of the choice" onClick={() => s.choose(rows.filter((one) => one !== row), s.chosenTitle.value, rest, s.shownGroup.value)} />} />
      <div class="acts">
        {next && <button type="button" class="primary" onClick={() => showGroup(next)}>Next: {next.name}</button>}
        {rest.length > 0 && <button type="button" onClick={() => s.choose(rest.slice(0, 12), s.chosenTitle.value, rest.slice(12), s.shownGroup.value)}>{Math.min(12, rest.length)} others of {rest.length.toLocaleString()}</button>}
        <button type="button" onClick={() => s.searchLike(rows.slice(0, 50))}>Find more like these</button>
      </div>
    </section>
  );
}

// -- similar ----------------------------------------------------------------------------------------------------------
export function Similar() {
  const answer = s.found.value;
  const examples = s.yes.value.length + s.spans.value.length;
  const clip = s.about.value;
  if (!examples) {
    return (
      <>
        <Empty title="Search by example">{clip ? "Find what moves alike." : "Choose a movement on the map, and find what moves alike."} Then say yes or no to what comes up, and the search follows you.</Empty>
        {clip && <div class="acts"><button type="button" class="primary" onClick={() => s.searchLike([clip.row])}>Find similar to {clip.name}</button></div>}
      </>
    );
  }
  return (
    <>
      <h2>Like {examples === 1 ? "this" : `these ${examples}`}{s.no.value.length > 0 && `, unlike ${s.no.value.length}`}</h2>
      <div class="grid small">
        {s.spans.value.map((one, i) => <figure class="mini good" key={`s${i}`}><div class="mini-stage text">{clockText(one.start)} – {clockText(one.stop)}</div><figcaption>a span</figcaption></figure>)}
        {s.yes.value.map((row) => <Mini key={row} row={row} mood="good"><IconButton icon="close" label="no longer an example" onClick={() => s.judge(row, null)} /></Mini>)}
        {s.no.value.map((row) => <Mini key={row} row={row} mood="bad"><IconButton icon="close" label="no longer a counterexample" onClick={() => s.judge(row, null)} /></Mini>)}
      </div>
      {!answer ? <p class="soft" role="status">searching …</p> : (
        <>
          <h2>Nearest first <span class="soft">1 would be the same movement</span></h2>
          <div class="grid">
            {answer.hits.map((hit) => (
              <Mini key={hit.row} row={hit.row} note={hit.similarity.toFixed(2)} onPick={(row) => s.look(row, true)}>
                <IconButton icon="yes" label={`yes, like ${hit.name}`} onClick={() => s.judge(hit.row, true)} />
                <IconButton icon="no" label={`no, unlike ${hit.name}`} onClick={() => s.judge(hit.row, false)} />
              </Mini>
            ))}
          </div>
          {!answer.hits.length && <p class="soft">Nothing else is on the side of your examples. Take a “no” away.</p>}
          <div class="acts"><button type="button" onClick={() => s.choose(answer.hits.map((hit) => hit.row), "search results")}>Choose all {answer.hits.length} to label them</button></div>
          {s.facts.value.rows > 40 && <><h2>How alike is alike?</h2>
          <p class="soft">Movements from further down this list, to compare: {answer.quantiles.map((one) => `${Math.round((1 - one.quantile) * 100)} %`).join(", ")} of all movements are at least as similar.</p>
          <div class="grid small">{answer.quantiles.map((one) => <Mini key={one.quantile} row={one.row} title={`top ${Math.round((1 - one.quantile) * 100)} %`} note={one.similarity.toFixed(2)} onPick={(row) => s.look(row, true)} />)}</div></>}
        </>
      )}
    </>
  );
}

// -- label ------------------------------------------------------------------------------------------------------------
function Accuracy({ name, score, best }) {
  return (
    <div class={`accuracy ${best ? "best" : ""}`}>
      <span>{name}</span>
      <span class="bar"><i style={{ left: width(score.low), width: width(score.high - score.low) }} /><b style={{ left: width(score.accuracy) }} /></span>
      <span class="number">{percent(score.accuracy)}</span>
    </div>
  );
}

function Model() {
  const { few } = s.facts.value;
  if (s.classes.value.length < 2) return <p class="soft">Give labels of two kinds, and the program begins to recognise them in all other movements.</p>;
  if (!few) return <p class="soft" role="status">learning from the labels …</p>;
  const scores = few.assessment;
  return (
    <section class="card" aria-label="recognition">
      <h2>Recognition <span class="soft">learned from {rowsText(Object.values(few.counts).reduce((a, b) => a + b, 0))}</span></h2>
      {!scores ? <p class="soft" role="status">testing itself on your labels …</p> : !scores.encoder ? <p class="soft">Label two {scores.grouped_by === "person" ? "people" : "recordings"} of every class to learn how good it is.</p> : (
        <>
          <Accuracy name={scores.shipped ? "this encoder" : "halp"} score={scores.encoder} best />
          {scores.shipped && <Accuracy name={scores.shipped_name} score={scores.shipped} />}
          {scores.untrained && <Accuracy name="the same, untrained" score={scores.untrained} />}
          <Accuracy name="positions alone" score={scores.raw} />
          <p class="small">{scores.verdict}</p>
          <p class="soft small">How many {scores.grouped_by === "person" ? "movements of people whose labels were held back" : "recordings whose labels were held back"} are recognised; the true figure probably lies within the bar{s.researcher.value && " (95 % interval)"}. The last line uses the positions of the joints without what halp has learned.{scores.left_out.length > 0 && ` Not tested yet, because there is only one ${scores.grouped_by}: ${scores.left_out.join(", ")}.`}</p>
        </>
      )}
      <div class="acts">
        <button type="button" onClick={() => s.paintBy("prediction")}>Show on the map</button>
        <button type="button" onClick={() => s.paintBy("confidence")}>Show how sure</button>
        <button type="button" onClick={() => download({})}>Download table</button>
        {s.facts.value.long && <button type="button" onClick={() => download({ by: "recording" })}>… by recording</button>}
      </div>
      {!few.rejects && <p class="soft small">Every movement is given one of these classes, also where none fits: to tell what is unlike all of them, the program has to know which recordings are of the same person. Label some of the rest as “other”.</p>}
    </section>
  );
}

async function download(given) {
  const answer = await s.attempt(async () => (await api.request("table", {}, api.query(given))).blob());
  if (!answer) return;
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(answer), download: `${s.facts.value.source}.${given.by ?? "table"}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function ClassRow({ one }) {
  const [editing, setEditing] = useState(false);
  const field = useRef();
  useLayoutEffect(() => { if (editing) field.current.select(); }, [editing]); // before the next key comes
  const save = (event) => {
    event.preventDefault();
    const name = field.current?.value.trim(); // gone where Enter took the field away
    setEditing(false);
    if (name && name !== one.name) rename(one, name);
  };
  return (
    <li>
      <Dot place={one.place} />
      {editing ? <form onSubmit={save}><input ref={field} defaultValue={one.name} maxLength={100} aria-label={`new name of ${one.name}`} onBlur={save} /></form> : <span class="grow">{one.name}</span>}
      <span class="soft number">{s.facts.value.window && one.id ? `${one.given.toLocaleString()} label${one.given === 1 ? "" : "s"}, ` : ""}{rowsText(one.rows)}</span>
      {one.place < 9 && <kbd>{one.place + 1}</kbd>}
      {one.id && <button type="button" class="link" onClick={() => setEditing(true)}>rename</button>}
      {one.id && !one.rows && <button type="button" class="link" onClick={() => removeClass(one)}>remove</button>}
    </li>
  );
}

export function Label() {
  const { few, undo, redo, label_file: file, command } = s.facts.value;
  const classes = s.classes.value;
  const labelled = s.span.value?.tier === "human" || (s.chosen.value.length ? s.chosen.value : [s.focus.value]).some((row) => s.labelValues.value?.[row] >= 0);
  const given = s.target();
  const open = s.proposals.value;
  return (
    <>
      {s.about.value && <Player low />}
      <h2>Classes
        <button type="button" class="link" disabled={!undo?.length} title={undo?.[0]?.[1]} onClick={() => turn("undo")}><Icon name="undo" /> undo <kbd>u</kbd></button>
        <button type="button" class="link" disabled={!redo?.length} title={redo?.[0]?.[1]} onClick={() => turn("redo")}>redo <kbd>r</kbd></button>
      </h2>
      {classes.length > 0 && <ul class="classes">{classes.map((one) => <ClassRow key={one.id ?? one.name} one={one} />)}</ul>}
      {classes.length > 0 && s.facts.value.window && <p class="soft small">Windows overlap: a label counts for every window that it covers at least half.</p>}
      <p class="soft">{given ? <>The next label goes to <b>{given.text}</b>.</> : "Choose a movement, then type a label or press its number."}</p>
      <LabelBar />
      <div class="acts">
        <button type="button" onClick={s.goNext}>Next movement <kbd>n</kbd></button>
        {given && labelled && <button type="button" onClick={() => s.giveLabel("")}>Take the label off</button>}
      </div>
      <Model />
      <h2>Label next <span class="soft">{few ? "where a label helps most" : "one of each group"}</span></h2>
      {open.length ? <div class="grid">{open.slice(0, 9).map((one) => <Mini key={one.row} row={one.row} note={one.uncertainty !== undefined ? `unsure ${percent(one.uncertainty)}` : undefined} onPick={(row) => { s.choose([]); s.look(row, true); }} />)}</div> : <p class="soft">Everything that was proposed is labelled or skipped.</p>}
      <p class="soft small">Every label is saved at once; the table <code>{file}</code> has them all. To recognise the same movements in other recordings: <code>{command}</code></p>
    </>
  );
}

// -- groups -----------------------------------------------------------------------------------------------------------
async function showGroup(group) {
  const rows = await s.spread(await s.membersOf(group.id));
  if (!rows.length) return;
  s.choose(rows.slice(0, 12), `${group.name}: ${Math.min(12, rows.length)} of ${rowsText(rows.length)}`, rows.slice(12), group.id);
  s.panel.value = "watch";
  s.look(rows[0], true);
  await s.paintBy("group");
  document.getElementById("panel").scrollTop = 0;
}

// How far apart 2 to 12 groups are, as bars; a press regroups.
function Counts({ now }) {
  const [found, setFound] = useState(null);
  useEffect(() => { api.get("counts").then(setFound, () => setFound({ counts: [] })); }, []);
  if (!found) return <p class="soft small" role="status">trying 2 to 12 groups …</p>;
  if (found.counts.length < 4) return null; // of a few recordings every group is as good as another
  const most = Math.max(...found.counts.map(([, value]) => value), 1e-6);
  return (
    <figure class="counts">
      <div role="group" aria-label="how clearly groups differ, for 2 to 12 of them">
        {found.counts.map(([count, value]) => (
          <button type="button" key={count} class={count === found.suggested ? "suggested" : ""} aria-pressed={count === now} aria-label={`${count} groups, ${percent(Math.max(0, value) / most)} as clear as the best${count === found.suggested ? ", suggested" : ""}`} onClick={() => changeGroups({ action: "count", count }, `make ${count} groups`)}>
            <i style={{ height: `${Math.round(44 * Math.max(0.05, value / most))}px` }} /><span>{count}</span>
          </button>
        ))}
      </div>
      <figcaption class="soft small">The taller the bar, the clearer these groups differ. Suggested: {found.suggested}{found.suggested > 2 && ", the largest number that is nearly as clear as the best above two"}.</figcaption>
    </figure>
  );
}

export function Groups() {
  const { group } = s.facts.value;
  const [marked, setMarked] = useState([]);
  if (!group) return <p class="soft" role="status">finding groups …</p>;
  const busy = groupsBusy.value;
  const there = marked.filter((id) => group.groups.some((one) => one.id === id));
  const nameOf = (one) => (typed.value[one.id] ?? "").trim() || one.name;
  // The name is the one that stands in the field, also where it has just been typed.
  const labelAll = async (one) => {
    const name = nameOf(one);
    if (name !== one.name) nameGroup(one.id, name);
    const rows = s.filtering.value ? await s.membersOf(one.id) : null; // what a filter hides is not meant
    if (rows && !rows.length) return;
    const text = rowsText(rows?.length ?? one.size);
    label(name, { ...(rows ? { rows } : { group: one.id }), text });
    s.say(`${text}: ${name}`);
  };
  return (
    <>
      <h2>{group.groups.length} groups <span class="soft">found without labels</span>{!isStatic && group.undo && <button type="button" class="link" disabled={busy} onClick={() => changeGroups({ action: "undo", groups: [group.undo] }, "undo the last change of the groups")}><Icon name="undo" /> undo</button>}</h2>
      <p class="soft">Movements that are alike: a way to see what there is. <b>Show</b> plays twelve of a group{isStatic ? "." : ", where you can label them. Use a name as the label of a whole group only where all that you see belongs."}</p>
      {!isStatic && (
        <form class="acts" onSubmit={(event) => { event.preventDefault(); changeGroups({ action: "count", count: Number(event.currentTarget.elements.count.value) }, "group again"); }}>
          <label class="check">how many <input name="count" type="number" min="1" max="60" key={group.groups.length} defaultValue={group.groups.length} /></label>
          <button type="submit" disabled={busy}>Group again</button>
          {there.length > 0 && <button type="button" disabled={there.length < 2 || busy} onClick={() => changeGroups({ action: "merge", groups: there }, "merge groups")}>Merge marked</button>}
        </form>
      )}
      {!isStatic && <Counts now={group.groups.length} />}
      <ul class="groups" aria-busy={busy}>
        {group.groups.map((one, place) => (
          <li key={one.id}>
            <Mini row={one.typical.row} onPick={() => showGroup(one)} />
            <div class="group-facts">
              {isStatic ? <b><Dot place={place} />{one.name}</b> : (
                <label><Dot place={place} /><input value={typed.value[one.id] ?? one.name} maxLength={100} aria-label={`name of ${one.name}`} onInput={(event) => (typed.value = { ...typed.value, [one.id]: event.currentTarget.value })} onChange={(event) => nameGroup(one.id, event.currentTarget.value)} /></label>
              )}
              <span class="soft small">{rowsText(one.size, one.recordings)}</span>
              <div class="acts tight">
                <button type="button" onClick={() => showGroup(one)}>Show</button>
                {!isStatic && <button type="button" disabled={one.size < 2 || busy} onClick={() => changeGroups({ action: "split", groups: [one.id] }, `split ${one.name}`)}>Split</button>}
                {!isStatic && <button type="button" onClick={() => labelAll(one)} title={`label all ${one.size} as ${nameOf(one)}`}>Use as label</button>}
                {!isStatic && <label class="check"><input type="checkbox" checked={there.includes(one.id)} onChange={(event) => setMarked(event.currentTarget.checked ? [...there, one.id] : there.filter((id) => id !== one.id))} /> mark</label>}
              </div>
            </div>
          </li>
        ))}
      </ul>
    </>
  );
}

// -- compare ----------------------------------------------------------------------------------------------------------
function Curve({ values, at, onSeek }) {
  const most = Math.max(...values, 1e-6);
  const path = values.map((value, i) => `${i ? "L" : "M"}${((i / Math.max(1, values.length - 1)) * 300).toFixed(1)} ${(58 - (value / most) * 52).toFixed(1)}`).join("");
  return (
    <svg class="curve" viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label="difference over time" onClick={(event) => { const box = event.currentTarget.getBoundingClientRect(); onSeek((event.clientX - box.left) / box.width); }}>
      <path class="area" d={`${path}L300 60L0 60Z`} /><path d={path} /><line x1={at * 300} x2={at * 300} y1="0" y2="60" />
    </svg>
  );
}

export function Compare() {
  const made = s.compared.value;
  const clip = s.about.value;
  const place = useRef(0);
  const [shown, setShown] = useState(0);
  const level = useMemo(() => {
    if (!made) return null;
    const joints = made.arrays.joints.shape[1];
    const means = Array.from({ length: made.arrays.joints.shape[0] }, (_, i) => {
      let sum = 0;
      for (let v = 0; v < joints; v++) sum += made.arrays.joints[i * joints + v];
      return sum / joints;
    });
    const sorted = Float32Array.from(made.arrays.joints).sort();
    return { means, joints, top: sorted[Math.floor(sorted.length * 0.97)] || 1 };
  }, [made]);
  useEffect(() => {
    if (!made) return;
    place.current = 0;
    let last = s.clock.passed;
    const rate = made.clips[0].rate;
    const stage = () => {
      place.current = (place.current + Math.max(0, s.clock.passed - last) * rate) % level.means.length;
      last = s.clock.passed;
      const now = Math.floor(place.current);
      setShown((before) => (Math.abs(before - now) >= 2 || now < before ? now : before));
    };
    s.stages.add(stage);
    return () => s.stages.delete(stage);
  }, [made]);
  if (!clip) return <Empty title="Compare two movements">Choose a first one on the map.</Empty>;
  if (s.other.value < 0 || s.other.value === s.focus.value) {
    const near = s.chosen.value.filter((row) => row !== s.focus.value).slice(0, 12);
    return (
      <>
        <h2>Compare {s.target()?.rows?.length === 1 ? s.target().text : clip.name} with …</h2>
        <p class="soft">Hold Alt and click another point, or choose one here.</p>
        {near.length > 0 ? <div class="grid">{near.map((row) => <Mini key={row} row={row} onPick={s.compareWith} />)}</div> : <Nearest row={s.focus.value} />}
      </>
    );
  }
  if (!made) return <p class="soft" role="status">aligning the two …</p>;
  const pair = Math.floor(place.current);
  const clips = made.clips.map((one, i) => ({ ...one, joints: made.arrays[`clip${i}`] }));
  const heat = (joint) => (joint < 0 ? Math.floor(place.current) : Math.min(1, Math.max(0, made.arrays.joints[Math.floor(place.current) * level.joints + joint] / level.top - 0.25) / 0.75));
  return (
    <>
      <h2>Side by side, in step <button type="button" class="link" onClick={() => { s.other.value = -1; s.compared.value = null; }}>another one</button></h2>
      <div class="pair">
        {clips.map((one, i) => (
          <figure class="mini" key={i}><div class="mini-stage tall"><Stage clip={one} frame={() => made.arrays.pairs[Math.floor(place.current) * 2 + i]} body={made.body} label={one.name} heat={heat} /></div><figcaption><span class="mini-name">{one.name}</span><span class="soft">{spanText(one)}</span></figcaption></figure>
        ))}
      </div>
      <p class="soft small"><Dot colour="var(--heat)" />marks joints that differ at this moment.</p>
      <Curve values={level.means} at={pair / Math.max(1, level.means.length - 1)} onSeek={(share) => { place.current = share * (level.means.length - 1); setShown(-1); }} />
      <h2>Where they differ</h2>
      {made.stretches.length ? (
        <ul class="plain">{made.stretches.slice(0, 5).map((one, i) => <li key={i}>{clockText(one.start)} – {clockText(one.end)}: {one.joints.map((name) => name.replaceAll("_", " ")).join(", ")}</li>)}</ul>
      ) : <p class="soft">No stretch stands out from the rest.</p>}
      <h2>Joints that differ most</h2>
      <ul class="bars">{made.worst.filter((one) => one.difference !== null).slice(0, 6).map((one) => <li key={one.joint}><span>{one.joint.replaceAll("_", " ")}</span><span class="bar"><i style={{ width: width(one.difference / (made.worst[0].difference || 1)) }} /></span><span class="number">{one.difference.toFixed(2)}</span></li>)}</ul>
      <p class="soft small">Mean difference; 1 is as long as the person's bones are on average.</p>
    </>
  );
}

function Nearest({ row }) {
  const [hits, setHits] = useState(null);
  useEffect(() => {
    setHits(null);
    api.ask("search", { rows: [row], k: 12, ...s.filter() }).then((answer) => setHits(answer.hits), () => setHits([]));
  }, [row]);
  if (!hits) return <p class="soft" role="status">searching …</p>;
  return <div class="grid">{hits.map((hit) => <Mini key={hit.row} row={hit.row} note={hit.similarity.toFixed(2)} onPick={s.compareWith} />)}</div>;
}

// -- reports ----------------------------------------------------------------------------------------------------------
// Parts of a report, as `halp report` has them.
export function Parts({ parts, large = false }) {
  return parts.map((part, i) => {
    if (part.kind === "section") return <h2 key={i}>{part.heading}</h2>;
    if (part.kind === "paragraph") return <p key={i} class="soft small">{part.text}</p>;
    if (part.kind === "figure") return <Chart key={i} part={part} large={large} />;
    return (
      <div key={i} class="scroll" tabIndex={0} role="group" aria-label={part.caption || part.label}>
        <table class="runs">
          {part.caption && <caption>{part.caption}</caption>}
          <thead><tr>{part.columns.map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
          <tbody>{part.rows.map((row, r) => <tr key={r} class={row.best ? "best" : ""}>{row.cells.map((text, c) => <td key={c} class={part.right[c] ? "number" : ""}>{text}</td>)}</tr>)}</tbody>
        </table>
      </div>
    );
  });
}

function Chart({ part, large }) {
  const image = <img src={`data:image/svg+xml,${encodeURIComponent(part.markup)}`} alt={part.caption} />;
  return (
    <figure class="chart" tabIndex={large ? 0 : undefined}>
      {large ? image : <button type="button" title="larger" onClick={() => (s.wide.value = { title: "", parts: [part] })}>{image}</button>}
      <figcaption class="soft small">{part.caption}</figcaption>
    </figure>
  );
}

export function Wide() {
  const shown = s.wide.value;
  return (
    <Dialog open={Boolean(shown)} class="wide" aria-label={shown?.title || "figure"}>
      {shown && <><h2>{shown.title}<button type="button" class="link" onClick={s.closeWindows}>close</button></h2><div class="parts"><Parts parts={shown.parts} large /></div></>}
    </Dialog>
  );
}

// Trainings side by side.
function Runs() {
  const { runs } = s.facts.value;
  const [parts, setParts] = useState(null);
  useEffect(() => { s.attempt(() => api.get("runs")).then(setParts); }, []);
  if (!parts) return <p class="soft" role="status">reading the runs …</p>;
  const title = runs.length > 1 ? `Training: ${runs.length} runs side by side` : "How it was trained";
  return (
    <section class="runs-pane" aria-label="training">
      <h2>{title}</h2>
      <div class="acts"><button type="button" onClick={() => (s.wide.value = { title, parts })}>Show it wide</button></div>
      <Parts parts={parts} />
    </section>
  );
}

export function Method() {
  const { story, encoder } = s.facts.value;
  return (
    <>
      {story && <p>{encoder === "auto" ? "This encoder" : <code>{encoder}</code>}: {story[0].toLowerCase() + story.slice(1)} The panel Label compares it with the same encoder untrained.</p>}
      <Positives />
      {s.facts.value.runs.length > 0 ? <Runs /> : <p class="soft small">With <code>--runs RUN RUN</code> trainings stand here side by side: results, loss and similarity curves, settings that differ.</p>}
    </>
  );
}

// -- method -----------------------------------------------------------------------------------------------------------
// Every geodesic from the movement to another prototype is a line; made-up movements stand on it where the walk ended.
function Geodesics({ answer }) {
  const { angle, target, keep, reach } = answer.arrays;
  const lines = [...new Set(target)].sort((a, b) => reach[a] - reach[b]);
  const widest = Math.max(...lines.map((one) => reach[one]), reach[answer.closest], 1);
  const x = (degrees) => 12 + (degrees / widest) * 276;
  const step = Math.max(5, Math.min(9, 150 / lines.length));
  const y = (prototype) => 22 + lines.indexOf(prototype) * step;
  const end = (at, top, own) => <path class={own ? "end own" : "end"} transform={`translate(${x(at) - 3.2} ${top - 3.2}) scale(0.4)`} d={SHAPES[DIAMOND]} />;
  const bottom = 22 + lines.length * step;
  return (
    <svg class="walks" viewBox={`0 0 300 ${bottom + 16}`} role="img" aria-label={`how far each of ${answer.count} made-up movements lies from the real one, on the way to another prototype, in degrees`}>
      <line class="own" x1={x(0)} x2={x(reach[answer.closest])} y1="10" y2="10" />{end(reach[answer.closest], 10, true)}
      {lines.map((one) => <g key={one}><line x1={x(0)} x2={x(reach[one])} y1={y(one)} y2={y(one)} />{end(reach[one], y(one), false)}</g>)}
      {Array.from(angle, (value, i) => <circle key={i} cx={x(value)} cy={y(target[i])} r={i === s.positive.value ? 4.5 : 2.6} class={`${keep[i] ? "good" : "bad"} ${i === s.positive.value ? "picked" : ""}`} onClick={() => (s.positive.value = i)} />)}
      <text x="12" y={bottom + 10}>0°: the movement</text><text x="288" y={bottom + 10} text-anchor="end">{widest.toFixed(0)}°</text>
    </svg>
  );
}

function Positives() {
  const answer = s.understood.value;
  const clip = s.about.value;
  if (isStatic) return null;
  if (!clip) return <Empty title="Hallucinated positives">Choose a movement first.</Empty>;
  if (answer === "wait") return <><h2>Hallucinated positives</h2><p class="soft" role="status">walking on the sphere …</p></>;
  if (!answer) return <><h2>Hallucinated positives</h2><p class="soft">For {clip.name}.</p><div class="acts"><button type="button" class="primary" onClick={s.understand}>Hallucinate positives</button></div></>;
  const { angle, keep, near, nearness, typical } = answer.arrays;
  const wide = near.shape[1];
  const order = Array.from(angle.keys()).sort((a, b) => angle[a] - angle[b]); // the slider goes from near to far
  const one = s.positive.value;
  const rows = one >= 0
    ? Array.from(near.subarray(one * wide, (one + 1) * wide))
    : [...new Set(Array.from(keep, (kept, i) => (kept ? near[i * wide] : -1)).filter((row) => row >= 0 && row !== clip.row))];
  return (
    <>
      <h2>Hallucinated positives</h2>
      <p>HaLP makes up {answer.count} harder versions of <b>{clip.name}</b> by walking from it towards other prototypes, and keeps those that still lie nearest to its own prototype.</p>
      <Geodesics answer={answer} />
      <p class="soft small key"><span><Dot colour="var(--good)" /><b>{percent(answer.kept)}</b> kept</span><span><Ring colour="var(--bad)" />left out</span><span><Dot place={DIAMOND * 7} colour="var(--soft)" />other prototypes</span><span><Dot place={DIAMOND * 7} colour="var(--accent)" />its own</span></p>
      <label class="one">one of them <input type="range" min="-1" max={order.length - 1} value={order.indexOf(one)} aria-label="which made-up movement, from near to far" aria-valuetext={one < 0 ? "none" : `${angle[one].toFixed(0)} degrees, ${keep[one] ? "kept" : "left out"}`} onInput={(event) => (s.positive.value = order[Number(event.currentTarget.value)] ?? -1)} /></label>
      <h2>{one < 0 ? "Real movements nearest to the kept ones" : `Nearest to this one, ${angle[one].toFixed(0)}° away, ${keep[one] ? "kept" : "left out"}`}</h2>
      <div class="grid">{rows.slice(0, 9).map((row, i) => <Mini key={row} row={row} note={one < 0 ? undefined : nearness[one * wide + i].toFixed(2)} onPick={(one) => s.look(one, true)} />)}</div>
      {!rows.length && <p class="soft">The kept ones stay nearest to the movement itself.</p>}
      <Parts parts={[answer.chart]} />
      <h2>Its prototype</h2>
      <div class="grid small">{Array.from(typical.subarray(answer.closest * typical.shape[1], (answer.closest + 1) * typical.shape[1]), (row) => <Mini key={row} row={row} onPick={(one) => s.look(one, true)} />)}</div>
      <p class="soft small">{answer.trained ? "Computed as in the training of this encoder: in the space of its projection head, with its prototypes." : "Computed on the vectors of this encoder; a training does the same in the space of its projection head."} On the map, made-up movements and prototypes stand between the real ones they are most like.</p>
    </>
  );
}
