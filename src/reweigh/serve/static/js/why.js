// The panel that answers "why this word?": one sentence, and maps of the suppressed and the written word side by side.

import { byId, el } from "./dom.js";
import { ruler } from "./heat.js";
import { whole } from "./pieces.js";
import { candidatesTable, number, shown } from "./step.js";
import { judge, ratio, speaker, support } from "./words.js";

export class Why {
  /** `truth(answer, place, held)` says what is known of a word: {object, there}, or null. */
  constructor({ heat, pieces, truth, failed }) {
    Object.assign(this, { heat, pieces, truth, failed });
    this.shown = null;
    this.layer = null;
    byId("scale").append(ruler());
    byId("heat-smooth").addEventListener("change", () => this.#draw());
  }

  close() {
    this.shown = this.found = null;
    byId("step").hidden = true;
  }

  /** Open a word of an answer; `layer` is the one that its maps show first. */
  async open(answer, place, layer) {
    const here = (this.shown = { answer, place });
    this.found = null;
    this.layer = layer;
    this.#tell(this.#step(answer, place, {}));
    byId("maps").replaceChildren();
    byId("map-controls").hidden = true;
    byId("step").hidden = false;
    try {
      const found = await this.find(answer, place);
      if (this.shown !== here) return;
      this.found = found;
    } catch (error) {
      if (this.shown === here) this.failed(error.message);
      return;
    }
    this.#tell(this.found.step);
    this.#layers();
    this.#draw();
  }

  /** Everything there is to show of a word: its step in words, and the evidence of the one or two words it is about. */
  async find(answer, place) {
    const { token, lost, candidates } = this.#step(answer, place, {});
    const asked = [lost, token].filter(Boolean);
    const words = candidates.length ? await this.pieces.of(answer, answer.tokens.indexOf(token), candidates) : {};
    const told = [];
    for (const one of asked) told.push(await this.heat.of(one.token));
    return { step: this.#step(answer, place, words), told };
  }

  /** Show another layer, if there is one. */
  turn(layer) {
    if (!this.found?.told[0].layers.some((one) => one.layer === layer)) return;
    this.layer = layer;
    this.#layers();
    this.#draw();
  }

  #step(answer, place, words) {
    const word = answer.words[place];
    const token = word.tokens.find((one) => one.replaced) ?? speaker(word);
    const candidates = token.candidates ? shown(token) : [];
    const lost = token.replaced && (candidates.find((one) => one.token === token.replaced.token) ?? token.replaced);
    const held = lost && whole(lost, words);
    return { answer, place, word, token, lost, held, candidates, words, truths: [held && this.truth(answer, place, held), this.truth(answer, place)] };
  }

  #tell(step) {
    byId("step-title").textContent = title(step);
    byId("step-say").textContent = tell(step);
    byId("step-body").replaceChildren(...candidatesTable(step));
  }

  #layers() {
    const layers = this.found.told[0].layers.map((one) => one.layer);
    if (!layers.includes(this.layer)) this.layer = layers.at(-1);
    byId("heat-layers").replaceChildren(...layers.map((layer) => {
      const input = el("input", { type: "radio", name: "heat-layer", value: layer, checked: layer === this.layer });
      input.addEventListener("change", () => this.turn(layer));
      return el("label", {}, input, el("span", {}, String(layer)));
    }));
  }

  #draw() {
    if (!this.found) return;
    byId("map-controls").hidden = this.found.told.some(({ reason }) => reason);
    byId("maps").replaceChildren(...this.maps(this.found, this.layer, byId("heat-smooth").checked));
  }

  /** One figure for each word that `find` found. */
  maps({ step, told }, layer, smooth) {
    return told.map((one, place) => {
      const held = step.lost && place === 0;
      const painted = one.reason ? [el("p", { class: "note" }, `No map: ${one.reason}.`)] : this.heat.paint(one, layer, smooth);
      return el("figure", { class: "map" }, ...painted, caption(step, held));
    });
  }
}

function caption({ held, word, lost, token, truths }, isHeld) {
  const name = isHeld ? el("del", { class: "suppressed" }, held) : el("strong", {}, word.text);
  const share = ratio(isHeld ? lost : token);
  const usual = share === null ? "" : `: ${much(share)} its usual support`;
  return el("figcaption", {}, name, ` ${isHeld ? "suppressed" : "written"}${usual}`, truth(isHeld ? truths[0] : truths[1]));
}

export function title({ answer, word, held }) {
  if (held) return `Why “${word.text}”, not “${held}”?`;
  return `Why “${word.text}”?${answer.checked ? " (in your text)" : ""}`;
}

const percent = (share) => `${Math.round(100 * share)}%`;
const much = (share) => (share < 2 ? `${percent(share)} of` : `${Math.round(share)} times`);

/** What happened at the step of a word, in one sentence. */
export function tell({ answer, word, token, lost, held, candidates }) {
  const name = `“${word.text}”`;
  if (held) {
    if (ratio(lost) === null) return `“${held}” had the highest score, but ${name} was written.`;
    return `“${held}” had the highest score, but the picture supports it only ${percent(ratio(lost))} as much as usual, ` +
      `so it lost ${number(lost.shift)} points and ${name} was written.`;
  }
  if (judge(word) === "plain") return `${name} is not judged: small words, numbers and punctuation say little about a picture.`;
  if (ratio(token) === null) return `${name} is not judged, because what is usual for it is unknown, and it is never suppressed.`;
  const seen = `the picture supports it ${ratio(token) < 2 ? percent(ratio(token)) : `${Math.round(ratio(token))} times`} as much as usual${support(token) === "unsupported" ? ", much less than other pictures do" : ""}.`;
  if (!candidates.length) return `${name}: ${seen}`;
  if (!answer.facts.beta) return `${name} was written and nothing was edited; ${seen}`;
  const own = candidates.find((one) => one.token === token.token);
  const cost = own?.shift > 0 ? `lost ${number(own.shift)} points but was still written` : "was written and lost nothing";
  return `${name} ${cost}: ${seen}`;
}

/** What the scene is known to contain. */
function truth(known) {
  if (!known) return null;
  return el("span", { class: known.there ? "grounded" : "hallucinated" }, `${known.there ? "" : "no "}${known.object} in the scene`);
}

