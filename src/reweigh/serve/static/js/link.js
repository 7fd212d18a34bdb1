// What the page shows, as the part of its address behind the #, and back.

/** Pictures up to this many characters travel in the link; a longer address is cut by some programs. */
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

/** The state of an address; what is missing or no number is null. */
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
