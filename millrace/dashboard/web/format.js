// Numbers, sizes and times as people read them.

// Four significant digits; NaN and infinities by their names.
export function numberText(value) {
  if (value === undefined || value === null) return "–";
  if (typeof value === "string") return value;
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) return value.toExponential(2);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return size >= 100 ? value.toFixed(1) : size >= 1 ? value.toFixed(2) : value.toPrecision(3);
}

export function bytesText(bytes) {
  if (bytes === undefined || bytes === null) return "–";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) {
    bytes /= 1000;
    ++unit;
  }
  return `${unit === 0 || bytes >= 99.95 ? bytes.toFixed(0) : bytes.toFixed(1)} ${units[unit]}`;
}

export function ageText(seconds) {
  seconds = Math.max(0, seconds);
  if (seconds < 99.5) return `${seconds.toFixed(0)} s`;
  if (seconds < 5970) return `${(seconds / 60).toFixed(0)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

// Time within the job: 0:07, 12:40, 3:05:10.
export function clockText(seconds) {
  seconds = Math.max(0, Math.floor(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

export function percentText(share) {
  const percent = 100 * share;
  return `${percent < 9.5 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

// Text of programs: colours and other control codes of terminals are left out.
export function plainText(text) {
  return text.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/\u001b\][^\u0007\u001b]*(\u0007|\u001b\\)?/g, "")
    .replace(/[^\n]*\r(?!\n)/g, "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "");
}
