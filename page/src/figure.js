// Figures for a paper: the map, the timeline and an ethogram as SVG, on white; a PNG is made of the SVG. And a link to the view.
import { tickStep } from "./timeline.js";
import { MARKS, SHAPES, css, lightColourOf, ramp, shapeOf } from "./colours.js";

const escaped = (text) => String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
const text = (x, y, words, more = "") => `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escaped(words)}</text>`;
const sheet = (width, height, parts) => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#18212b"><rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`;
const mark = (place, x, y, size) => `<path transform="translate(${(x - size / 2).toFixed(1)} ${(y - size / 2).toFixed(1)}) scale(${(size / 16).toFixed(3)})" d="${SHAPES[shapeOf(place)]}"/>`;

function legend(names, x, top) {
  return names.filter(([, name]) => name).map(([place, name], i) => `<g fill="${lightColourOf(place)}">${mark(place, x, top + i * 18, 11)}</g>${text(x + 12, top + i * 18 + 4, name)}`);
}

// What the map shows now: the same view, the same marks.
export function mapFigure(map, { title, categories, values }, hidden) { // what a filter hides is faint on the map, and left out here
  const dense = map.dense ?? 1;
  const [width, height] = [map.canvas.width / dense, map.canvas.height / dense];
  const size = Math.max(3, (map.pointSize / dense) * 1.2);
  const [low, high] = map.range ?? [0, 1];
  const groups = new Map();
  for (let row = 0; row < map.count; row++) {
    const [x, y] = map.toPixels(...map.placeOf(row)).map((one) => one / dense);
    if (x < 0 || y < 0 || x > width || y > height || map.colours[4 * row + 3] < 40) continue;
    const colour = categories ? lightColourOf(values[row]) : Number.isFinite(values[row]) ? css(ramp((values[row] - low) / (high - low || 1), true)) : "#b9c2cc";
    if (!groups.has(colour)) groups.set(colour, []);
    groups.get(colour).push(mark(categories ? values[row] : 0, x, y, size));
  }
  const parts = [...groups].map(([colour, marks]) => `<g fill="${colour}" fill-opacity="0.9">${marks.join("")}</g>`);
  const names = categories ? [...categories.entries()].filter(([place]) => place < MARKS && !hidden.has(place)) : [];
  parts.push(text(width + 4, 20, title, 'font-weight="bold"'), ...legend(names, width + 10, 40));
  if (!categories) parts.push(text(width + 4, 40, `${low.toFixed(2)} (dark) to ${high.toFixed(2)} (light)`));
  return sheet(width + 200, Math.max(height, 50 + names.length * 18), parts);
}

// Rows of bars over time: rows are [name, [{ start, stop, label }]]; places gives the mark of a label.
export function barsFigure(rows, unit, placeOf) {
  const [left, width, step] = [170, 700, 26];
  const low = rows.flatMap(([, bars]) => bars).reduce((a, one) => Math.min(a, one.start), Infinity);
  const high = rows.flatMap(([, bars]) => bars).reduce((a, one) => Math.max(a, one.stop), -Infinity);
  const x = (time) => left + ((time - low) / (high - low || 1)) * width;
  const bottom = 30 + rows.length * step;
  const parts = rows.flatMap(([name, bars], i) => [
    text(left - 8, 30 + i * step + 12, name.length > 26 ? `…${name.slice(-25)}` : name, 'text-anchor="end"'),
    ...bars.map((one) => `<rect x="${x(one.start).toFixed(1)}" y="${30 + i * step}" width="${Math.max(0.8, x(one.stop) - x(one.start)).toFixed(1)}" height="${step - 8}" fill="${lightColourOf(placeOf(one.label, name))}"><title>${escaped(one.label)}</title></rect>`),
  ]);
  const every = tickStep((high - low) / 6);
  for (let time = Math.ceil(low / every) * every; time <= high + 1e-9; time += every) parts.push(text(x(time), bottom + 16, `${Number(time.toFixed(2))} ${unit}`, 'text-anchor="middle" fill="#566372"'));
  const seen = new Map(rows.flatMap(([name, bars]) => bars.map((one) => [one.label, placeOf(one.label, name)])));
  parts.push(...legend([...seen].map(([name, place]) => [place, name]), left + width + 24, 40));
  return sheet(left + width + 200, Math.max(bottom + 30, 60 + seen.size * 18), parts);
}

export async function save(markup, name, kind) {
  let file = new Blob([markup], { type: "image/svg+xml" });
  if (kind === "png") {
    const image = new Image();
    image.src = `data:image/svg+xml,${encodeURIComponent(markup)}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width * 3, height: image.height * 3 }); // 300 dpi and more
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    file = await new Promise((done) => canvas.toBlob(done, "image/png"));
  }
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `${name}.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
