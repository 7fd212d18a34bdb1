// Save what is shown: as a link, or the trace as a file.

import { el } from "./dom.js";

/** Pictures up to this many characters go into the link; some programs cut longer addresses. */
export const LONGEST = 30000;

const NUMBERS = ["scene", "beta", "layer", "step"];
const TEXTS = ["question", "beside", "picture", "answer"];

/** The address of a state; fields that are null are left out. */
export function write(state) {
  const listed = [...NUMBERS, ...TEXTS]
    .filter((name) => state[name] !== null && state[name] !== undefined && state[name] !== "")
    .map((name) => [name, String(state[name])]);
  return `#${new URLSearchParams(listed)}`;
}

/** The state in an address; a field that is missing or not a number is null. */
export function read(hash) {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  const state = {};
  for (const name of TEXTS) state[name] = found.get(name);
  for (const name of NUMBERS) {
    const text = found.get(name);
    const value = text === null || text.trim() === "" ? NaN : Number(text);
    state[name] = Number.isFinite(value) && value >= 0 ? value : null;
  }
  for (const name of ["scene", "step", "layer"]) if (!Number.isInteger(state[name])) state[name] = null;
  return state;
}

export function save(name, blob) {
  const link = el("a", { download: name });
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Everything known of some answers, named as the server names it. */
export function trace({ facts, question, pictures, answers }) {
  const value = {
    model: facts.model, version: facts.version, question, pictures: pictures.map(({ name }) => name),
    answers: answers.filter((one) => one.facts).map((one) => ({ name: one.name, text: one.text, ...one.facts, tokens: one.tokens })),
  };
  return new Blob([JSON.stringify(value, null, 1)], { type: "application/json" });
}
