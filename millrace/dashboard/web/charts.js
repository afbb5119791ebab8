// Lines over the time of the job, on a canvas: the middle of the tasks, and a band from the lowest to the highest.
import {clockText, numberText} from "./format.js";
import {byId, setText} from "./dom.js";

// Numbers as large as this are drawn at the border: their differences would not be finite.
const kLargest = 1e300;

function clampNumber(value) {
  return Math.min(kLargest, Math.max(-kLargest, value));
}

// Round numbers from `low` to `high`.
function ticksOf(low, high, count) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) || span;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9 && ticks.length < 20; tick += step) ticks.push(tick);
  return ticks;
}

// A scale that is logarithmic if the values are positive and span orders of magnitude.
function scaleOf(points) {
  const values = points.flatMap((point) => [point.low, point.high]).map(clampNumber);
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (low > 0 && high / low > 200) {
    const bottom = Math.log10(low);
    const top = Math.log10(high);
    const ticks = [];
    const every = Math.max(1, Math.ceil((top - bottom) / 5));
    for (let power = Math.ceil(bottom); power <= top; power += every) ticks.push(10 ** power);
    return {at: (value) => (Math.log10(Math.max(clampNumber(value), low)) - bottom) / (top - bottom || 1), ticks};
  }
  if (low > 0 && low < high * 0.7) low = 0;
  if (high === low) {
    const pad = Math.abs(high) * 0.1 || 1;
    low -= pad;
    high += pad;
  }
  return {at: (value) => (clampNumber(value) / 2 - low / 2) / (high / 2 - low / 2), ticks: ticksOf(low, high, 4)};
}

function drawChart(canvas, points, unit, hover) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (width === 0) return;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const g = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = "11px system-ui, sans-serif";
  g.fillStyle = colour("--dim");
  if (points.length === 0) {
    g.textAlign = "center";
    g.fillText("Nothing has been reported yet", width / 2, height / 2);
    return;
  }
  const scale = scaleOf(points);
  const box = {left: 52, right: width - 10, top: 10, bottom: height - 22};
  const first = points[0].at;
  const last = Math.max(points[points.length - 1].at, first + 1);
  const x = (at) => box.left + (at - first) / (last - first) * (box.right - box.left);
  const y = (value) => box.bottom - scale.at(value) * (box.bottom - box.top);
  g.strokeStyle = colour("--line");
  g.lineWidth = 1;
  g.textAlign = "right";
  g.textBaseline = "middle";
  for (const tick of scale.ticks) {
    g.beginPath();
    g.moveTo(box.left, y(tick));
    g.lineTo(box.right, y(tick));
    g.stroke();
    g.fillText(numberText(tick), box.left - 6, y(tick));
  }
  g.textBaseline = "top";
  g.textAlign = "left";
  g.fillText(clockText(first), box.left, box.bottom + 6);
  g.textAlign = "right";
  g.fillText(clockText(last), box.right, box.bottom + 6);
  g.fillStyle = colour("--band");
  g.beginPath();
  for (const point of points) g.lineTo(x(point.at), y(point.high));
  for (const point of [...points].reverse()) g.lineTo(x(point.at), y(point.low));
  g.fill();
  g.strokeStyle = colour("--accent");
  g.lineWidth = 2;
  g.lineJoin = "round";
  g.beginPath();
  for (const point of points) g.lineTo(x(point.at), y(point.middle));
  g.stroke();
  if (hover === undefined) return;
  const at = first + (hover - box.left) / (box.right - box.left) * (last - first);
  const near = points.reduce((a, b) => Math.abs(a.at - at) <= Math.abs(b.at - at) ? a : b);
  g.fillStyle = colour("--accent");
  g.beginPath();
  g.arc(x(near.at), y(near.middle), 3.5, 0, 7);
  g.fill();
  const range = near.low === near.high ? "" : ` (${numberText(near.low)} to ${numberText(near.high)})`;
  const text = `${clockText(near.at)}  ${numberText(near.middle)} ${unit}${range}`;
  const size = g.measureText(text).width + 14;
  const left = Math.min(Math.max(x(near.at) - size / 2, box.left), box.right - size);
  g.fillStyle = colour("--panel");
  g.strokeStyle = colour("--line");
  g.lineWidth = 1;
  g.beginPath();
  g.roundRect(left, box.top, size, 22, 6);
  g.fill();
  g.stroke();
  g.fillStyle = colour("--ink");
  g.textAlign = "left";
  g.textBaseline = "middle";
  g.fillText(text, left + 7, box.top + 11);
}

function pointsOf(samples, index) {
  return samples.filter((sample) => sample[index] !== null)
    .map((sample) => ({at: sample[0], low: sample[index][0], middle: sample[index][1], high: sample[index][2]}));
}

const charts = [
  {id: "speed", index: 2, unit: "steps/s", points: []},
  {id: "loss", index: 3, unit: "", points: []},
];

export function setUpCharts() {
  for (const chart of charts) {
    const canvas = byId(chart.id);
    const draw = () => drawChart(canvas, chart.points, chart.unit, chart.hover);
    canvas.addEventListener("pointermove", (event) => {
      chart.hover = event.offsetX;
      draw();
    });
    canvas.addEventListener("pointerleave", () => {
      chart.hover = undefined;
      draw();
    });
    // The keyboard moves along the line.
    canvas.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: -8, ArrowRight: 8}[event.key];
      if (step === undefined) return;
      event.preventDefault();
      chart.hover = Math.min(canvas.clientWidth, Math.max(0, (chart.hover ?? canvas.clientWidth) + step));
      draw();
    });
  }
}

export function showCharts(state) {
  const history = state.history || {};
  const samples = Object.keys(history).map(Number).sort((a, b) => a - b).map((number) => history[number]);
  for (const chart of charts) {
    chart.points = pointsOf(samples, chart.index);
    const canvas = byId(chart.id);
    drawChart(canvas, chart.points, chart.unit, chart.hover);
    const last = chart.points[chart.points.length - 1];
    const label = last === undefined ? "nothing yet" : `now ${numberText(last.middle)} ${chart.unit}`;
    canvas.setAttribute("aria-label", `${chart.id}: ${label}`);
    canvas.setAttribute("role", "img");
  }
  const bad = samples.length > 0 ? samples[samples.length - 1][4] : 0;
  setText(byId("charts_note"), bad > 0 ? `The loss of ${bad === 1 ? "one task" : `${bad} tasks`} is not a finite number.`
    : "Line: the middle of the tasks. Band: from the lowest to the highest.");
}
