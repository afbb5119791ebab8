// Bytes between tasks, the bottleneck, variables, and what other numbers of tasks would give.
import {bytesText, numberText, percentText, plainText} from "./format.js";
import {byId, keyed, make, setText} from "./dom.js";

const kBinds = {ps_link: "links of the ps", ps_cores: "cores of the ps", host_cores: "cores of the host", workers: "workers"};

function bar(element, share) {
  element.className = share >= 0.7 ? "bar full" : "bar";
  element.firstElementChild.style.width = `${Math.min(100, 100 * share).toFixed(1)}%`;
}

export function showTraffic(state) {
  const line = byId("bottleneck");
  line.replaceChildren(...(state.bottleneck ? [make("b", {}, "Bottleneck: "), plainText(state.bottleneck.line)]
    : [make("span", {class: "empty"}, "The tasks report no rates yet; programs without a Millrace server never do.")]));
  const table = byId("links");
  const all = Object.entries(state.links || {});
  const links = all.filter(([, link]) => link.bytes_sent > 0 || link.bytes_received > 0).sort((a, b) => b[1].gigabytes_per_second - a[1].gigabytes_per_second);
  const idle = all.length - links.length + (state.more_links || 0);
  setText(byId("links_note"), idle > 0 ? `${idle} further connections carry no tensors, or less than these.` : "");
  if (links.length === 0) return table.replaceChildren();
  if (table.tHead === null) {
    table.append(make("thead", {}, make("tr", {}, make("th", {}, "From"), make("th", {}, "To"), make("th", {}, "Lane"),
      make("th", {class: "number"}, "Per second"), make("th", {}, "Of the ceiling"), make("th", {class: "number hide-narrow"}, "Sent"),
      make("th", {class: "number hide-narrow"}, "Received"))), make("tbody"));
  }
  keyed(table.tBodies[0], links, ([key]) => key, () => make("tr", {}, make("td"), make("td"), make("td"),
    make("td", {class: "number"}), make("td", {}, make("span", {class: "bar"}, make("i")), make("span")),
    make("td", {class: "number hide-narrow"}), make("td", {class: "number hide-narrow"})), (row, [, link]) => {
    const cells = row.children;
    setText(cells[0], link.from);
    setText(cells[1], link.to);
    setText(cells[2], link.lane);
    cells[2].title = link.why_not_better || "";
    setText(cells[3], `${bytesText(link.gigabytes_per_second * 1e9)}/s`);
    const known = link.share_of_ceiling !== undefined;
    cells[4].firstElementChild.hidden = !known;
    if (known) bar(cells[4].firstElementChild, link.share_of_ceiling);
    setText(cells[4].lastElementChild, known ? percentText(link.share_of_ceiling) : "not known");
    setText(cells[5], bytesText(link.bytes_sent));
    setText(cells[6], bytesText(link.bytes_received));
  });
  return undefined;
}

export function showVariables(state) {
  const list = byId("variable_list");
  const tasks = Object.entries(state.variables || {});
  if (tasks.length === 0)
    return list.replaceChildren(make("p", {class: "empty"}, "No task reports variables."));
  if (list.firstElementChild !== null && list.firstElementChild.className === "empty") list.replaceChildren();
  keyed(list, tasks, ([name]) => name, ([, task]) => make("details", {open: tasks.length <= 4},
    make("summary", {}, make("b"), " ", make("span")), make("div", {class: "scroll"}, make("table", {}, make("tbody")))),
  (element, [name, task]) => {
    setText(element.querySelector("b"), name);
    setText(element.querySelector("summary span"), `${task.count} variables, ${bytesText(task.bytes)}`);
    keyed(element.querySelector("tbody"), task.largest, (variable) => variable.name,
      () => make("tr", {}, make("td", {class: "wrap"}), make("td"), make("td", {class: "number"})), (row, variable) => {
        setText(row.children[0], plainText(variable.name));
        setText(row.children[1], `${variable.dtype}[${variable.shape.join(",")}]`);
        setText(row.children[2], bytesText(variable.bytes));
      });
  });
  return undefined;
}

export function showPlan(state) {
  const plan = state.plan;
  const place = byId("plan_table");
  if (plan === undefined)
    return place.replaceChildren(make("p", {class: "empty"}, "A plan needs the rates of ps tasks and of workers that train."));
  const row = (ps, workers, speed, binds, measured) => make("tr", {class: measured ? "chosen" : ""}, make("td", {class: "number"}, String(ps)),
    make("td", {class: "number"}, String(workers)), make("td", {class: "number"}, numberText(speed)), make("td", {}, binds));
  const rows = plan.others.map((other) => row(other.ps, other.workers, other.steps_per_second,
    `${kBinds[other.binds] || other.binds}, ${percentText(other.busy)} busy`, false));
  place.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, make("th", {class: "number"}, "ps"),
    make("th", {class: "number"}, "workers"), make("th", {class: "number"}, "steps/s"), make("th", {}, "what binds"))),
  make("tbody", {}, row(plan.ps, plan.workers, plan.steps_per_second, "measured now", true), ...rows)),
  make("p", {class: "note"}, "Predicted from the rates of this run, for the same hosts."));
  return undefined;
}
