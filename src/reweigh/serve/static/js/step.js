// The panel that opens one word: a sentence, its pieces where it has several, and the table of the step.

import { byId, el } from "./dom.js";
import { evidence, number, strength, tell } from "./explain.js";
import { left, mechanism } from "./mechanism.js";
import { judge, speaker } from "./words.js";

const EMPTY = byId("step-say").textContent.replace(/\s+/g, " ");

export class StepPanel {
  constructor() {
    this.all = false;
    this.clear();
  }

  /** Back to how the page begins. */
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
  const edited = facts.beta ? `; the filled dot is the logit before, the open one after, at most ${number(facts.beta)} lower` : "";
  return el("p", { class: "note" },
    `A logit is the model's score for a word; the word with the highest logit is written${edited}. Evidence is how high the word ranks, on ` +
    `average, at the picture's positions (layer ${facts.layer}); normal is what it has in other pictures; both in ` +
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
