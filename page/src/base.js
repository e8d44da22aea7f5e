// What every part of the page stands on: facts of the server, and words to the person before it.
import { signal } from "@preact/signals";

export const facts = signal(null); // what /api/state says
export const problem = signal(""); // why the server does not answer
export const notice = signal("");

let clearing = 0;
export function say(text) {
  notice.value = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => (notice.value = ""), 5000);
}

export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.gone) problem.value = error.message;
    else say(error.message);
    return null;
  }
}

export const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
