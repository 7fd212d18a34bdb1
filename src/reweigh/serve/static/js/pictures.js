// The pictures of the question: dropped, pasted, chosen, or a scene of the embedded world.

import { get } from "./api.js";
import { byId, el, say } from "./dom.js";

const KNOWN = /^data:image\/[a-z.+-]+;base64,[A-Za-z0-9+/=]+$/;

export class Pictures {
  /** `changed()` is called when the pictures change, `refused(message)` when a file cannot be shown. */
  constructor({ limits, scenes, changed, refused }) {
    this.list = [];
    this.scene = null;
    this.objects = null; // what a scene contains, if that is known
    this.scenes = scenes; // null if the model has none
    this.limits = limits;
    this.changed = changed;
    this.refused = refused;
    this.adding = false;
    byId("another").hidden = byId("wrong").hidden = !scenes;
    byId("choose").addEventListener("click", () => this.#choose(false));
    byId("add").addEventListener("click", () => this.#choose(true));
    byId("file").addEventListener("change", (event) => this.#take(event.target.files, this.adding));
    byId("another").addEventListener("click", () => this.showScene(this.#next()));
    byId("wrong").addEventListener("click", () => this.showScene(this.scenes.wrong));
    this.#listen();
  }

  /** Show a scene by its number. */
  async showScene(number) {
    try {
      const made = await get(`/inspect/scene?number=${number}`);
      const objects = Object.entries(made.objects).map(([name, count]) => (count > 1 ? `${name} (${count})` : name));
      await this.#show([{ url: made.image, name: `Scene ${number}` }], number, made.objects);
      const wrong = number === this.scenes.wrong ? "Here ReWEIGH is wrong: the model alone describes this scene better. " : "";
      say(byId("scene"), `${wrong}Scene ${number}, drawn by the program, so its contents are known: ${made.kind}; ${objects.join(", ")}.`);
    } catch (error) {
      this.refused(error.message);
    }
  }

  /** Whether the model knows only drawn scenes and some picture cannot be one. */
  areStrange() {
    const side = this.scenes?.side;
    return Boolean(side) && this.list.some(({ image }) => image.naturalWidth !== side || image.naturalHeight !== side);
  }

  /** After the first scene, show the one on which the method is wrong, then all in order. */
  #next() {
    if (this.scene === this.scenes.first) return this.scenes.wrong;
    return this.scene === null || this.scene === this.scenes.wrong ? 0 : this.scene + 1;
  }

  /** Show a picture from a link; refuse anything else. */
  async showUrl(url) {
    if (!KNOWN.test(url)) return this.refused("the link contains no picture that can be shown");
    return this.#show([{ url, name: "Picture from the link" }], null);
  }

  #choose(adding) {
    this.adding = adding;
    byId("file").value = "";
    byId("file").click();
  }

  #listen() {
    const stage = byId("stage");
    let inside = 0;
    const hover = (change) => (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      inside += change;
      stage.classList.toggle("hover", inside > 0);
    };
    document.addEventListener("dragenter", hover(1));
    document.addEventListener("dragleave", hover(-1));
    document.addEventListener("dragover", hover(0));
    document.addEventListener("drop", (event) => {
      hover(-inside)(event);
      if (event.dataTransfer?.files.length) this.#take(event.dataTransfer.files, false);
    });
    document.addEventListener("paste", (event) => {
      if (event.clipboardData?.files.length) this.#take(event.clipboardData.files, false);
    });
  }

  async #take(files, adding) {
    const kept = adding ? this.list : [];
    try {
      const read = await Promise.all(Array.from(files, (file) => this.#read(file)));
      if (kept.length + read.length > this.limits.images)
        throw new Error(`at most ${this.limits.images} pictures can be used at once`);
      if (read.length) await this.#show([...kept, ...read], null);
    } catch (error) {
      this.refused(error.message);
    }
  }

  async #read(file) {
    if (!file.type.startsWith("image/")) throw new Error(`${file.name} is not a picture`);
    if (file.size > this.limits.image_bytes)
      throw new Error(`${file.name} has more than ${Math.round(this.limits.image_bytes / 2 ** 20)} MB`);
    const url = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(new Error(`${file.name} could not be read`));
      reader.readAsDataURL(file);
    });
    return { url, name: file.name };
  }

  async #show(list, scene, objects = null) {
    const figures = await Promise.all(list.map(figure));
    this.list = list.map((one, place) => ({ ...one, ...figures[place] }));
    this.scene = scene;
    this.objects = objects;
    byId("figures").replaceChildren(...this.list.map((one) => one.node));
    byId("figures").classList.toggle("several", list.length > 1);
    byId("stage-empty").hidden = list.length > 0;
    byId("add").hidden = scene !== null || list.length >= this.limits.images;
    say(byId("scene"), "");
    this.changed();
  }
}

async function figure({ url, name }) {
  const image = el("img", { alt: name });
  image.src = url;
  try {
    await image.decode();
  } catch {
    throw new Error(`${name} is not a picture this browser can show`);
  }
  const node = el("figure", {}, el("div", { class: "frame" }, image), el("figcaption", {}, name));
  if (image.naturalWidth < 200) image.classList.add("small");
  return { node, image };
}
