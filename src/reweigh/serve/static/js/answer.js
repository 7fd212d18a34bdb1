// One answer on the page: words that grow as they stream, each with its bar, reached one by one with the arrow keys.

import { aloud, el } from "./dom.js";
import { cut, judge, reach, speaker } from "./words.js";

export class Answer {
  /**
   * `root` holds the words, `name` is for screen readers, and `look(answer, place, how)` is called when a word is
   * pointed at ("hover"), reached ("focus"), left ("leave") or chosen ("pick").
   */
  constructor(root, { name, look }) {
    this.root = root;
    this.look = look;
    this.clear();
    this.rename(name);
    root.setAttribute("role", "group");
    root.addEventListener("keydown", (event) => this.#move(event));
    for (const [kind, how] of [["pointerover", "hover"], ["pointerout", "leave"], ["focusin", "focus"], ["click", "pick"]])
      root.addEventListener(kind, (event) => this.#tell(event, how));
  }

  rename(name) {
    this.name = name;
    this.root.setAttribute("aria-label", `${name}: words, arrow keys move between them`);
  }

  /** Forget everything that was written. */
  clear() {
    this.text = "";
    this.tokens = [];
    this.words = [];
    this.facts = null;
    this.buttons = [];
    this.root.replaceChildren();
  }

  /** Take some more text, and what is known of its tokens (`told` is a choice's `reweigh`). */
  push(text, told) {
    this.text += text;
    if (told) {
      this.facts = { decoder: told.decoder, beta: told.beta, layer: told.layer, scale: told.b0 };
      this.tokens.push(...told.tokens);
    }
    this.#draw();
  }

  /** Frame the words that the other answer lacks. */
  mark(differs) {
    this.buttons.forEach((button, place) => {
      button.classList.toggle("differs", Boolean(differs[place]));
      button.querySelector(".differs-aloud")?.remove();
      if (differs[place]) {
        const said = aloud(" (differs)");
        said.classList.add("differs-aloud");
        button.append(said);
      }
    });
  }

  /** Show which word is open and which is chosen. */
  point(open, chosen) {
    this.buttons.forEach((button, place) => {
      button.classList.toggle("open", place === open);
      button.setAttribute("aria-pressed", String(place === chosen));
    });
  }

  focus(place) {
    this.buttons.forEach((button, other) => (button.tabIndex = other === place ? 0 : -1));
    this.buttons[place]?.focus();
  }

  /** Draw what is new; a word that did not change keeps its element, and with it the focus. */
  #draw() {
    const words = cut(this.text, this.tokens);
    let same = 0;
    while (same < words.length && same < this.words.length && alike(words[same], this.words[same])) same++;
    for (const button of this.buttons.splice(same)) button.parentNode.remove();
    this.words = words;
    for (const word of words.slice(same)) this.root.append(this.#word(word));
  }

  #word(word) {
    const kind = judge(word);
    const button = el("button", { type: "button", class: `word ${kind}`, "aria-pressed": "false" }, word.text);
    button.tabIndex = this.buttons.length ? -1 : 0;
    const far = kind === "plain" ? null : reach(speaker(word));
    if (far !== null) {
      const bar = el("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--reach", far.toFixed(3));
      button.append(bar);
    }
    if (kind === "short") button.append(aloud(" (lacks support)"));
    if (kind === "unknown") button.append(aloud(" (not judged)"));
    this.buttons.push(button);
    const held = word.tokens.find((one) => one.replaced)?.replaced.text.trim();
    return el("span", { class: "place" }, word.before, held ? struck(held) : null, held ? " " : null, button, word.after);
  }

  #tell(event, how) {
    const place = this.buttons.indexOf(event.target.closest("button"));
    if (place < 0) return;
    if (how === "leave" && this.buttons[place].contains(event.relatedTarget)) return;
    if ((how === "hover" || how === "leave") && event.pointerType === "touch") return;
    // a finger or the mouse also moves the focus, and picks the word right after
    if (how === "focus" && !event.target.matches(":focus-visible")) return;
    if (how === "focus") this.buttons.forEach((button, other) => (button.tabIndex = other === place ? 0 : -1));
    this.look(this, place, how);
  }

  #move(event) {
    const here = this.buttons.indexOf(event.target.closest("button"));
    const last = this.buttons.length - 1;
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: last }[event.key];
    if (here < 0 || to === undefined || to < 0 || to > last || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.focus(to);
  }
}

function struck(text) {
  return el("del", { class: "held" }, aloud("held back: "), text);
}

function alike(one, other) {
  return one.text === other.text && one.before === other.before && one.after === other.after
    && one.tokens.length === other.tokens.length;
}
