// Colours that people with any colour vision tell apart (after Okabe & Ito, and Tol), for light and dark pages.
const LIGHT = ["#3273b8", "#d9702b", "#23875a", "#b8467f", "#5aa9d6", "#8c6d1f", "#7a5cc0", "#c23b3b", "#4a8f29", "#6b7280", "#0f766e", "#a16207"];
const DARK = ["#6cb0f5", "#f29b5c", "#55c08a", "#e67fb2", "#9ad4f2", "#d3b04a", "#b39df0", "#f07a7a", "#9bd06f", "#aab4c0", "#4fd1c0", "#e6b566"];
const RAMP = ["#00224e", "#35456c", "#575d6d", "#7c7b78", "#a59c74", "#d2c060", "#fee838"]; // cividis

export const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
export const palette = () => (dark() ? DARK : LIGHT);
export const colourOf = (place) => (place < 0 ? (dark() ? "#4b5664" : "#b9c2cc") : palette()[place % LIGHT.length]);

export function parse(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

export function ramp(share) {
  const stops = RAMP.map(parse);
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
    if (!table.has(value)) table.set(value, [...parse(colourOf(value)), hidden.has(value) ? 18 : value < 0 ? alpha * 0.55 : alpha]);
    out.set(table.get(value), row * 4);
  });
  return out;
}
