// Where a word's evidence lies: asked once for each word, painted over the pictures layer by layer.

import { post } from "./api.js";
import { byId, el } from "./dom.js";
import { paint, ruler } from "./paint.js";

const FADE = 220;
const THUMB = 180;

export class Heat {
  /** `pictures()` are those on the page, `messages()` the conversation. */
  constructor({ pictures, messages, failed }) {
    this.pictures = pictures;
    this.messages = messages;
    this.failed = failed;
    this.kept = new Map();
    this.layer = null;
    this.told = null;
    byId("scale").append(ruler(), el("p", { class: "note" }, "Rank of the word among all words the model knows, at each part of the picture."));
    byId("heat-smooth").addEventListener("change", () => this.#draw(false));
    byId("heat-clear").addEventListener("click", () => this.clear());
  }

  /** Forget all that was asked: the pictures or the question are others. */
  forget() {
    this.kept.clear();
    this.clear();
  }

  /** Take the paint off. */
  clear() {
    this.told = null;
    this.wanted = null;
    byId("heat").hidden = true;
    byId("step-thumbs").replaceChildren();
    for (const { canvas } of this.pictures()) canvas.classList.remove("painted");
    this.cleared?.();
  }

  /** Paint a token's evidence; `layer` is the one to begin with. */
  async show(token, text, layer) {
    this.wanted = token;
    try {
      if (!this.kept.has(token)) this.kept.set(token, await post("/inspect/heat", { messages: this.messages(), token }));
    } catch (error) {
      if (this.wanted === token) this.failed(error.message);
      return;
    }
    if (this.wanted !== token) return;
    this.told = { ...this.kept.get(token), shown: text };
    const layers = this.told.layers.map((one) => one.layer);
    this.layer = layers.includes(layer) ? layer : layers.at(-1);
    byId("heat").hidden = false;
    this.#layers(layers);
    this.#draw(true);
  }

  /** Read another layer, where there is one. */
  turn(layer) {
    if (!this.told?.layers.some((one) => one.layer === layer)) return;
    this.layer = layer;
    for (const input of byId("heat-layers").querySelectorAll("input")) input.checked = Number(input.value) === layer;
    this.#draw(true);
  }

  #layers(layers) {
    byId("heat-layers").replaceChildren(...layers.map((layer) => {
      const input = el("input", { type: "radio", name: "heat-layer", value: layer, checked: layer === this.layer });
      input.addEventListener("change", () => this.turn(layer));
      return el("label", {}, input, el("span", {}, String(layer)));
    }));
  }

  #draw(fading) {
    if (!this.told) return;
    const found = this.told.layers.find((one) => one.layer === this.layer);
    const word = `“${this.told.shown.trim()}”`;
    byId("heat-controls").hidden = Boolean(this.told.reason);
    if (this.told.reason) {
      byId("heat-say").textContent = `The evidence of ${word} cannot be mapped: ${this.told.reason}.`;
      return;
    }
    const rank = Math.round(1 / found.max);
    byId("heat-say").textContent = rank === 1
      ? `Bright parts support ${word}: at the brightest, it is the model's first choice.`
      : `Bright parts support ${word}: even at the brightest, it is only the model's ${ordinal(rank)} choice.`;
    const smooth = byId("heat-smooth").checked;
    this.pictures().forEach((picture, place) => {
      const own = found.grids.filter((grid) => grid.image === place);
      fade(picture, own.filter((grid) => grid.covers), smooth, fading);
    });
    this.#thumbs(found, smooth);
    byId("crops").replaceChildren(...crops(found, smooth));
  }

  /** Small copies for the sheet of a phone, where the picture is out of sight. */
  #thumbs(found, smooth) {
    byId("step-thumbs").replaceChildren(...this.pictures().map((picture, place) => {
      const grids = found.grids.filter((grid) => grid.image === place && grid.covers);
      return composite(picture, grids, smooth, THUMB);
    }));
  }
}

/** The picture with its paint on one canvas whose longer side is `side`. */
export function composite({ image }, grids, smooth, side) {
  const times = side / Math.max(image.naturalWidth, image.naturalHeight);
  const width = Math.max(1, Math.round(image.naturalWidth * times));
  const height = Math.max(1, Math.round(image.naturalHeight * times));
  const canvas = el("canvas", { width, height });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = times < 1;
  context.drawImage(image, 0, 0, width, height);
  if (!grids.length) return canvas;
  const over = el("canvas");
  paint(over, grids, { width, height, smooth });
  context.drawImage(over, 0, 0);
  return canvas;
}

function fade({ canvas, image }, grids, smooth, fading) {
  const width = 480;
  const height = Math.max(1, Math.round((width * image.naturalHeight) / image.naturalWidth));
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  canvas.classList.toggle("painted", grids.length > 0);
  if (!grids.length) return;
  if (!fading || still) return paint(canvas, grids, { width, height, smooth });
  const before = el("canvas", { width, height });
  if (canvas.width === width && canvas.height === height) before.getContext("2d").drawImage(canvas, 0, 0);
  const begin = performance.now();
  const turn = (canvas.turn = (canvas.turn ?? 0) + 1);
  const tick = (now) => {
    if (canvas.turn !== turn) return;
    const share = Math.min(Math.max((now - begin) / FADE, 0), 1);
    paint(canvas, grids, { width, height, smooth, strength: share });
    if (share < 1) {
      const context = canvas.getContext("2d");
      context.globalAlpha = 1 - share;
      context.drawImage(before, 0, 0);
      requestAnimationFrame(tick);
    }
  };
  tick(begin);
}

/** Crops whose place in the picture is not known are painted beside it. */
function crops(found, smooth) {
  return found.grids.filter((grid) => !grid.covers).map((grid) => {
    const canvas = el("canvas");
    paint(canvas, [grid], { width: 96, height: Math.round((96 * grid.rows) / grid.cols), smooth });
    return el("figure", {}, canvas, el("figcaption", {}, `picture ${grid.image + 1}, crop ${grid.tile + 1}`));
  });
}

function ordinal(rank) {
  const ends = { one: "st", two: "nd", few: "rd", other: "th" };
  return rank.toLocaleString("en") + ends[new Intl.PluralRules("en", { type: "ordinal" }).select(rank)];
}
