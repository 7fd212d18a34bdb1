"""The page as a test sees it: what it asked for, what went wrong in it, and what a person does to it."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from typing import Any

DROP = """([stage, files]) => {
  const held = new DataTransfer();
  for (const { name, data } of files) {
    const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
    held.items.add(new File([bytes], name, { type: "image/png" }));
  }
  const happen = (kind) => stage.dispatchEvent(new DragEvent(kind, { dataTransfer: held, bubbles: true, cancelable: true }));
  happen("dragenter");
  happen("drop");
}"""


class Seen:
    """One open page."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.set_default_timeout(60_000)

    def written(self) -> Seen:
        """Wait until the answers are."""
        self.page.wait_for_selector("html[data-busy=false] #left .word")
        return self

    def ask_again(self, act: Any) -> None:
        """Do something that has the answers written anew, and wait for them."""
        self.page.evaluate("document.documentElement.dataset.busy = 'asked'")
        act()
        self.page.wait_for_selector("html[data-busy=false]")

    def drop(self, *files: tuple[str, Any]) -> None:
        """Drop pictures with their names."""
        sent = []
        for name, picture in files:
            kept = BytesIO()
            picture.save(kept, "PNG")
            sent.append({"name": name, "data": base64.b64encode(kept.getvalue()).decode()})
        stage = self.page.query_selector("#stage")
        self.ask_again(lambda: self.page.evaluate(DROP, [stage, sent]))

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def words(self, side: str) -> list[str]:
        """The words of an answer, without what is only read aloud."""
        found = "nodes => nodes.map(node => node.firstChild.textContent)"
        return list(self.page.eval_on_selector_all(f"#{side} .word", found))

    def completed(self) -> Seen:
        """Wait until suppressed words are whole, too."""
        self.page.wait_for_selector("html[data-whole=true]")
        return self

    def inside(self, *selectors: str) -> bool:
        """Whether elements are in view as a whole."""
        boxes = [
            box
            for selector in selectors
            for one in self.page.locator(selector).all()
            if (box := one.bounding_box())
        ]
        size = self.page.viewport_size
        return bool(boxes) and all(
            box["x"] >= 0
            and box["y"] >= 0
            and box["x"] + box["width"] <= size["width"]
            and box["y"] + box["height"] <= size["height"]
            for box in boxes
        )


def frames(*texts: str) -> str:
    """A stream of a server whose two choices say these words, token by token."""
    sent = []
    for index in (0, 1):
        place = 0
        for step, text in enumerate(texts):
            token = {"step": step, "token": step, "text": text, "start": place, "end": place + len(text)}
            token |= {"dmrr": 0.001, "b": 0.02, "s": 1.0, "replaced": {"token": 9, "text": text}}
            token["winner_before"] = token["winner_after"] = {"token": step, "text": text}
            token["candidates"] = [
                {"token": one, "text": text, "z": 9.0 - one, "dmrr": 0.001, "b": 0.02, "s": 1.0}
                | {"deficit": 0.019, "shift": 2.0, "z_after": 7.0 - one}
                for one in (step, 9)
            ]
            told = {"decoder": "reweigh", "beta": 2.0, "layer": 2, "b0": 0.01, "tokens": [token]}
            sent.append({"choices": [{"index": index, "delta": {"content": text}, "reweigh": told}]})
            place += len(text)
    return "".join(f"data: {json.dumps(one)}\n\n" for one in sent) + "data: [DONE]\n\n"
