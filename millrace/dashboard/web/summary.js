// The head of the page: the job's state, the verdict, and its most important numbers.
import {ageText, bytesText, clockText, numberText, plainText} from "./format.js";
import {byId, keyed, make, setText, stateClass, stateOf} from "./dom.js";

function cardsOf(state, now) {
  const tasks = Object.entries(state.tasks || {});
  const counts = {};
  for (const [, task] of tasks) counts[stateOf(task)] = (counts[stateOf(task)] || 0) + 1;
  const steps = tasks.map(([, task]) => task.step).filter((step) => step !== undefined);
  const speeds = tasks.map(([, task]) => task.steps_per_second).filter((speed) => typeof speed === "number");
  const losses = tasks.filter(([, task]) => task.loss !== undefined);
  const memory = tasks.map(([, task]) => task.memory_bytes || 0).reduce((a, b) => a + b, 0);
  const restarts = tasks.map(([, task]) => task.restarts || 0).reduce((a, b) => a + b, 0);
  const cards = [
    {name: "Tasks", value: String(tasks.length), note: Object.entries(counts).map(([word, count]) => `${count} ${word}`).join(", ")},
    {name: "Step", value: steps.length > 0 ? String(Math.max(...steps)) : "–", note: steps.length > 1 ? "the highest of the tasks" : ""},
    {name: "Steps/s", value: speeds.length > 0 ? numberText(Math.max(...speeds)) : "–",
      note: speeds.length > 1 ? `lowest ${numberText(Math.min(...speeds))}` : ""},
    {name: "Loss", value: losses.length > 0 ? numberText(losses[losses.length - 1][1].loss) : "–",
      note: losses.length > 0 ? losses[losses.length - 1][0] : ""},
    {name: "Checkpoint", value: state.checkpoint ? `${ageText(now - state.checkpoint.at)} old` : "–",
      note: state.checkpoint ? `step ${state.checkpoint.step}, ${state.checkpoint.task}` : "none has been reported"},
    {name: state.ended ? "Ran for" : "Runs for", value: clockText(now), note: restarts === 1 ? "1 restart" : `${restarts || "no"} restarts`},
  ];
  const slow = Object.entries(state.stragglers || {});
  if (slow.length > 0) cards.push({name: "Stragglers", value: String(slow.length), note: slow.map(([name]) => name).join(", ")});
  if (memory > 0) cards.push({name: "Memory", value: bytesText(memory), note: "tensors of all tasks"});
  return cards;
}

function verdictOf(state) {
  if (state.ended) {
    const good = state.exit_code === 0;
    return {kind: good ? "good" : "bad", title: good ? "The job succeeded" : "The job has ended", text: state.cause || ""};
  }
  if (state.lost) return {kind: "warn", title: "The launcher does not answer", text: state.lost};
  if (state.hang && state.hang.cause) return {kind: "bad", title: state.hang.only_suspended ? "A task is suspended" : "The job hangs", text: state.hang.cause};
  if (state.cause) return {kind: "warn", title: "The job is being ended", text: state.cause};
  return null;
}

export function showSummary(state, now) {
  setText(byId("title"), state.title || "");
  setText(byId("command"), plainText(state.command || ""));
  byId("command").title = state.directory ? `in ${state.directory}` : "";
  const word = state.state || "…";
  setText(byId("state"), word);
  byId("state").className = `pill ${stateClass(word)}`;
  document.title = `${word} · ${state.title || "Millrace"}`;
  const verdict = verdictOf(state);
  const banner = byId("verdict");
  banner.hidden = verdict === null;
  const text = verdict === null ? "" : plainText(verdict.text);
  if (verdict !== null && (banner.dataset.text !== text || !banner.classList.contains(verdict.kind))) {
    banner.dataset.text = text;
    banner.className = `banner ${verdict.kind}`;
    banner.replaceChildren(make("strong", {}, verdict.title), make("span", {}, text));
  }
  keyed(byId("cards"), cardsOf(state, now), (card) => card.name, (card) => make("div", {class: "card", id: `card_${card.name.replace(/\W/g, "_")}`},
    make("span", {}, card.name), make("b"), make("small")), (element, card) => {
    setText(element.children[1], card.value);
    setText(element.children[2], card.note);
    element.children[2].title = card.note;
  });
  setText(byId("version"), `Millrace ${state.version || ""}${state.began ? ` · began ${new Date(1000 * state.began).toLocaleString()}` : ""}`);
}
