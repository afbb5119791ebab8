// Connects to the dashboard, keeps the document, and shows it. A saved page has the document in itself.
import {byId, setText} from "./dom.js";
import {applyPatch} from "./patch.js";
import {setUpCharts, showCharts} from "./charts.js";
import {setUpTasks, showTasks} from "./tasks.js";
import {showWaits} from "./waits.js";
import {showPlan, showTraffic, showVariables} from "./traffic.js";
import {showTimeline} from "./timeline.js";
import {chooseOutput, refreshOutput, setUpOutput, showOutput} from "./output.js";
import {showSummary} from "./summary.js";

let state = {};
let receivedAt = 0;
let shownOnce = false;
let isSaved = false;

const chooseTask = setUpTasks(chooseOutput);

// The job's time now: that of the last update, and what has passed since.
function jobNow() {
  const since = state.ended || isSaved || receivedAt === 0 ? 0 : (performance.now() - receivedAt) / 1000;
  return (state.now || 0) + Math.min(since, 5);
}

function showAll() {
  const begin = performance.now();
  const now = jobNow();
  showSummary(state, now);
  showCharts(state);
  showTasks(state, now, chooseTask);
  showWaits(state, now);
  showTraffic(state);
  showVariables(state);
  showPlan(state);
  showTimeline(state, now);
  showOutput(state);
  // For tests and the curious: how long the last update took.
  document.documentElement.dataset.millis = (performance.now() - begin).toFixed(1);
  if (!shownOnce && state.tasks !== undefined) {
    shownOnce = true;
    document.documentElement.dataset.ready = "true";
  }
}

let frame = 0;
function showSoon() {
  // A page that nobody sees draws nothing.
  if (frame === 0) frame = requestAnimationFrame(() => {
    frame = 0;
    showAll();
  });
}

function setUpTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const flip = () => {
    root.dataset.theme = dark() ? "light" : "dark";
    showSoon();
  };
  byId("theme").addEventListener("click", flip);
  system.addEventListener("change", showSoon);
  return flip;
}

function setUpKeys(flipTheme) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "/") {
      event.preventDefault();
      byId("filter").focus();
    } else if (event.key === "o") {
      byId("output_task").focus();
    } else if (event.key === "t") {
      flipTheme();
    }
  });
}

// The token of the address becomes a cookie, and disappears from the address.
async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get("k");
  if (token === null) return true;
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("session", {headers: {Authorization: `Bearer ${token}`}});
  return answer.ok;
}

function connect() {
  const events = new EventSource("events");
  const live = byId("live");
  events.addEventListener("state", (event) => {
    state = JSON.parse(event.data);
    receivedAt = performance.now();
    setText(live, state.ended ? "ended" : "live");
    showSoon();
  });
  events.addEventListener("patch", (event) => {
    applyPatch(state, JSON.parse(event.data));
    receivedAt = performance.now();
    setText(live, state.ended ? "ended" : "live");
    showSoon();
  });
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED)
      setText(live, "no access: open the whole address that the dashboard printed");
    else
      setText(live, state.ended ? "ended; the dashboard is gone" : "connecting again …");
  });
  // Ages grow between updates.
  setInterval(() => {
    if (!document.hidden && !state.ended && state.tasks !== undefined) showSoon();
  }, 1000);
  setInterval(() => {
    if (!document.hidden) refreshOutput();
  }, 1500);
}

async function liveOutput(task) {
  try {
    const answer = await fetch(`output?task=${encodeURIComponent(task)}`);
    return answer.ok ? await answer.text() : null;
  } catch {
    return null;
  }
}

async function begin() {
  setUpCharts();
  setUpKeys(setUpTheme());
  addEventListener("resize", showSoon);
  const saved = byId("saved");
  if (saved !== null) {
    const page = JSON.parse(saved.textContent);
    setUpOutput(async (task) => Object.hasOwn(page.outputs, task) ? page.outputs[task] : "");
    state = page.document;
    isSaved = true;
    setText(byId("live"), state.ended ? "saved page" : "saved while it ran");
    showAll();
    refreshOutput();
    return;
  }
  setUpOutput(liveOutput);
  let entered = false;
  try {
    entered = await enter();
  } catch {
    entered = false;
  }
  if (entered) connect();
  else setText(byId("live"), "no access: open the whole address that the dashboard printed");
}

begin();
