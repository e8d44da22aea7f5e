// Time and point of view of everything that moves on a page: one loop advances all clocks and paints all stages.
import { signal } from "@preact/signals";

export const SPEEDS = [0.25, 0.5, 1, 1.5, 2, 4];
export const view = { yaw: -0.45, pitch: 0.16, zoom: 1 };
export const trail = signal(false);
export const follow = signal(true); // walk along with the person
export const stages = new Set(); // functions that paint a canvas where something has changed
const clocks = new Set();

// Plays from loop[0] to loop[1] over and over; `scale` units of its time pass in a second.
export class Clock {
  constructor(playing = !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    Object.assign(this, { playing: signal(playing), speed: signal(1), time: signal(0), loop: signal(null), passed: 0, scale: () => 1 });
    clocks.add(this);
  }

  advance(seconds) {
    this.passed += seconds; // of small players, which run on their own
    const limits = this.loop.value;
    if (!limits) return;
    const now = this.time.value + seconds * this.scale();
    this.time.value = now >= limits[1] || now < limits[0] ? limits[0] : now;
  }
}

let before = performance.now();
function tick(now) {
  const seconds = Math.min(0.25, (now - before) / 1000);
  before = now;
  for (const clock of clocks) if (clock.playing.value) clock.advance(seconds * clock.speed.value);
  for (const stage of stages) stage();
  requestAnimationFrame(tick);
}
requestAnimationFrame(tick);
