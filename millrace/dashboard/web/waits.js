// Who waits for whom: a graph, a list, and the verdict in words.
import {ageText, plainText} from "./format.js";
import {byId, make, makeSvg, setText} from "./dom.js";

const kMaxNodes = 24;
const kBox = 150;  // the width of a node

// Columns by the longest way to a node that waits for nothing: who is waited for stands on the right.
function levelsOf(nodes, edges) {
  const level = new Map([...nodes].map((node) => [node, 0]));
  for (let round = 0; round < nodes.size; ++round) {
    let changed = false;
    for (const edge of edges) {
      const wanted = level.get(edge.to) + 1;
      if (level.get(edge.from) >= wanted || wanted > nodes.size) continue;
      level.set(edge.from, wanted);
      changed = true;
    }
    if (!changed) break;
  }
  return level;
}

function shortened(text) {
  return text.length > 21 ? `${text.slice(0, 20)}…` : text;
}

function drawGraph(edges, tasks, now) {
  const nodes = new Set();
  const shown = [];
  for (const edge of edges) {
    const fresh = [edge.from, edge.to].filter((node) => !nodes.has(node)).length;
    if (nodes.size + fresh > kMaxNodes) continue;
    nodes.add(edge.from);
    nodes.add(edge.to);
    const same = shown.find((other) => other.from === edge.from && other.to === edge.to);
    if (same) same.count += 1;
    else shown.push({...edge, count: 1});
  }
  const level = levelsOf(nodes, shown);
  const deepest = Math.max(...level.values());
  const columns = [];
  for (const node of nodes) (columns[deepest - level.get(node)] ||= []).push(node);
  const place = new Map();
  const room = (byId("graph").clientWidth - kBox - 20) / Math.max(1, deepest);
  const across = Math.max(kBox + 56, Math.min(kBox + 80, room));
  const down = 58;
  columns.forEach((column, i) => column.forEach((node, j) => place.set(node, {x: 10 + i * across, y: 12 + j * down})));
  const height = Math.max(...columns.map((column) => (column || []).length)) * down + 8;
  const width = deepest * across + kBox + 20;
  const svg = makeSvg("svg", {width, height, role: "img",
    "aria-label": shown.map((edge) => `${edge.from} waits for ${edge.to}`).join(", ")});
  svg.append(makeSvg("defs", {}, makeSvg("marker", {id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8,
    markerHeight: 8, orient: "auto"}, makeSvg("path", {d: "M0 0L8 4L0 8z"}))));
  for (const edge of shown) {
    const from = place.get(edge.from);
    const to = place.get(edge.to);
    const [x1, y1, x2, y2] = [from.x + kBox, from.y + 17, to.x, to.y + 17];
    const d = x2 > x1 ? `M${x1} ${y1}C${x1 + 40} ${y1} ${x2 - 40} ${y2} ${x2 - 2} ${y2}`
      : `M${from.x + kBox / 2} ${from.y + 34}C${from.x + kBox / 2} ${from.y + 60} ${to.x + kBox / 2} ${to.y + 60} ${to.x + kBox / 2} ${to.y + 36}`;
    svg.append(makeSvg("path", {d, "marker-end": "url(#tip)"}));
    const text = makeSvg("text", {class: "label", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5, "text-anchor": "middle"});
    text.textContent = ageText(now - edge.since);
    svg.append(text);
  }
  for (const [node, at] of place) {
    const sink = !shown.some((edge) => edge.from === node);
    const group = makeSvg("g", {class: `${sink ? "cause" : ""} ${Object.hasOwn(tasks, node) ? "" : "resource"}`});
    const text = makeSvg("text", {x: at.x + kBox / 2, y: at.y + 21, "text-anchor": "middle"});
    text.textContent = shortened(plainText(node));
    group.append(makeSvg("rect", {x: at.x, y: at.y, width: kBox, height: 34, rx: 8}), text);
    const title = makeSvg("title");
    title.textContent = node;
    group.append(title);
    svg.append(group);
  }
  return svg;
}

export function showWaits(state, now) {
  const waits = state.waits || [];
  const hang = state.hang || {};
  const verdict = byId("hang");
  setText(verdict, hang.cause ? `${hang.only_suspended ? "Suspended" : "Hangs"}: ${plainText(hang.cause)}`
    : hang.busy ? plainText(hang.busy.join("; "))
      : waits.length === 0 ? (state.ended ? "The job has ended." : "Nobody has waited for longer than a second.")
        : "Some wait for longer than a second; that alone is not a hang.");
  verdict.className = hang.cause ? "bad" : "";
  byId("graph").replaceChildren(...(waits.length > 0 ? [drawGraph(waits, state.tasks || {}, now)] : []));
  const lines = waits.map((wait) => make("li", {}, make("b", {}, wait.from), ` for ${ageText(now - wait.since)}: ${plainText(wait.what)}`));
  if (lines.length === 0) lines.push(...(hang.waits || []).map((line) => make("li", {}, plainText(line))));
  if (state.more_waits > 0) lines.push(make("li", {}, `… and ${state.more_waits} more`));
  byId("wait_list").replaceChildren(...lines);
}
