// Painting reciprocal ranks over a picture, and the scale that tells what the colours mean.

import { svg } from "./dom.js";

const DEEPEST = 1000;
const STOPS = [[0, [60, 20, 90]], [0.45, [196, 40, 70]], [0.75, [250, 140, 30]], [1, [255, 240, 120]]];

/** 1/rank on a scale of powers of ten: 0 for the 1,000th place and beyond, 1 for the first. */
export function heatOf(value) {
  if (!(value > 0)) return 0;
  return Math.min(Math.max(1 + Math.log10(value) / Math.log10(DEEPEST), 0), 1);
}

function colour(share) {
  const upper = STOPS.findIndex(([place]) => place >= share);
  const [to, last] = STOPS[Math.max(upper, 1)];
  const [from, first] = STOPS[Math.max(upper, 1) - 1];
  const between = (share - from) / (to - from);
  return first.map((one, channel) => Math.round(one + between * (last[channel] - one)));
}

/** The picture's part that a grid covers: [left, top, width, height] in pixels. */
export function covered(covers, width, height) {
  if (covers !== "centre") return [0, 0, width, height];
  const side = Math.min(width, height);
  return [(width - side) / 2, (height - side) / 2, side, side];
}

/** Paint grids over a canvas of some size; each is laid over the part of the picture it covers. */
export function paint(canvas, grids, { width, height, smooth, strength = 1 }) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  context.fillStyle = `rgba(10, 12, 20, ${0.42 * strength})`;
  context.fillRect(0, 0, width, height);
  context.globalAlpha = strength;
  context.imageSmoothingEnabled = smooth;
  context.imageSmoothingQuality = "high";
  for (const grid of grids) {
    const [left, top, wide, tall] = covered(grid.covers, width, height);
    context.save();
    context.beginPath();
    context.rect(left, top, wide, tall);
    context.clip();
    const cell = [wide / grid.cols, tall / grid.rows];
    // a cell more on each side, so that the smooth picture has its centres where the patches have theirs
    context.drawImage(small(grid), left - cell[0], top - cell[1], wide + 2 * cell[0], tall + 2 * cell[1]);
    context.restore();
  }
}

/** One pixel for each cell, and the edge's cells once more around them. */
function small(grid) {
  const canvas = document.createElement("canvas");
  canvas.width = grid.cols + 2;
  canvas.height = grid.rows + 2;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(canvas.width, canvas.height);
  const within = (place, size) => Math.min(Math.max(place - 1, 0), size - 1);
  for (let y = 0; y < canvas.height; y++)
    for (let x = 0; x < canvas.width; x++) {
      const share = heatOf(grid.cells[within(y, grid.rows)][within(x, grid.cols)]);
      pixels.data.set([...colour(share), Math.round(190 * share ** 1.6)], 4 * (y * canvas.width + x));
    }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

/** The scale: what rank a colour stands for. */
export function ruler() {
  const stops = Array.from({ length: 11 }, (_, place) => {
    const share = place / 10;
    return svg("stop", { offset: share, "stop-color": `rgb(${colour(share)})`, "stop-opacity": 0.08 + 0.92 * share ** 1.6 });
  });
  const texts = ["1,000th", "100th", "10th", "1st"].map((text, place) =>
    svg("text", { x: 4 + (place / 3) * 292, y: 30, "text-anchor": ["start", "middle", "middle", "end"][place] }, text));
  return svg("svg", { viewBox: "0 0 300 34", role: "img", "aria-label": "Colour scale: from the 1,000th place to the first" },
    svg("defs", {}, svg("linearGradient", { id: "warmth" }, ...stops)),
    svg("rect", { x: 0, y: 2, width: 300, height: 12, rx: 3, class: "under" }),
    svg("rect", { x: 0, y: 2, width: 300, height: 12, rx: 3, fill: "url(#warmth)" }), ...texts);
}
