// The address of the page holds filters, order, zoom and selection, so that a view can be shared.

export const query = () => new URLSearchParams(location.search);

// The page in another form: ".json", ".parts" or ".events".
export function addressOf(ending, more = {}) {
  const names = new URLSearchParams([...query(), ...Object.entries(more)]);
  return (location.pathname === "/" ? "/index" : location.pathname) + ending + (names.size ? `?${names}` : "");
}

const located = (names, hash) => location.pathname + (names.size ? `?${names}` : "") + hash;

// The query that the page shows. The back and forward buttons change the address first.
let shown = location.search;
export const settle = () => { shown = location.search; };
export const isBehind = () => location.search !== shown;

// A change that the page already shows. It makes no entry in the history.
export function remember(changes) {
  const names = query();
  for (const [name, value] of Object.entries(changes)) value === null ? names.delete(name) : names.set(name, value);
  history.replaceState(null, "", located(names, location.hash));
  settle();
}

// Parameters that the scripts add to the address. Links that the server made earlier do not have them.
const OWN = /^(zoom_|view_|trials$)/;

// Make an entry in the history with another query of this page. An empty value removes a parameter of the scripts.
// Returns false if the query is unchanged.
export function step(names, hash) {
  const before = query();
  for (const name of new Set([...names.keys(), ...before.keys()])) {
    if (!OWN.test(name)) continue;
    const value = names.get(name) === "" ? null : before.get(name);
    value === null ? names.delete(name) : names.set(name, value);
  }
  if (`?${names}` === location.search) return false;
  history.pushState(null, "", located(names, hash));
  return true;
}
