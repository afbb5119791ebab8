// Applies a merge patch (RFC 7396) to a document.
export function applyPatch(target, patch) {
  for (const [key, value] of Object.entries(patch)) {
    // A key of a document is a member of its own, whatever its name is.
    if (key === "__proto__") continue;
    if (value === null) {
      delete target[key];
    } else if (typeof value === "object" && !Array.isArray(value)) {
      const inner = Object.hasOwn(target, key) ? target[key] : undefined;
      target[key] = applyPatch(inner !== null && typeof inner === "object" && !Array.isArray(inner) ? inner : {}, value);
    } else {
      target[key] = value;
    }
  }
  return target;
}
