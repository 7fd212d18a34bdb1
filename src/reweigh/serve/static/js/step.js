// The panel that opens one word: a sentence, its pieces if there are several, and the candidates of the step.

import { aloud, byId, el, svg } from "./dom.js";
import { judge, speaker, support } from "./words.js";

const EMPTY = byId("step-say").textContent.replace(/\s+/g, " ");

export class StepPanel {
  constructor() {
    this.all = false;
    this.clear();
  }

  /** Reset the panel. */
  clear() {
    this.shown = null;
    byId("step").classList.remove("opened");
    byId("step-title").textContent = "Why this word?";
    byId("step-say").textContent = EMPTY;
    byId("step-moves").hidden = true;
    byId("step-body").replaceChildren();
  }

  /** Open a word of an answer; `token` is one of its pieces. */
  open(answer, place, token = null) {
    const word = answer.words[place];
    const one = token ?? word.tokens.find((piece) => piece.replaced) ?? speaker(word);
    this.shown = { answer, place };
    byId("step").classList.add("opened");
    byId("step-moves").hidden = false;
    byId("step-title").replaceChildren(`“${word.text}”`, el("small", {}, ` ${this.#where(answer, one)}`));
    byId("step-say").textContent = tell(one, answer.facts, judge(word));
    byId("step-body").replaceChildren(...this.#body(answer, place, word, one));
  }

  #where(answer, token) {
    return answer.checked ? "in your text" : `step ${token.step + 1} of ${answer.name}`;
  }

  #body(answer, place, word, token) {
    const parts = [];
    if (word.tokens.length > 1) parts.push(this.#pieces(answer, place, word, token));
    if (token.candidates?.length) parts.push(this.#table(answer, place, token), columns(answer));
    else parts.push(numbers(token), missing(answer));
    return parts;
  }

  /** A word of several tokens is several steps. */
  #pieces(answer, place, word, token) {
    const buttons = word.tokens.map((one) => {
      const button = el("button", { type: "button", "aria-pressed": String(one === token) }, one.text.trim() || "␣");
      button.addEventListener("click", () => this.open(answer, place, one));
      return button;
    });
    return el("div", { class: "row pieces" }, el("span", { class: "note" }, "Written in pieces; each is a step:"), ...buttons);
  }

  #table(answer, place, token) {
    const region = el("div", { class: "scroll", role: "region", "aria-label": "Candidates of this step", tabindex: 0 },
      mechanism(token, this.all));
    const rest = left(token);
    if (!rest) return region;
    const button = el("button", { type: "button", class: "quiet" },
      this.all ? "Only the highest" : `${rest} more candidate${rest > 1 ? "s" : ""}`);
    button.addEventListener("click", () => {
      this.all = !this.all;
      this.open(answer, place, token);
    });
    return el("div", {}, region, button);
  }
}

function columns({ facts }) {
  const scale = facts.scale ? ` The scale is ${evidence(facts.scale)}.` : "";
  const dots = facts.beta ? el("span", { class: "figure" }, " The filled dot is the logit before the edit, the open one after it.") : null;
  const edited = facts.beta ? `; the edit lowers a logit by at most ${number(facts.beta)}` : "";
  return el("p", { class: "note" },
    `A logit is the model's score for a word; the word with the highest logit is written${edited}.`, dots,
    ` Evidence is how high the word ranks, on average, at the picture's positions (layer ${facts.layer}); normal is what it has in other pictures; both in ` +
    `thousandths. Strength is how far evidence falls short, from 0 to 1, as a share of the scale.${scale}`);
}

function numbers(token) {
  const listed = [["Evidence", evidence(token.dmrr)], ["Normal", evidence(token.b)], ["Strength", strength(token.s)]];
  return el("dl", { class: "numbers" }, ...listed.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function missing(answer) {
  const why = answer.checked
    ? "Evidence and normal values are in thousandths. Nothing was written, so there are no candidates."
    : "Evidence and normal values are in thousandths. This decoder's candidates are not traced.";
  return el("p", { class: "note" }, why);
}

const quoted = (text) => `“${text.trim() || "␣"}”`;
const milli = (value) => (1000 * value).toFixed(2);
export const number = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const strength = (value) => (value === null || value === undefined ? "not judged" : value.toFixed(2));
const evidence = (value) => (value === null || value === undefined ? "–" : milli(value));

/** What happened at the step of a token, in one or two sentences; `kind` is how its word is judged. */
function tell(token, { decoder, beta }, kind) {
  if (token.replaced) return `${heldBack(token)} ${quoted(token.text)} was written instead.`;
  if (kind === "plain") return `${quoted(token.text)} is not judged: small words, numbers and punctuation say little about a picture.`;
  if (!token.candidates) return `${quoted(token.text)}: ${standing(token)}`;
  const own = token.candidates.find((one) => one.token === token.token);
  if (decoder === "base" || beta === 0) return `${quoted(token.text)} was written; nothing was edited. ${capital(standing(token))}`;
  if (own?.shift > 0) return `${quoted(token.text)} lost ${number(own.shift)} but was still written: ${standing(token)}`;
  return `${quoted(token.text)} was written and lost nothing: ${standing(token)}`;
}

function heldBack(token) {
  const lost = token.candidates.find((one) => one.token === token.replaced.token);
  if (!lost || lost.s === null) return `${quoted(token.replaced.text)} was ahead.`;
  return (
    `${quoted(token.replaced.text)} was ahead, but the picture shows less of it than usual ` +
    `(${milli(lost.dmrr)}, usually ${milli(lost.b)}), so it lost ${number(lost.shift)}.`
  );
}

/** How a token's evidence compares with its reference. */
function standing(token) {
  if (token.s === null || token.s === undefined)
    return "it is not judged, because what is normal for it is unknown, and it is never held back.";
  const numbers = `(${milli(token.dmrr)}, usually ${milli(token.b)})`;
  if (token.s === 0) return `the picture shows at least as much of it as usual ${numbers}.`;
  const much = support(token) === "short" ? "much less" : "a little less";
  return `the picture shows ${much} of it than usual ${numbers}.`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

const SHOWN = 8;
const WIDE = 220;
const TALL = 30;
const EDGE = 10;

/** The table of a traced token; `all` shows every candidate. */
function mechanism(token, all = false) {
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
const left = (token) => token.candidates.length - select(token, false).length;

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

/** An axis of round numbers that covers all values. */
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
