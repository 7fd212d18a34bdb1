// One HTML file for class: the picture, both answers, and the reason for every suppressed word. It needs no server.

import { byId, el } from "./dom.js";
import { tell, title } from "./why.js";

const STYLES = ["css/page.css", "css/marks.css"];

/** Build the page; `steps` are what `Why.find` found of each suppressed word. */
export async function lesson({ facts, question, pictures, scene, answers, steps, why, layer }) {
  const page = document.implementation.createHTMLDocument("Why this word?");
  const styles = await Promise.all(STYLES.map((path) => fetch(path).then((answer) => answer.text())));
  page.documentElement.lang = "en";
  page.head.prepend(el("meta", { charset: "utf-8" }), el("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }), el("meta", { name: "color-scheme", content: "light dark" }));
  const shown = pictures.map(({ url, name }) => {
    const image = el("img", { alt: name });
    image.src = url;
    return el("figure", {}, el("div", { class: "frame" }, image), el("figcaption", {}, name));
  });
  const texts = answers.map((one) => el("article", { class: "card answer" }, el("h2", {}, one.name), still(one, steps)));
  const reasons = steps.map(({ found, index }) => el("section", { class: "card", id: `why-${index}` },
    el("h2", {}, title(found.step)), el("p", { class: "say" }, tell(found.step)),    el("div", { class: "maps" }, ...why.maps(found, layer, true).map(flat))));
  page.body.classList.add("lesson");
  page.body.append(
    el("h1", {}, "reweigh ", el("span", {}, "why this word?")),
    el("p", { class: "note" }, `${facts.model}, asked: “${question}” Maps show layer ${layer}; a bright part of the picture is one where the word ranks high. ` +
      "Click a struck-out word to see why it was suppressed."),
    el("div", { class: "pair" }, el("div", { class: "card" }, ...shown, el("p", { class: "note" }, scene)), el("div", { class: "side" }, ...texts)),
    byId("legend").cloneNode(true), ...reasons,
    el("p", { class: "note" }, `Saved from the page of reweigh ${facts.version}.`));
  // the styles go in as text: this server's pages may not hold any, and a copy under construction counts as one
  const html = page.documentElement.outerHTML.replace("</head>", () => `<style>${styles.join("\n")}</style></head>`);
  return new Blob(["<!doctype html>\n", html], { type: "text/html" });
}

/** The words of an answer without their buttons; a suppressed one leads to its reason. */
function still(answer, steps) {
  const copy = answer.root.cloneNode(true);
  for (const name of ["role", "aria-label", "id"]) copy.removeAttribute(name);
  const places = Array.from(copy.children);
  for (const { place, index } of steps.filter((one) => one.answer === answer)) {
    const held = places[place].querySelector(".held");
    held.replaceWith(el("a", { class: "held", href: `#why-${index}` }, ...held.childNodes));
  }
  for (const button of copy.querySelectorAll("button")) button.replaceWith(el("span", { class: button.className }, ...button.childNodes));
  return copy;
}

/** A map as a picture. */
function flat(figure) {
  for (const canvas of figure.querySelectorAll("canvas")) {
    const image = el("img", { alt: "" });
    image.src = canvas.toDataURL("image/jpeg", 0.9);
    canvas.replaceWith(image);
  }
  return figure;
}
