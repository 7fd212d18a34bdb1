// Building elements. Whatever comes from a model or a user goes in as text; nothing here takes markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Text for screen readers only. */
export const aloud = (text) => el("span", { class: "hidden" }, text);

/** Show a text in an element, or hide the element if there is none. */
export function say(node, text) {
  node.textContent = text ?? "";
  node.hidden = !text;
}
