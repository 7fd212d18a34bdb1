// One step as the paper's mechanism table, with its figure drawn into the rows: where each candidate's logit was and went.

import { aloud, el, svg } from "./dom.js";
import { evidence, number, strength } from "./explain.js";
import { support } from "./words.js";

const SHOWN = 8;
const WIDE = 220;
const TALL = 30;
const EDGE = 10;

/** The table of a traced token; `all` shows every candidate. */
export function mechanism(token, all = false) {
  const rows = select(token, all);
  const axis = scale(rows.flatMap((one) => [one.z, one.z_after]));
  const head = el("tr", {},
    el("th", { scope: "col" }, "Candidate"),
    el("th", { scope: "col", class: "figure" }, aloud("Logit before and after, drawn"), ruler(axis)),
    ...["Before", "After", "Evidence", "Normal", "Strength"].map((name) => el("th", { scope: "col", class: "number" }, name)));
  const body = rows.map((one) => row(one, token, axis));
  return el("table", { class: "mechanism" },
    el("caption", { class: "hidden" }, "Candidates of this step, before and after the edit"),
    el("thead", {}, head), el("tbody", {}, ...body));
}

/** How many candidates `mechanism` leaves out. */
export const left = (token) => token.candidates.length - select(token, false).length;

function select(token, all) {
  const winners = [token.winner_before?.token, token.winner_after?.token, token.token];
  return [...token.candidates].sort((one, other) => other.z - one.z)
    .filter((one, place) => all || place < SHOWN || winners.includes(one.token));
}

function row(one, token, axis) {
  const kind = role(one, token);
  const name = el("th", { scope: "row" }, el("span", { class: "candidate" }, one.text.trim() || "␣"), ...badges(one, token));
  const cells = [number(one.z), number(one.z_after), evidence(one.dmrr), evidence(one.b), strength(one.s)]
    .map((text) => el("td", { class: "number" }, text));
  return el("tr", { class: `${kind} ${support(one)}` }, name, el("td", { class: "figure" }, dumbbell(one, axis)), ...cells);
}

function role(one, token) {
  if (one.token === token.winner_after?.token) return "won";
  return one.token === token.winner_before?.token ? "lost" : "other";
}

function badges(one, token) {
  const found = [];
  if (one.token === token.winner_before?.token && token.replaced) found.push("was ahead");
  if (one.token === token.token) found.push("written");
  return found.map((text) => el("span", { class: "badge" }, text));
}

/** Round numbers that hold all values. */
function scale(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const rough = Math.max(high - low, 1e-3) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough);
  const from = Math.floor(low / step) * step;
  const to = Math.max(Math.ceil(high / step) * step, from + step);
  const ticks = Array.from({ length: Math.round((to - from) / step) + 1 }, (_, place) => from + place * step);
  const at = (value) => EDGE + ((value - from) / (to - from)) * (WIDE - 2 * EDGE);
  return { ticks, at, digits: Math.max(0, -Math.floor(Math.log10(step))) };
}

function ruler({ ticks, at, digits }) {
  const texts = ticks.map((tick) => svg("text", { x: at(tick), y: 14, "text-anchor": "middle" }, tick.toFixed(digits)));
  return svg("svg", { viewBox: `0 0 ${WIDE} 18`, class: "ruler", "aria-hidden": "true" }, ...texts);
}

/** A filled dot where the logit was, an open one where it went, an arrow of length beta * s between them. */
function dumbbell(one, { ticks, at }) {
  const middle = TALL / 2;
  const before = at(one.z);
  const after = at(one.z_after);
  const lines = ticks.map((tick) => svg("line", { x1: at(tick), x2: at(tick), y1: 0, y2: TALL, class: "grid" }));
  const parts = [];
  if (before - after > 12) {
    const tip = after + 6;
    parts.push(svg("line", { x1: before, x2: tip + 5, y1: middle, y2: middle, class: "shift" }));
    parts.push(svg("path", { d: `M${tip} ${middle} l7 -4 v8 z`, class: "head" }));
  }
  if (one.shift > 0) parts.push(svg("circle", { cx: after, cy: middle, r: 4.5, class: "after" }));
  parts.push(svg("circle", { cx: before, cy: middle, r: 4.5, class: "before" }));
  return svg("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, class: "dumbbell", "aria-hidden": "true" }, ...lines, ...parts);
}
