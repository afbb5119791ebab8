// Elements. Text is always set as text, so nothing that a program says becomes markup.

export function byId(id) {
  return document.getElementById(id);
}

function append(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

export function make(tag, attributes, ...children) {
  return append(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes, ...children) {
  return append(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Makes the list's children those of `items`, by key: an element is kept, and updated, as long as its item is there.
export function keyed(parent, items, keyOf, create, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = old.get(key);
    if (child === undefined) {
      child = create(item);
      child.dataset.key = key;
    } else {
      old.delete(key);
    }
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const child of old.values()) child.remove();
}

const kStateClasses = {
  running: "busy-state", succeeded: "good-state", failed: "bad-state", lost: "bad-state", "no answer": "bad-state",
  restarting: "warn-state", starting: "warn-state", suspended: "warn-state",
};

// The class that colours a state; the state's word always stands beside the colour.
export function stateClass(state) {
  return kStateClasses[state] || "";
}

// What is special about a task's state now.
export function stateOf(task) {
  if (task.state === "running" && (task.phase || "").startsWith("suspended by ")) return "suspended";
  if (task.state === "running" && task.error) return "no answer";
  return task.state || "unknown";
}
