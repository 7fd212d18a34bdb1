// The candidates of one step as a table: how far each logit was lowered, and why.

import { aloud, el, svg } from "./dom.js";
import { whole } from "./pieces.js";

const milli = (value) => (1000 * value).toFixed(2);
export const number = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const strength = (value) => (value === null || value === undefined ? "not judged" : value.toFixed(2));
const evidence = (value) => (value === null || value === undefined ? "–" : milli(value));

/** The table of a step that was traced, or its word's own numbers. */
export function candidatesTable(step) {
  if (!step.candidates.length) return [numbers(step.token), missing(step.answer)];
  const region = el("div", { class: "scroll", role: "region", "aria-label": "Candidates of this step", tabindex: 0 }, mechanism(step));
  return [region, columns(step)];
}

function columns({ answer: { facts }, token, candidates }) {
  const left = token.candidates.length - candidates.length;
  const edited = facts.beta ? ` The edit lowers a score by at most ${number(facts.beta)}, from the filled dot to the open one.` : "";
  return el("p", { class: "note" },
    `The word with the highest score (logit) is written.${edited} Support is how high the word ranks, on average, at the picture's ` +
    `positions (layer ${facts.layer}), in thousandths; usual is its mean in other pictures.` +
    (left ? ` ${left} more candidates are in the trace.` : ""));
}

function numbers(token) {
  const listed = [["Support", evidence(token.dmrr)], ["Usual", evidence(token.b)], ["Strength", strength(token.s)]];
  return el("dl", { class: "numbers" }, ...listed.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function missing(answer) {
  const why = answer.checked
    ? "Support and usual support are in thousandths. Nothing was written, so there are no candidates."
    : "Support and usual support are in thousandths. This decoder's candidates are not traced.";
  return el("p", { class: "note" }, why);
}

const SHOWN = 8;
const WIDE = 150;
const TALL = 26;
const EDGE = 10;

/** The candidates worth showing: the highest, and those that won. */
export function shown(token) {
  const winners = [token.winner_before?.token, token.winner_after?.token, token.token];
  return [...token.candidates].sort((one, other) => other.z - one.z)
    .filter((one, place) => place < SHOWN || winners.includes(one.token));
}

function mechanism({ word, token, candidates, words }) {
  const axis = scale(candidates.flatMap((one) => [one.z, one.z_after]));
  const head = el("tr", {},
    el("th", { scope: "col" }, "Candidate"),
    el("th", { scope: "col", class: "figure" }, aloud("Score before and after, drawn"), ruler(axis)),
    ...["Before", "After", "Support", "Usual"].map((name) => el("th", { scope: "col", class: "number" }, name)));
  const named = { ...words, [token.token]: word.text };
  return el("table", { class: "mechanism" },
    el("caption", { class: "hidden" }, "Candidates of this step, before and after the edit"),
    el("thead", {}, head), el("tbody", {}, ...candidates.map((one) => row(one, token, axis, named))));
}

function row(one, token, axis, words) {
  const kind = role(one, token);
  const mark = kind === "lost" && token.replaced ? "del" : "span";
  const name = el("th", { scope: "row" }, el(mark, { class: mark === "del" ? "candidate suppressed" : "candidate", title: `token “${one.text}”` }, whole(one, words)));
  const cells = [number(one.z), number(one.z_after), evidence(one.dmrr), evidence(one.b)].map((text) => el("td", { class: "number" }, text));
  return el("tr", { class: kind }, name, el("td", { class: "figure" }, dumbbell(one, axis)), ...cells);
}

function role(one, token) {
  if (one.token === token.winner_after?.token) return "won";
  return one.token === token.winner_before?.token ? "lost" : "other";
}

/** An axis of round numbers that covers all values. */
function scale(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const rough = Math.max(high - low, 1e-3) / 2;
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
