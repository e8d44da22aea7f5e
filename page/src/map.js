// The map: up to a million points on a WebGL canvas, with pan, zoom, lasso and picking; a second canvas carries what is marked.
// A plain map stands in a page that is read and printed: no WebGL, and the wheel scrolls the page unless Ctrl is held.
import { SHAPES } from "./colours.js";

const VERTEX = `#version 300 es
in vec2 place; in vec4 colour; in float shape; uniform vec2 scale, shift; uniform float size; out vec4 tint; flat out float kind;
void main() { gl_Position = vec4(place * scale + shift, 0.0, 1.0); gl_PointSize = size; tint = colour; kind = shape; }`;
const FRAGMENT = `#version 300 es
precision mediump float; precision mediump sampler2DArray; in vec4 tint; flat in float kind; uniform sampler2DArray shapes; uniform float detail; out vec4 seen;
void main() { float edge = 1.0 - smoothstep(0.72, 1.0, length(gl_PointCoord - 0.5) * 2.0);
  if (kind > 0.5 && detail >= 0.0) edge = textureLod(shapes, vec3(gl_PointCoord, kind), detail).a;
  seen = vec4(tint.rgb, 1.0) * tint.a * edge; }`;
const CELL = 64; // pixels of a shape's picture
const CELLS = 128;
const TOOLS = 50; // pixels on the left that buttons cover
export const NEAR = 14; // pixels within which a point is meant
export const DWELL = 125; // milliseconds before a point under the pointer is shown

export class ScatterMap {
  constructor(canvas, overlay, act, plain = false) {
    Object.assign(this, { canvas, overlay, act, plain, count: 0, zoom: 1, centre: [0, 0], spread: [1, 1], mode: "pan", marks: {}, lasso: null, chosen: null, shapes: null });
    this.gl = plain ? null : canvas.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: true, preserveDrawingBuffer: false });
    if (this.gl) this.setUp();
    else this.pen = canvas.getContext("2d");
    this.pointers = new Map();
    this.listen();
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(canvas);
  }

  setUp() {
    const gl = this.gl;
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    gl.useProgram(program);
    this.at = Object.fromEntries(["scale", "shift", "size", "detail"].map((name) => [name, gl.getUniformLocation(program, name)]));
    this.buffers = {};
    for (const [name, size, type, normal] of [["place", 2, gl.FLOAT, false], ["colour", 4, gl.UNSIGNED_BYTE, true], ["shape", 1, gl.UNSIGNED_BYTE, false]]) {
      this.buffers[name] = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
      const slot = gl.getAttribLocation(program, name);
      gl.enableVertexAttribArray(slot);
      gl.vertexAttribPointer(slot, size, type, normal, 0, 0);
    }
    this.drawShapes();
    this.buffers.chosen = gl.createBuffer();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => {
      this.setUp();
      if (this.places) this.setPlaces(this.places, false);
      if (this.colours) this.setColours(this.colours, this.shapes);
    });
  }

  // Pictures of all shapes, one layer each, also small ones.
  drawShapes() {
    const gl = this.gl;
    const sheet = Object.assign(document.createElement("canvas"), { width: CELL, height: CELL * SHAPES.length });
    const pen = sheet.getContext("2d");
    SHAPES.forEach((path, place) => {
      pen.setTransform(CELL / 16, 0, 0, CELL / 16, 0, place * CELL);
      pen.fill(new Path2D(path));
    });
    gl.bindTexture(gl.TEXTURE_2D_ARRAY, gl.createTexture());
    const { data } = pen.getImageData(0, 0, sheet.width, sheet.height);
    gl.texImage3D(gl.TEXTURE_2D_ARRAY, 0, gl.RGBA8, CELL, CELL, SHAPES.length, 0, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(data.buffer));
    gl.generateMipmap(gl.TEXTURE_2D_ARRAY);
  }

  upload(name, data) {
    if (!this.gl) return;
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[name]);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, data, this.gl.STATIC_DRAW);
  }

  setPlaces(places, move = true) {
    this.places = places;
    this.count = places.length / 2;
    // points by cells, so that the one under the pointer is found at once
    const cell = (row) => {
      const x = Math.min(CELLS - 1, Math.max(0, Math.floor(((places[2 * row] + 1) / 2) * CELLS)));
      const y = Math.min(CELLS - 1, Math.max(0, Math.floor(((places[2 * row + 1] + 1) / 2) * CELLS)));
      return y * CELLS + x;
    };
    const starts = new Int32Array(CELLS * CELLS + 1);
    for (let row = 0; row < this.count; row++) starts[cell(row) + 1]++;
    for (let i = 0; i < CELLS * CELLS; i++) starts[i + 1] += starts[i];
    const next = starts.slice();
    const rows = new Int32Array(this.count);
    for (let row = 0; row < this.count; row++) rows[next[cell(row)]++] = row;
    this.cells = { starts, rows };
    this.spread = [0.05, 0.05];
    for (let i = 0; i < places.length; i++) this.spread[i % 2] = Math.max(this.spread[i % 2], Math.abs(places[i]));
    this.upload("place", places);
    if (!this.colours || this.colours.length !== this.count * 4) this.setColours(new Uint8Array(this.count * 4).fill(128));
    if (move) this.fit();
  }

  // shapes: places in SHAPES, null for discs alone
  setColours(colours, shapes = null) {
    Object.assign(this, { colours, shapes });
    this.upload("colour", colours);
    this.upload("shape", shapes ?? new Uint8Array(this.count));
    this.draw();
  }

  setChosen(rows) {
    this.chosen = rows && rows.length ? Uint32Array.from(rows) : null;
    if (this.gl && this.chosen) {
      this.gl.bindBuffer(this.gl.ELEMENT_ARRAY_BUFFER, this.buffers.chosen);
      this.gl.bufferData(this.gl.ELEMENT_ARRAY_BUFFER, this.chosen, this.gl.STATIC_DRAW);
    }
    this.draw();
  }

  // marks: { focus, hover, rows: [[row, colour, sign]], lines: [[[x, y], [x, y], colour]], spots: [[x, y, colour, hollow, shape, radius]], words: [[x, y, text]] }
  setMarks(marks) {
    this.marks = { ...this.marks, ...marks };
    this.draw();
  }

  fit() {
    this.zoom = 0.92;
    this.centre = [0, 0];
    this.draw();
  }

  resize() {
    const dense = Math.min(window.devicePixelRatio || 1, 2);
    const [width, height] = [Math.max(1, Math.round(this.canvas.clientWidth * dense)), Math.max(1, Math.round(this.canvas.clientHeight * dense))];
    if (width === this.canvas.width && height === this.canvas.height) return;
    for (const canvas of [this.canvas, this.overlay]) Object.assign(canvas, { width, height });
    this.dense = dense;
    this.paint(); // at once: a canvas is empty after its size has changed
  }

  // Pixels in the corner below, on the left, that something else covers.
  setCovered(width, height) {
    this.legend = [width, height];
    this.draw();
  }

  // What is kept free of points on the left, where the tools are too, and below: a narrow map has its legend below.
  get covered() {
    const { dense = 1, legend = [0, 0], canvas } = this;
    if (this.plain) return [0, 0];
    if (canvas.width < 600 * dense) return [TOOLS * dense, Math.min(legend[1] * dense, canvas.height * 0.5)];
    return [Math.max(TOOLS * dense, Math.min(legend[0] * dense, canvas.width * 0.4)), 0];
  }

  get unit() {
    // pixels per unit of the map
    const [left, below] = this.covered;
    return (Math.min((this.canvas.width - left) / this.spread[0], (this.canvas.height - below) / this.spread[1]) / 2) * this.zoom;
  }

  toPixels(x, y) {
    const [left, below] = this.covered;
    return [(this.canvas.width + left) / 2 + (x - this.centre[0]) * this.unit, (this.canvas.height - below) / 2 - (y - this.centre[1]) * this.unit];
  }

  fromPixels(x, y) {
    const [left, below] = this.covered;
    return [(x - (this.canvas.width + left) / 2) / this.unit + this.centre[0], -(y - (this.canvas.height - below) / 2) / this.unit + this.centre[1]];
  }

  placeOf(row) {
    return [this.places[2 * row], this.places[2 * row + 1]];
  }

  get pointSize() {
    const least = this.shapes && this.count <= 20000 ? 7 : 2.2; // a shape has to be made out; of many points when one zooms in
    const crowded = Math.max(least, Math.min(this.count < 100 ? 13 : 9, 150 / Math.sqrt(this.count || 1) + 1.6));
    return Math.min(16, crowded * Math.pow(Math.max(1, this.zoom), 0.4)) * (this.dense ?? 1);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    if (this.count) this.gl ? this.drawPoints() : this.drawFlat();
    this.drawOver();
    if (this.count) this.first ??= performance.now(); // the first picture
  }

  drawPoints() {
    const gl = this.gl;
    const { width, height } = this.canvas;
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const scale = [(2 * this.unit) / width, (2 * this.unit) / height];
    gl.uniform2f(this.at.scale, ...scale);
    const [left, below] = this.covered;
    gl.uniform2f(this.at.shift, left / width - this.centre[0] * scale[0], below / height - this.centre[1] * scale[1]);
    const sized = (size) => {
      gl.uniform1f(this.at.size, size);
      gl.uniform1f(this.at.detail, size < 4 * (this.dense ?? 1) ? -1 : Math.max(0, Math.log2(CELL / size)));
    };
    sized(this.pointSize);
    gl.drawArrays(gl.POINTS, 0, this.count);
    if (this.chosen) {
      sized(this.pointSize * 1.7);
      gl.drawElements(gl.POINTS, this.chosen.length, gl.UNSIGNED_INT, 0);
    }
  }

  drawFlat() {
    const { pen, colours } = this;
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const size = this.pointSize;
    const paths = SHAPES.map((path) => new Path2D(path));
    const dot = (row, wide) => {
      const [x, y] = this.toPixels(...this.placeOf(row));
      pen.fillStyle = `rgb(${colours[4 * row]} ${colours[4 * row + 1]} ${colours[4 * row + 2]} / ${colours[4 * row + 3] / 255})`;
      pen.setTransform(wide / 13, 0, 0, wide / 13, x - wide * 8 / 13, y - wide * 8 / 13);
      pen.fill(paths[this.shapes?.[row] ?? 0]);
    };
    for (let row = 0; row < this.count; row++) dot(row, size);
    for (const row of this.chosen ?? []) dot(row, size * 1.7);
    pen.resetTransform();
  }

  drawOver() {
    const pen = this.overlay.getContext("2d");
    const dense = this.dense ?? 1;
    pen.clearRect(0, 0, this.overlay.width, this.overlay.height);
    if (!this.count) return;
    const style = getComputedStyle(this.overlay);
    const [ink, paper, accent] = ["--ink", "--paper", "--accent"].map((name) => style.getPropertyValue(name).trim());
    const ring = (x, y, radius, colour, wide) => {
      pen.beginPath();
      pen.arc(x, y, radius * dense, 0, 7);
      pen.strokeStyle = colour;
      pen.lineWidth = wide * dense;
      pen.stroke();
    };
    for (const [from, to, colour] of this.marks.lines ?? []) {
      pen.beginPath();
      pen.moveTo(...this.toPixels(...from));
      pen.lineTo(...this.toPixels(...to));
      pen.strokeStyle = colour;
      pen.lineWidth = dense;
      pen.stroke();
    }
    for (const [x, y, colour, hollow, shape = 0, radius = 4] of this.marks.spots ?? []) {
      const [px, py] = this.toPixels(x, y);
      const scale = (radius * dense) / 6;
      pen.setTransform(scale, 0, 0, scale, px - 8 * scale, py - 8 * scale);
      pen.lineWidth = (1.6 * dense) / scale;
      pen.strokeStyle = hollow ? colour : paper;
      pen.fillStyle = hollow ? paper : colour;
      const path = new Path2D(SHAPES[shape]);
      pen.stroke(path);
      if (radius === 4) pen.fill(path); // a larger one goes around
    }
    pen.resetTransform();
    pen.font = `600 ${12 * dense}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    const taken = [];
    for (const [x, y, text] of this.marks.words ?? []) {
      const half = pen.measureText(text).width / 2;
      const free = ([px, py]) => !taken.some(([a, b, c]) => Math.abs(a - px) < half + c + 6 && Math.abs(b - py) < 15 * dense);
      const [px, py] = this.besidePoints(...this.toPixels(x, y), half, free) ?? [];
      if (px === undefined) continue;
      taken.push([px, py, half]);
      pen.lineWidth = 4 * dense;
      pen.strokeStyle = paper;
      pen.strokeText(text, px, py);
      pen.fillStyle = ink;
      pen.fillText(text, px, py);
    }
    for (const [row, colour, sign] of this.marks.rows ?? []) {
      const [x, y] = this.toPixels(...this.placeOf(row));
      ring(x, y, 7, paper, 4);
      ring(x, y, 7, colour, 2.2);
      if (!sign) continue;
      pen.fillStyle = colour;
      pen.fillText(sign, x, y - 15 * dense);
    }
    for (const [row, radius, wide] of [[this.marks.hover, 8, 2], [this.marks.focus, 10, 3]]) {
      if (row === undefined || row === null || row < 0 || row >= this.count) continue;
      const [x, y] = this.toPixels(...this.placeOf(row));
      ring(x, y, radius, paper, wide + 3);
      ring(x, y, radius, row === this.marks.focus ? accent : ink, wide);
    }
    if (this.lasso?.length > 1) {
      pen.beginPath();
      this.lasso.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      pen.globalAlpha = 0.12;
      pen.fillStyle = accent;
      pen.fill();
      pen.globalAlpha = 1;
      pen.setLineDash([5 * dense, 4 * dense]);
      pen.lineWidth = 1.5 * dense;
      pen.strokeStyle = accent;
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  // Where a word can stand near a place: of few points it covers none, of many it stands in their middle. Null: nowhere.
  besidePoints(x, y, half, free) {
    const dense = this.dense ?? 1;
    if (this.count > 3000) return free([x, y]) ? [x, y] : null;
    const reach = this.pointSize / 2 + 2 * dense;
    const covers = ([px, py]) => {
      for (let row = 0; row < this.count; row++) {
        const [ox, oy] = this.toPixels(this.places[2 * row], this.places[2 * row + 1]);
        if (Math.abs(ox - px) < half + reach && Math.abs(oy - py) < 8 * dense + reach) return true;
      }
      return false;
    };
    const [left, below] = this.covered;
    const inside = ([px, py]) => px - half > left && px + half < this.canvas.width && py > 10 * dense && py < this.canvas.height - below - 10 * dense;
    for (const away of [0, 18, 32, 48, 70]) {
      for (const [dx, dy] of away ? [[0, -1], [0, 1], [1, 0], [-1, 0], [1, -1], [-1, -1], [1, 1], [-1, 1]] : [[0, 0]]) {
        const at = [x + dx * (half + away * dense * 0.6), y + dy * away * dense];
        if (inside(at) && free(at) && !covers(at)) return at;
      }
    }
    return this.count > 60 && free([x, y]) ? [x, y] : null;
  }

  // The row nearest to a place of the canvas in pixels, within NEAR of them; -1 where there is none.
  pick(x, y) {
    if (!this.count) return -1;
    const reach = (NEAR * (this.dense ?? 1)) / this.unit;
    const [mx, my] = this.fromPixels(x, y);
    const cell = (value) => Math.min(CELLS - 1, Math.max(0, Math.floor(((value + 1) / 2) * CELLS)));
    let [best, distance] = [-1, reach * reach];
    for (let cy = cell(my - reach); cy <= cell(my + reach); cy++) {
      for (let i = this.cells.starts[cy * CELLS + cell(mx - reach)]; i < this.cells.starts[cy * CELLS + cell(mx + reach) + 1]; i++) {
        const row = this.cells.rows[i];
        const far = (this.places[2 * row] - mx) ** 2 + (this.places[2 * row + 1] - my) ** 2;
        if (far < distance && this.colours[4 * row + 3] > 40) [best, distance] = [row, far];
      }
    }
    return best;
  }

  // The nearest point in a direction, for the arrow keys.
  step(row, dx, dy) {
    const [x, y] = this.placeOf(row);
    let [best, cost] = [row, Infinity];
    for (let other = 0; other < this.count; other++) {
      const [ox, oy] = [this.places[2 * other] - x, this.places[2 * other + 1] - y];
      const along = ox * dx + oy * dy;
      if (along <= 1e-6) continue;
      const price = along + 3 * Math.abs(ox * dy - oy * dx);
      if (price < cost) [best, cost] = [other, price];
    }
    return best;
  }

  inside(outline) {
    const points = outline.map(([x, y]) => this.fromPixels(x, y));
    const thin = points.filter((_, i) => i % Math.max(1, Math.ceil(points.length / 200)) === 0);
    const [xs, ys] = [thin.map((point) => point[0]), thin.map((point) => point[1])];
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const rows = [];
    for (let row = 0; row < this.count; row++) {
      const [x, y] = [this.places[2 * row], this.places[2 * row + 1]];
      if (x < left || x > right || y < low || y > high || this.colours[4 * row + 3] <= 40) continue;
      let odd = false;
      for (let i = 0, j = thin.length - 1; i < thin.length; j = i++) {
        if (ys[i] > y !== ys[j] > y && x < ((xs[j] - xs[i]) * (y - ys[i])) / (ys[j] - ys[i]) + xs[i]) odd = !odd;
      }
      if (odd) rows.push(row);
    }
    return rows;
  }

  zoomAt(x, y, factor) {
    const before = this.fromPixels(x, y);
    this.zoom = Math.max(0.4, Math.min(400, this.zoom * factor));
    const after = this.fromPixels(x, y);
    this.centre = [this.centre[0] + before[0] - after[0], this.centre[1] + before[1] - after[1]];
    this.draw();
  }

  listen() {
    const node = this.overlay;
    const place = (event) => {
      const box = node.getBoundingClientRect();
      return [(event.clientX - box.left) * (this.dense ?? 1), (event.clientY - box.top) * (this.dense ?? 1)];
    };
    node.addEventListener("wheel", (event) => {
      if (this.plain && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoomAt(...place(event), Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) * 0.006));
    }, { passive: false });
    node.addEventListener("dblclick", () => this.fit());
    // A click does not take the keyboard: arrow keys step through frames, and walk on the map once one has tabbed to it.
    node.addEventListener("mousedown", (event) => {
      event.preventDefault();
      document.activeElement?.blur();
    });
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, place(event));
      this.moved = 0;
      this.pressed = true;
      if (this.pointers.size === 1 && this.act.choose && (this.mode === "lasso" || event.shiftKey)) this.lasso = [place(event)];
      else this.lasso = null;
      this.leave();
    });
    node.addEventListener("pointermove", (event) => {
      const now = place(event);
      if (!this.pressed) return this.dwell(now, event);
      const before = this.pointers.get(event.pointerId);
      if (!before) return;
      this.moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
      if (this.pointers.size === 2) {
        const other = [...this.pointers.entries()].find(([id]) => id !== event.pointerId)[1];
        const [was, is] = [before, now].map((point) => Math.hypot(point[0] - other[0], point[1] - other[1]));
        this.zoomAt((now[0] + other[0]) / 2, (now[1] + other[1]) / 2, is / Math.max(1, was));
      } else if (this.lasso) this.lasso.push(now);
      else if (this.moved > 3) {
        this.centre = [this.centre[0] - (now[0] - before[0]) / this.unit, this.centre[1] + (now[1] - before[1]) / this.unit];
      }
      this.pointers.set(event.pointerId, now);
      this.draw();
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      node.addEventListener(kind, (event) => {
        const now = place(event);
        this.pointers.delete(event.pointerId);
        if (this.pointers.size) return;
        this.pressed = false;
        const outline = this.lasso;
        this.lasso = null;
        if (kind === "pointerup" && outline?.length > 8 && this.moved > 20) this.act.choose(this.inside(outline));
        else if (kind === "pointerup" && this.moved <= 6) {
          const row = this.pick(...now);
          if (row >= 0) this.act.focus(row, event);
        }
        this.draw();
      });
    }
    node.addEventListener("pointerleave", () => this.leave());
  }

  dwell(now, event) {
    if (event.pointerType === "touch") return;
    const row = this.pick(...now);
    if (row === this.under) return;
    this.leave();
    this.under = row;
    this.overlay.style.cursor = row >= 0 ? "pointer" : "";
    if (row >= 0) this.timer = setTimeout(() => this.act.hover(row, event.clientX, event.clientY), DWELL);
  }

  leave() {
    clearTimeout(this.timer);
    if (this.under !== undefined && this.under >= 0) this.act.hover(-1);
    this.under = -1;
  }

  end() {
    this.watch.disconnect();
    clearTimeout(this.timer);
  }
}

// The middle of the fullest part of a cloud, as a name in the middle of all of it may stand where none of its points is.
function densest(points) {
  const cells = new Map();
  for (const [x, y] of points) {
    const key = `${Math.round(x * 5)} ${Math.round(y * 5)}`;
    const [count, left, top] = cells.get(key) ?? [0, 0, 0];
    cells.set(key, [count + 1, left + x, top + y]);
  }
  const [count, x, y] = [...cells.values()].reduce((a, b) => (b[0] > a[0] ? b : a));
  return [x / count, y / count];
}

// The name of every category where most of it lies, the largest first.
export function categoryNames(categories, values, places, passes) {
  const found = categories.map(() => []);
  const stride = Math.max(1, Math.floor(values.length / 20000));
  for (let row = 0; row < values.length; row += stride) if (values[row] >= 0 && passes(row)) found[values[row]].push([places[2 * row], places[2 * row + 1]]);
  return found.map((points, i) => [points.length, categories[i], points]).filter(([count]) => count > 0).sort((a, b) => b[0] - a[0]).map(([, text, points]) => [...densest(points), text.length > 28 ? text.slice(0, 27) + "…" : text]);
}
