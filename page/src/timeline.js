// The timeline of a recording on a canvas: tiers of segments, curves of probability, nobody, a playhead, spans with edges to drag.
import { SHAPES, colourOf, inkOn, shapeOf } from "./colours.js";

const ROW = 22;
const CURVES = 46;
const TOP = 20;
const LEFT = 58;
const TITLES = { human: "labels", model: "model", group: "groups" };
const EDGE = 6;
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [1, 5]]; // of curves whose colour comes again

// The next round number, for the marks of an axis.
export function tickStep(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least);
}

export class Timeline {
  constructor(canvas, act) {
    Object.assign(this, { canvas, act, facts: null, tiers: [], time: 0, range: [0, 1], span: null, drag: null });
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(canvas);
    this.listen();
  }

  end() {
    this.watch.disconnect();
  }

  // facts: { start, stop, tiers: {name: [{start, stop, label, note}]}, nobody, classes }, arrays: probabilities, starts, stops; labels and
  // groups: their names in the order of marks, as on the map. plain facts are to look at: tiers without names, a press seeks; their faint labels have no colour.
  show(facts, labels, groups = []) {
    const other = !this.facts || this.facts.recording !== facts.recording;
    this.facts = facts;
    Object.assign(this, { labels, groups });
    this.tiers = facts.plain ? Object.keys(facts.tiers) : Object.keys(TITLES).filter((name) => name === "human" || facts.tiers[name]?.length);
    [this.left, this.right, this.row] = facts.plain ? [1, 1, 34] : [LEFT, 8, ROW];
    if (other) this.range = [facts.start, Math.max(facts.stop, facts.start + 1e-6)];
    this.canvas.style.height = `${this.height}px`;
    this.draw();
  }

  get height() {
    return TOP + this.tiers.length * this.row + (this.facts?.arrays?.probabilities && this.facts.arrays.starts.length > 1 ? CURVES : 0) + 6;
  }

  x(time) {
    return this.left + ((time - this.range[0]) / (this.range[1] - this.range[0])) * (this.canvas.clientWidth - this.left - this.right);
  }

  time_at(x) {
    const time = this.range[0] + ((x - this.left) / (this.canvas.clientWidth - this.left - this.right)) * (this.range[1] - this.range[0]);
    return Math.max(this.facts.start, Math.min(this.facts.stop, time));
  }

  // The place of a name among the marks.
  place(label, tier) {
    return (tier === "group" ? this.groups : this.labels).indexOf(label);
  }

  setTime(time) {
    this.time = time;
    if (this.facts) this.paint(); // at once: whoever plays is in an animation frame already
  }

  setSpan(span) {
    this.span = span;
    this.draw();
  }

  draw() {
    if (this.waiting || !this.facts) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const { canvas, facts } = this;
    const dense = Math.min(window.devicePixelRatio || 1, 2);
    const [width, height] = [canvas.clientWidth, this.height];
    if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    const [ink, soft, hair, back, accent, paper] = ["--ink", "--soft", "--hair", "--back", "--accent", "--paper"].map((name) => style.getPropertyValue(name).trim());
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.axis(pen, width, soft, hair);
    this.tiers.forEach((name, place) => {
      const top = TOP + place * this.row;
      pen.fillStyle = soft;
      pen.textAlign = "right";
      pen.fillText(TITLES[name] ?? "", LEFT - 8, top + this.row / 2);
      pen.fillStyle = back;
      pen.fillRect(this.left, top + 2, width - this.left - this.right, this.row - 4);
      pen.save();
      pen.beginPath();
      pen.rect(this.left, top, width - this.left - this.right, this.row);
      pen.clip();
      for (const part of facts.tiers[name] ?? []) this.bar(pen, part, top, ink, name);
      pen.restore();
    });
    const bottom = TOP + this.tiers.length * this.row;
    if (facts.arrays?.probabilities && facts.arrays.starts.length > 1) this.curves(pen, bottom + 4, CURVES - 6, hair);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, width - this.left - this.right, height);
    pen.clip();
    for (const [start, stop] of facts.nobody ?? []) this.hatch(pen, this.x(start), this.x(stop), TOP, bottom - TOP, soft, paper);
    const span = this.drag?.span ?? this.span;
    if (span) {
      pen.fillStyle = accent;
      pen.globalAlpha = 0.14;
      pen.fillRect(this.x(span.start), TOP - 4, this.x(span.stop) - this.x(span.start), height - TOP);
      pen.globalAlpha = 1;
      for (const edge of [span.start, span.stop]) pen.fillRect(this.x(edge) - 1, TOP - 4, 2, height - TOP);
    }
    pen.restore();
    const at = this.x(this.time);
    if (at >= this.left - 1) {
      pen.fillStyle = ink;
      pen.fillRect(at - 0.75, 8, 1.5, height - 10);
      pen.beginPath();
      pen.arc(at, 9, 4, 0, 7);
      pen.fill();
    }
  }

  axis(pen, width, soft, hair) {
    const length = this.range[1] - this.range[0];
    const step = tickStep(length / Math.max(2, (width - this.left) / 80));
    pen.textAlign = "center";
    for (let time = Math.ceil(this.range[0] / step) * step; time <= this.range[1] + 1e-9; time += step) {
      const x = this.x(time);
      pen.fillStyle = hair;
      pen.fillRect(x, TOP - 5, 1, 5);
      pen.fillStyle = soft;
      const text = this.facts.unit === "frames" || (this.facts.clock === 1 && this.facts.rate === 30) ? `${Math.round(time)}` : length > 180 ? `${Math.floor(time / 60)}:${String(Math.round(time % 60)).padStart(2, "0")}` : `${Number(time.toFixed(2))} s`;
      if (x > this.left + 8 && x < width - 20) pen.fillText(text, x, 8);
    }
  }

  bar(pen, part, top, ink, tier) {
    const alpha = tier === "model" ? 0.35 + 0.65 * (part.score ?? 1) : 1;
    const place = this.place(part.label, tier);
    const [from, to] = [this.x(part.start), this.x(part.stop)];
    const none = (this.facts.faint ?? ["none of these"]).includes(part.label);
    pen.globalAlpha = none ? 0.25 : alpha;
    pen.fillStyle = none ? ink : colourOf(place);
    pen.beginPath();
    pen.roundRect(from + 0.5, top + 2, Math.max(1, to - from - 1), this.row - 4, 3);
    pen.fill();
    pen.globalAlpha = 1;
    const shape = none ? 0 : shapeOf(place);
    const text = alpha > 0.6 && !none ? inkOn(colourOf(place)) : ink;
    const begin = Math.max(from, this.left) + 5;
    if (shape && to - from > 16) {
      pen.save();
      pen.translate(begin, top + this.row / 2 - 4.5);
      pen.scale(9 / 16, 9 / 16);
      pen.fillStyle = text;
      pen.fill(new Path2D(SHAPES[shape]));
      pen.restore();
    }
    if (to - from > 30) {
      pen.save();
      pen.beginPath();
      pen.rect(from, top, to - from - 3, this.row);
      pen.clip();
      pen.fillStyle = text;
      pen.textAlign = "left";
      pen.fillText(part.label, begin + (shape ? 13 : 0), top + this.row / 2 + 0.5);
      pen.restore();
    }
  }

  curves(pen, top, high, hair) {
    const { probabilities, starts, stops } = this.facts.arrays;
    const classes = this.facts.classes.length;
    pen.strokeStyle = hair;
    pen.lineWidth = 1;
    pen.strokeRect(this.left, top, this.canvas.clientWidth - this.left - this.right, high);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, top, this.canvas.clientWidth - this.left - this.right, high);
    pen.clip();
    this.facts.classes.forEach((label, place) => {
      pen.strokeStyle = colourOf(this.place(label));
      pen.lineWidth = 1.5;
      pen.setLineDash(DASHES[shapeOf(this.place(label)) % DASHES.length]);
      pen.beginPath();
      for (let i = 0; i < starts.length; i++) {
        const [x, y] = [this.x((starts[i] + stops[i]) / 2), top + high - probabilities[i * classes + place] * (high - 2) - 1];
        i ? pen.lineTo(x, y) : pen.moveTo(x, y);
      }
      pen.stroke();
    });
    pen.restore();
  }

  hatch(pen, from, to, top, high, soft, paper) {
    pen.save();
    pen.beginPath();
    pen.rect(from, top, to - from, high);
    pen.clip();
    pen.fillStyle = paper;
    pen.globalAlpha = 0.75;
    pen.fillRect(from, top, to - from, high);
    pen.globalAlpha = 0.6;
    pen.strokeStyle = soft;
    pen.lineWidth = 1;
    pen.beginPath();
    for (let x = from - high; x < to; x += 6) {
      pen.moveTo(x, top + high);
      pen.lineTo(x + high, top);
    }
    pen.stroke();
    pen.globalAlpha = 1;
    pen.fillStyle = soft;
    pen.textAlign = "center";
    if (to - from > 46) pen.fillText("absent", (from + to) / 2, top + high / 2);
    pen.restore();
  }

  // What lies under the pointer: an edge of a label, or of the drawn span, or a segment.
  under(x, y) {
    const tier = this.tiers[Math.floor((y - TOP) / this.row)];
    for (const part of this.facts.tiers.human ?? []) {
      if (tier !== "human") break;
      if (Math.abs(this.x(part.start) - x) < EDGE) return { part, edge: "start" };
      if (Math.abs(this.x(part.stop) - x) < EDGE) return { part, edge: "stop" };
    }
    if (this.span && Math.abs(this.x(this.span.start) - x) < EDGE) return { span: this.span, edge: "start" };
    if (this.span && Math.abs(this.x(this.span.stop) - x) < EDGE) return { span: this.span, edge: "stop" };
    const part = (this.facts.tiers[tier] ?? []).find((one) => this.x(one.start) <= x && x <= this.x(one.stop));
    return { part, tier };
  }

  listen() {
    const node = this.canvas;
    const place = (event) => {
      const box = node.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    node.addEventListener("pointerdown", (event) => {
      if (!this.facts) return;
      node.setPointerCapture(event.pointerId);
      const [x, y] = place(event);
      const under = this.under(x, y);
      this.drag = { x, under, from: this.time_at(x), scrub: this.facts.plain || y < TOP, moved: false };
      if (this.drag.scrub) this.act.seek(this.drag.from);
    });
    node.addEventListener("pointermove", (event) => {
      if (!this.facts) return;
      const [x, y] = place(event);
      if (!this.drag) {
        const { edge, part } = this.under(x, y);
        node.style.cursor = edge ? "ew-resize" : this.facts.plain || y < TOP ? "col-resize" : "crosshair";
        node.title = part ? [part.label, part.note].filter(Boolean).join("\n") : "";
        return;
      }
      const { under, from, scrub } = this.drag;
      this.drag.moved ||= Math.abs(x - this.drag.x) > 4;
      const now = this.time_at(x);
      if (scrub) this.act.seek(now);
      else if (this.drag.moved && under.edge) {
        const base = under.part ?? under.span;
        const span = { start: base.start, stop: base.stop, [under.edge]: now };
        if (span.stop - span.start > 0.02) this.drag.span = span;
        this.act.scrub(now);
      } else if (this.drag.moved) this.drag.span = { start: Math.min(from, now), stop: Math.max(from, now) };
      this.draw();
    });
    node.addEventListener("pointerup", (event) => {
      const drag = this.drag;
      this.drag = null;
      if (!drag || drag.scrub) return;
      if (!drag.moved) {
        if (drag.under.part) this.act.span({ start: drag.under.part.start, stop: drag.under.part.stop, label: drag.under.part.label, tier: drag.under.tier });
        this.act.seek(drag.from, Boolean(drag.under.part));
      } else if (drag.span && drag.under.part && drag.under.edge) this.act.move(drag.under.part, drag.span);
      else if (drag.span) this.act.span(drag.span);
      this.draw();
    });
    node.addEventListener("pointercancel", () => (this.drag = null));
    node.addEventListener("wheel", (event) => {
      if (!this.facts || !(event.ctrlKey || event.shiftKey || event.altKey)) return;
      event.preventDefault();
      const at = this.time_at(place(event)[0]);
      const factor = Math.exp((event.deltaY || event.deltaX) * 0.004);
      this.zoom(at, factor);
    }, { passive: false });
  }

  zoom(at, factor) {
    const { start, stop } = this.facts;
    const length = Math.min(stop - start, Math.max(0.5, (this.range[1] - this.range[0]) * factor));
    const low = Math.max(start, Math.min(stop - length, at - ((at - this.range[0]) / (this.range[1] - this.range[0])) * length));
    this.range = [low, low + length];
    this.draw();
  }
}
