// What happened, as marks on a line and as a list.
import {clockText, plainText} from "./format.js";
import {byId, keyed, make, makeSvg, setText} from "./dom.js";

const kKinds = {
  start: ["start", "busy-state"], end: ["end", "good-state"], fail: ["failure", "bad-state"], lose: ["lost", "bad-state"],
  stop: ["stop", ""], restart: ["restart", "warn-state"], suspend: ["suspended", "warn-state"], resume: ["resumed", "busy-state"],
  save: ["save", "good-state"], notice: ["notice", "warn-state"], hang: ["hang", "bad-state"],
};
const kColours = {"busy-state": "--accent", "good-state": "--good", "bad-state": "--bad", "warn-state": "--warn", "": "--idle"};
const kShapes = {
  "bad-state": (x, y) => `M${x - 5} ${y - 5}L${x + 5} ${y + 5}M${x + 5} ${y - 5}L${x - 5} ${y + 5}`,
  "warn-state": (x, y) => `M${x} ${y - 6}L${x + 6} ${y + 5}L${x - 6} ${y + 5}z`,
};
const kMaxListed = 200;

function circle(x, y) {
  return `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z`;
}

function drawLanes(events, now) {
  const names = [...new Set(events.map((event) => (kKinds[event.kind] || [event.kind])[0]))];
  const width = Math.max(280, byId("lanes").clientWidth);
  const left = 76;
  const height = names.length * 20 + 22;
  const x = (at) => left + Math.min(1, at / Math.max(now, 1)) * (width - left - 12);
  const svg = makeSvg("svg", {width, height, role: "img", "aria-label": "Events over the time of the job"});
  names.forEach((name, i) => {
    const label = makeSvg("text", {x: left - 8, y: i * 20 + 17, "text-anchor": "end"});
    label.textContent = name;
    svg.append(label, makeSvg("line", {x1: left, x2: width - 12, y1: i * 20 + 13, y2: i * 20 + 13}));
  });
  for (const event of events) {
    const [name, kind] = kKinds[event.kind] || [event.kind, ""];
    const y = names.indexOf(name) * 20 + 13;
    const mark = makeSvg("path", {d: (kShapes[kind] || circle)(x(event.at), y), "stroke-width": 2});
    const colour = `var(${kColours[kind]})`;
    mark.style.stroke = colour;
    mark.style.fill = kind === "bad-state" ? "none" : colour;
    const title = makeSvg("title");
    title.textContent = `${clockText(event.at)} ${event.task || ""} ${plainText(event.text || "")}`;
    mark.append(title);
    svg.append(mark);
  }
  const end = makeSvg("text", {x: width - 12, y: height - 4, "text-anchor": "end"});
  end.textContent = clockText(now);
  const begin = makeSvg("text", {x: left, y: height - 4});
  begin.textContent = "0:00";
  svg.append(begin, end);
  return svg;
}

let drawn = "";

export function showTimeline(state, now) {
  const events = Object.entries(state.events || {}).map(([number, event]) => ({...event, number: Number(number)}))
    .sort((a, b) => b.number - a.number);
  const list = byId("events");
  if (events.length === 0) {
    byId("lanes").replaceChildren();
    return list.replaceChildren(make("li", {class: "empty"}, "Nothing has been reported; a launcher keeps the events of its job."));
  }
  if (list.firstElementChild !== null && list.firstElementChild.className === "empty") list.replaceChildren();
  // The line is drawn again when something has happened, or it has become a hundredth longer.
  const version = `${events[0].number} ${Math.floor(140 * Math.log2(now + 1))} ${byId("lanes").clientWidth}`;
  if (version !== drawn) byId("lanes").replaceChildren(drawLanes(events.slice(0, 500), now));
  drawn = version;
  keyed(list, events.slice(0, kMaxListed), (event) => String(event.number), (event) => {
    const [name, kind] = kKinds[event.kind] || [event.kind, ""];
    return make("li", {}, make("time", {}, clockText(event.at)), make("span", {}, make("span", {class: `pill ${kind}`}, name)),
      make("p", {}, make("b", {}, event.task || ""), event.task ? " " : "", plainText(event.text || "")));
  }, () => {});
  return undefined;
}

export function lastEventText(state) {
  const numbers = Object.keys(state.events || {}).map(Number);
  if (numbers.length === 0) return "";
  const event = state.events[Math.max(...numbers)];
  return `${event.task || ""} ${(kKinds[event.kind] || [event.kind])[0]}`.trim();
}
