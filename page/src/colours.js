// Marks of categories: seven colours that people with any colour vision tell apart, on light and on dark pages; when they have all
// been used, they come again in another shape. The shapes are paths of a box of 16, for the legend, for canvases and for WebGL.
import { signal } from "@preact/signals";

const LIGHT = ["#0f7ece", "#e07b1f", "#2b7951", "#c35090", "#3fa3d5", "#892c16", "#5c4a9e"];
const DARK = ["#99b7f9", "#f49624", "#44bc7e", "#c687be", "#b8e0ff", "#cd5a41", "#9a84f1"];
export const SHAPES = [
  "M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12z",
  "M8 .8L15.4 14H.6z",
  "M2.6 2.6h10.8v10.8H2.6z",
  "M6 1h4v5h5v4h-5v5H6v-5H1V6h5z",
  "M8 .4L15.6 8 8 15.6.4 8z",
  "M8 .8a7.2 7.2 0 1 0 0 14.4a7.2 7.2 0 1 0 0-14.4zM8 4.8a3.2 3.2 0 1 1 0 6.4a3.2 3.2 0 1 1 0-6.4z",
  "M3.5 .8L8 5.3 12.5 .8 15.2 3.5 10.7 8 15.2 12.5 12.5 15.2 8 10.7 3.5 15.2 .8 12.5 5.3 8 .8 3.5z",
  "M8 15.2L.6 2h14.8z",
  "M1 1.2h14L9.5 8 15 14.8H1L6.5 8z",
];
export const DIAMOND = 4; // among the shapes
export const MARKS = LIGHT.length * SHAPES.length; // categories beyond these are grey, and named where the pointer rests
const RAMP = ["#00224e", "#35456c", "#575d6d", "#7c7b78", "#a59c74", "#d2c060", "#fee838"]; // cividis
const DARK_RAMP = ["#4a63a6", "#5f709f", "#7b8091", "#959382", "#b3a974", "#d7c65c", "#fee838"]; // its low end would not be seen on a dark page

const scheme = matchMedia("(prefers-color-scheme: dark)");
const darkness = signal(scheme.matches); // a signal, so that map, legend and marks change together
scheme.addEventListener("change", () => (darkness.value = scheme.matches));
export const dark = () => darkness.value;
export const palette = () => (dark() ? DARK : LIGHT);
const marked = (place) => place >= 0 && place < MARKS;
export const colourOf = (place) => (marked(place) ? palette()[place % LIGHT.length] : dark() ? "#8793a3" : "#9aa5b1");
export const lightColourOf = (place) => (marked(place) ? LIGHT[place % LIGHT.length] : "#9aa5b1"); // for paper
export const shapeOf = (place) => (marked(place) ? Math.floor(place / LIGHT.length) : 0);

export function parse(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// What can be read on a colour.
export function inkOn(hex) {
  const [r, g, b] = parse(hex).map((value) => (value / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.22 ? "#10161d" : "#ffffff";
}

export function ramp(share, paper = false) {
  const stops = (dark() && !paper ? DARK_RAMP : RAMP).map(parse);
  const at = Math.max(0, Math.min(0.9999, share)) * (stops.length - 1);
  const low = Math.floor(at);
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (at - low)));
}

export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

// Colours of points by category, four bytes each; hidden ones and those without a category are faint.
export function categoryColours(values, hidden, alpha) {
  const out = new Uint8Array(values.length * 4);
  const table = new Map();
  values.forEach((value, row) => {
    if (!table.has(value)) table.set(value, [...parse(colourOf(value)), hidden.has(value) ? 18 : value < 0 ? alpha * 0.7 : alpha]);
    out.set(table.get(value), row * 4);
  });
  return out;
}

// Shapes of points by category; null where all are discs.
export function categoryShapes(values, categories) {
  return categories.length > LIGHT.length ? Uint8Array.from(values, shapeOf) : null;
}
