// Where a word's evidence lies: asked once for each token, painted over small copies of the pictures.

import { post } from "./api.js";
import { el, svg } from "./dom.js";

const SIDE = 420;
const TINY = 200;

export class Heat {
  /** `pictures()` are those on the page, `messages()` the conversation. */
  constructor({ pictures, messages }) {
    this.pictures = pictures;
    this.messages = messages;
    this.kept = new Map();
  }

  /** Forget all maps: the pictures or the question have changed. */
  forget() {
    this.kept.clear();
  }

  /** A token's evidence at every layer of the table. */
  async of(token) {
    if (!this.kept.has(token)) this.kept.set(token, await post("/inspect/heat", { messages: this.messages(), token }));
    return this.kept.get(token);
  }

  /** The pictures with the evidence at a layer painted over them, and crops whose place in a picture is not known. */
  paint(told, layer, smooth) {
    const found = told.layers.find((one) => one.layer === layer) ?? told.layers.at(-1);
    const maps = this.pictures().map(({ image }, place) =>
      composite(image, found.grids.filter((grid) => grid.image === place && grid.covers), smooth));
    return [...maps, ...crops(found, smooth)];
  }
}

/** The size of a canvas for an image whose longer side is `side`. */
function sized({ naturalWidth, naturalHeight }, side) {
  const times = side / Math.max(naturalWidth, naturalHeight);
  return { width: Math.max(1, Math.round(naturalWidth * times)), height: Math.max(1, Math.round(naturalHeight * times)) };
}

/** A copy of a picture with its paint. */
function composite(image, grids, smooth) {
  const size = sized(image, SIDE);
  const canvas = el("canvas", size);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = image.naturalWidth >= TINY;
  context.drawImage(image, 0, 0, size.width, size.height);
  if (!grids.length) return canvas;
  canvas.classList.add("painted");
  const over = el("canvas");
  paint(over, grids, { ...size, smooth });
  context.drawImage(over, 0, 0);
  return canvas;
}

/** Crops whose place in the picture is not known are painted on their own. */
function crops(found, smooth) {
  return found.grids.filter((grid) => !grid.covers).map((grid) => {
    const canvas = el("canvas", { class: "painted" });
    paint(canvas, [grid], { width: 96, height: Math.round((96 * grid.rows) / grid.cols), smooth });
    return el("figure", { class: "crop" }, canvas, el("figcaption", {}, `picture ${grid.image + 1}, crop ${grid.tile + 1}`));
  });
}
const DEEPEST = 1000;
const STOPS = [[0, [60, 20, 90]], [0.45, [196, 40, 70]], [0.75, [250, 140, 30]], [1, [255, 240, 120]]];

/** 1/rank on a scale of powers of ten: 0 for the 1,000th place and beyond, 1 for the first. */
function heatOf(value) {
  if (!(value > 0)) return 0;
  return Math.min(Math.max(1 + Math.log10(value) / Math.log10(DEEPEST), 0), 1);
}

function color(share) {
  const upper = STOPS.findIndex(([place]) => place >= share);
  const [to, last] = STOPS[Math.max(upper, 1)];
  const [from, first] = STOPS[Math.max(upper, 1) - 1];
  const between = (share - from) / (to - from);
  return first.map((one, channel) => Math.round(one + between * (last[channel] - one)));
}

/** The part of the picture that a grid covers: [left, top, width, height] in pixels. */
function covered(covers, width, height) {
  if (covers !== "centre") return [0, 0, width, height];
  const side = Math.min(width, height);
  return [(width - side) / 2, (height - side) / 2, side, side];
}

/** Paint grids over a canvas of some size; each is laid over the part of the picture it covers. */
function paint(canvas, grids, { width, height, smooth }) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  context.fillStyle = "rgba(10, 12, 20, 0.42)";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingEnabled = smooth;
  context.imageSmoothingQuality = "high";
  for (const grid of grids) {
    const [left, top, wide, tall] = covered(grid.covers, width, height);
    context.save();
    context.beginPath();
    context.rect(left, top, wide, tall);
    context.clip();
    const cell = [wide / grid.cols, tall / grid.rows];
    // one cell more on each side, so that smoothed colors are centered on their patches
    context.drawImage(small(grid), left - cell[0], top - cell[1], wide + 2 * cell[0], tall + 2 * cell[1]);
    context.restore();
  }
}

/** One pixel for each cell, with the border cells repeated around them. */
function small(grid) {
  const canvas = el("canvas", { width: grid.cols + 2, height: grid.rows + 2 });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(canvas.width, canvas.height);
  const within = (place, size) => Math.min(Math.max(place - 1, 0), size - 1);
  for (let y = 0; y < canvas.height; y++)
    for (let x = 0; x < canvas.width; x++) {
      const share = heatOf(grid.cells[within(y, grid.rows)][within(x, grid.cols)]);
      pixels.data.set([...color(share), Math.round(190 * share ** 1.6)], 4 * (y * canvas.width + x));
    }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

/** The scale: what rank a color stands for. */
export function ruler() {
  const stops = Array.from({ length: 11 }, (_, place) => {
    const share = place / 10;
    return svg("stop", { offset: share, "stop-color": `rgb(${color(share)})`, "stop-opacity": 0.08 + 0.92 * share ** 1.6 });
  });
  const texts = ["1,000th", "100th", "10th", "1st"].map((text, place) =>
    svg("text", { x: 4 + (place / 3) * 292, y: 30, "text-anchor": ["start", "middle", "middle", "end"][place] }, text));
  return svg("svg", { viewBox: "0 0 300 34", role: "img", "aria-label": "Color scale: from the 1,000th place to the first" },
    svg("defs", {}, svg("linearGradient", { id: "warmth" }, ...stops)),
    svg("rect", { x: 0, y: 2, width: 300, height: 12, rx: 3, class: "under" }),
    svg("rect", { x: 0, y: 2, width: 300, height: 12, rx: 3, fill: "url(#warmth)" }), ...texts);
}
