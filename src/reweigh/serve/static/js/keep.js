// Save what is shown: as a link, the trace as a file, a picture with its map.

import { el } from "./dom.js";
import { composite } from "./heat.js";

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

const SIDE = 768;

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

/** The pictures side by side as they are painted, with a line that says what is seen. */
export function picture(pictures, heat) {
  const found = heat.told?.layers.find((one) => one.layer === heat.layer);
  const smooth = document.getElementById("heat-smooth").checked;
  const parts = pictures.map((one, place) =>
    composite(one, found ? found.grids.filter((grid) => grid.image === place && grid.covers) : [], smooth, SIDE));
  const line = found ? 44 : 0;
  const canvas = el("canvas", {
    width: parts.reduce((sum, part) => sum + part.width, 0),
    height: Math.max(...parts.map((part) => part.height)) + line,
  });
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  let left = 0;
  for (const part of parts) {
    context.drawImage(part, left, 0);
    left += part.width;
  }
  if (found) {
    context.fillStyle = "#1d232b";
    context.font = "20px system-ui, sans-serif";
    context.fillText(`evidence of “${heat.told.shown.trim()}” after layer ${heat.layer}`, 12, canvas.height - 15, canvas.width - 24);
  }
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
