// The end of a task's output, as text.
import {plainText} from "./format.js";
import {byId, make, setText} from "./dom.js";

let task = "";
let fetchOutput = async () => "";

export function setUpOutput(fetcher) {
  fetchOutput = fetcher;
  byId("output_task").addEventListener("change", (event) => chooseOutput(event.target.value));
}

export function chooseOutput(name) {
  task = name;
  byId("output_task").value = name;
  setText(byId("output_text"), "");
  refreshOutput();
}

// Offers all tasks; the first worker is chosen at first.
export function showOutput(state) {
  const select = byId("output_task");
  const names = state.order || [];
  if (select.options.length !== names.length || names.some((name, i) => select.options[i].value !== name))
    select.replaceChildren(...names.map((name) => make("option", {value: name}, name)));
  if (task === "" && names.length > 0) task = names.find((name) => !name.startsWith("ps/")) || names[0];
  if (select.value !== task) select.value = task;
}

export async function refreshOutput() {
  if (task === "") return;
  const asked = task;
  const text = await fetchOutput(asked);
  if (asked !== task || text === null) return;
  const pre = byId("output_text");
  const atEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 20;
  setText(pre, plainText(text) || "(no output yet)");
  if (atEnd) pre.scrollTop = pre.scrollHeight;
}
