// The page follows a search while it is visible. The stream has the address of the page with another ending, because
// the changes depend on filters, order and zoom.

import { addressOf } from "./address.js";
import { missing, take, versionShown } from "./parts.js";
import { sign } from "./said.js";

const AGAIN = 10_000;  // milliseconds until a rejected stream is requested again

let events = null;
export function stop() {
  events?.close();
  events = null;
}

export function watch() {
  if (!document.body.dataset.version) return;
  stop();
  if (document.hidden) return sign("", false);
  const mine = events = new EventSource(addressOf(".events"));
  events.addEventListener("changed", event => changed(JSON.parse(event.data)));
  events.addEventListener("problem", event => sign(JSON.parse(event.data) || "live", event.data !== '""'));
  events.onerror = () => {
    sign("", false);
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (events === mine) watch(); }, AGAIN);
  };
}

function changed({ version, before, parts }) {
  sign("live", false);
  if (parts && before === versionShown()) take({ version, parts }, "told");
  else if (version > versionShown()) update();
}

// Fetch the changes of events that did not arrive.
let updating = false, again = false;
async function update() {
  if (updating) { again = true; return; }
  updating = true;
  const address = location.search;
  try {
    const found = await missing();
    if (address === location.search) take(found, "told");
  } catch { /* the server does not answer; the event source tries again */ }
  updating = false;
  if (again) { again = false; setTimeout(update, 500); }
}

document.addEventListener("visibilitychange", watch);
document.addEventListener("zoomed", ({ detail: drawn }) => {
  stop();  // the address changed
  drawn.then(watch, watch);
});
