// The tasks as a map and as a table.
import {ageText, bytesText, numberText} from "./format.js";
import {byId, keyed, make, setText, stateClass, stateOf} from "./dom.js";

// Rows beyond this many are not in the page; the filter finds them.
const kMaxRows = 200;

const columns = [
  {name: "Task", key: "task", value: (t) => t.name, text: (t) => t.name},
  {name: "State", key: "state", value: (t) => t.shown, text: (t) => t.shown},
  {name: "Since", key: "since", number: true, narrow: true, value: (t) => -(t.since ?? 0),
    text: (t, now) => t.since === undefined ? "–" : ageText(now - t.since)},
  {name: "Host", key: "host", narrow: true, value: (t) => t.host || "", text: (t) => t.host || "this host"},
  {name: "Step", key: "step", number: true, value: (t) => t.step ?? -1, text: (t) => t.step === undefined ? "–" : String(t.step)},
  {name: "Steps/s", key: "rate", number: true, value: (t) => t.steps_per_second ?? t.parts_per_second ?? -1,
    text: (t) => t.steps_per_second === undefined && t.parts_per_second !== undefined ?
      `${numberText(t.parts_per_second)} parts` : numberText(t.steps_per_second)},
  {name: "Loss", key: "loss", number: true, value: (t) => typeof t.loss === "number" ? t.loss : Infinity, text: (t) => numberText(t.loss)},
  {name: "Restarts", key: "restarts", number: true, value: (t) => t.restarts || 0, text: (t) => String(t.restarts || 0)},
  {name: "Cores", key: "cores", number: true, value: (t) => t.busy_cores ?? -1,
    text: (t) => t.busy_cores === undefined ? (t.cores || "–") : `${t.busy_cores.toFixed(2)} of ${numberText(t.usable_cores)}`},
  {name: "Memory", key: "memory", number: true, value: (t) => t.memory_bytes ?? -1,
    text: (t) => bytesText(t.memory_bytes) + (t.memory_limit_bytes ? ` of ${bytesText(t.memory_limit_bytes)}` : "")},
  {name: "", key: "phase", wrap: true, value: (t) => t.phase || "", text: (t) => t.slow || t.phase || t.error || ""},
];

let sortedBy = null;
let ascending = true;
let chosen = null;
let filter = "";
let show = () => {};

export function setUpTasks(onChoose) {
  const head = make("tr");
  for (const column of columns) {
    const sort = () => {
      ascending = sortedBy === column.key ? !ascending : true;
      sortedBy = column.key;
      show();
    };
    head.append(make("th", {class: `${column.number ? "number" : ""} ${column.narrow ? "hide-narrow" : ""}`, scope: "col"},
      make("button", {type: "button", onclick: sort}, column.name)));
  }
  byId("task_table").replaceChildren(make("thead", {}, head), make("tbody"));
  byId("filter").addEventListener("input", (event) => {
    filter = event.target.value.trim().toLowerCase();
    show();
  });
  return (name) => {
    chosen = name;
    onChoose(name);
    show();
  };
}

function rowsOf(state) {
  const rows = (state.order || []).filter((name) => Object.hasOwn(state.tasks, name)).map((name) => {
    const task = state.tasks[name];
    return {...task, name, shown: stateOf(task), slow: (state.stragglers || {})[name]};
  });
  const column = columns.find((candidate) => candidate.key === sortedBy);
  if (column !== undefined) {
    const sign = ascending ? 1 : -1;
    rows.sort((a, b) => {
      const left = column.value(a);
      const right = column.value(b);
      return sign * (left < right ? -1 : left > right ? 1 : 0);
    });
  }
  return rows;
}

function showMap(rows, choose) {
  const hosts = new Map();
  for (const row of rows) {
    const host = row.host || "";
    if (!hosts.has(host)) hosts.set(host, []);
    hosts.get(host).push(row);
  }
  const small = rows.length > 60;
  keyed(byId("map"), [...hosts], ([host]) => host, ([host]) => make("div", {class: "host"}, make("span", {}, host || "this host")),
    (element, [, tasks]) => {
      const label = element.firstElementChild;
      label.dataset.key = "";
      keyed(element, [{label: true, name: ""}, ...tasks], (task) => task.name, (task) =>
        make("button", {type: "button", class: "cell", onclick: () => choose(task.name)}), (cell, task) => {
        if (task.label) return;
        const classes = `cell ${small ? "small" : ""} ${stateClass(task.shown)}`;
        if (cell.className !== classes) cell.className = classes;
        const text = task.slow ? `${task.name} slow` : task.shown === "running" ? task.name : `${task.name} ${task.shown}`;
        setText(cell, text);
        if (cell.title !== text) cell.title = `${task.name}: ${task.shown}${task.slow ? `; ${task.slow}` : ""}`;
      });
    });
}

export function showTasks(state, now, choose) {
  show = () => showTasks(state, now, choose);
  const all = rowsOf(state);
  showMap(all, choose);
  const rows = all.filter((row) => filter === "" ||
    `${row.name} ${row.shown} ${row.host || ""} ${row.phase || ""} ${row.slow ? "slow straggler" : ""}`.toLowerCase().includes(filter));
  keyed(byId("task_table").querySelector("tbody"), rows.slice(0, kMaxRows), (row) => row.name, (row) => {
    const tr = make("tr", {onclick: () => choose(row.name)});
    for (const column of columns)
      tr.append(make("td", {class: `${column.number ? "number" : ""} ${column.narrow ? "hide-narrow" : ""} ${column.wrap ? "wrap" : ""}`,
        "data-column": column.key}));
    tr.children[1].append(make("span", {class: "pill"}));
    return tr;
  }, (tr, row) => {
    const classes = `${row.slow ? "slow" : ""} ${row.name === chosen ? "chosen" : ""}`;
    if (tr.className !== classes) tr.className = classes;
    columns.forEach((column, i) => {
      const text = column.text(row, now);
      if (column.key !== "state") return setText(tr.children[i], text);
      const pill = tr.children[i].firstElementChild;
      setText(pill, text);
      pill.className = `pill ${stateClass(row.shown)}`;
    });
  });
  const hidden = rows.length - kMaxRows;
  setText(byId("task_note"), rows.length === 0 && all.length > 0 ? "No task matches the filter."
    : hidden > 0 ? `${hidden} more tasks: filter by name, state or host.` : "");
}
