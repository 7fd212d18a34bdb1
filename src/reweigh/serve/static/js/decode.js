// Asking for answers: what is sent for each side, and which answer gets which part of what comes back.

import { stream } from "./api.js";

/**
 * Write answers anew. `sides` says which: "both" or "right" alone. The base model and ReWEIGH are two choices of one
 * request, decoded together; a rival is asked on its own. `first()` is called with the first word that arrives.
 */
export async function decode({ model, messages, beside, beta, layer, available, sides }, { left, right }, signal, first) {
  const common = { model, messages };
  const edited = { trace: true, layer };
  const runs = [];
  if (!available) runs.push([{ ...common, reweigh: { decoder: beside, evidence: true } }, [left]]);
  else if (sides === "right") runs.push([{ ...common, reweigh: { ...edited, beta } }, [right]]);
  else if (beside === "base") runs.push([{ ...common, n: 2, reweigh: { ...edited, beta: [0, beta] } }, [left, right]]);
  else {
    runs.push([{ ...common, reweigh: { decoder: beside, evidence: true } }, [left]]);
    runs.push([{ ...common, reweigh: { ...edited, beta } }, [right]]);
  }
  const ends = await Promise.allSettled(runs.map(([body, answers]) => write(body, answers, signal, first)));
  const failed = ends.find(({ status }) => status === "rejected"); // the other side was finished all the same
  if (failed) throw failed.reason;
}

async function write(body, answers, signal, first) {
  let begun = false;
  const clear = () => answers.forEach((answer) => answer.clear());
  try {
    for await (const frame of stream(body, signal)) {
      if (!begun) clear();
      begun = true;
      for (const choice of frame.choices) {
        if (choice.delta.content) first();
        if (choice.delta.content || choice.reweigh) answers[choice.index].push(choice.delta.content ?? "", choice.reweigh);
      }
    }
  } catch (error) {
    if (!begun && error.name !== "AbortError") clear(); // the old words are no answer to this
    throw error;
  }
}
