// Parts of the page are replaced if they changed. The state of details, boxes, scrolling and focus is kept.

import { addressOf } from "./address.js";
import { check } from "./chosen.js";
import { drawAll, specOf, tryToDraw } from "./plots.js";

let version = Number(document.body.dataset.version);
export const versionShown = () => version;

// Fetches the parts of the page that differ from those that are shown. Throws if the server reports an error.
export async function missing() {
  const shown = [...document.querySelectorAll("[data-live]")].map(part => `${part.id}=${part.dataset.live}`).join(",");
  const answer = await fetch(addressOf(".parts"), { headers: { "tessera-shown": shown } });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

// Replaces parts, and returns those whose text changed: sometimes only links differ.
// how: "told" by an event, "asked" for by the reader, or "back" in the history.
export function take(found, how) {
  version = found.version;
  const named = Object.entries(found.parts).map(([name, text]) => [document.getElementById(name), text]);
  // All are read before the first is replaced: reading the scroll position of a table forces a layout of the page.
  const ready = named.filter(([part]) => part).map(([part, text]) => [part, part.textContent, prepared(part, text, how)]);
  return ready.filter(([part, before, replace]) => {
    replace();
    return part.textContent !== before;
  }).map(([part]) => part);
}

// Parts that are replaced later, because the reader is typing or choosing in them.
const waiting = new Map();
document.addEventListener("focusout", () => setTimeout(() => {
  for (const [name, text] of waiting) prepared(document.getElementById(name), text, "told")();
}));

function isBusy(active, how) {
  if (how === "told") return active?.matches("input,select");
  return how === "asked" && active?.matches("input:not([type=checkbox])");
}

// Returns a function that replaces a part, or puts it into `waiting`.
function prepared(part, text, how) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  if (isBusy(active, how)) return () => waiting.set(part.id, text);
  const restore = [opened(part), scrolled(part), drawn(part)];
  return () => {
    waiting.delete(part.id);
    const fresh = parsed(text);
    part.replaceChildren(...fresh.childNodes);
    part.dataset.live = fresh.dataset.live;
    for (const each of restore) each();
    check(part);
    if (active) refocus(part, active);
    drawAll(part);
  };
}

function parsed(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text;
  return holder.content.firstElementChild;
}

function opened(part) {
  const all = () => [...part.querySelectorAll("details")], before = all().map(each => each.open);
  return () => all().forEach((each, place) => { each.open = before[place] ?? each.open; });
}

function scrolled(part) {
  const all = () => [...part.querySelectorAll(".table")], before = all().map(each => [each.scrollLeft, each.scrollTop]);
  return () => all().forEach((each, place) => {
    if (before[place]?.some(Boolean)) each.scrollTo(...before[place]);  // this forces a layout of the page
  });
}

// Keep the drawn figures and give them the new numbers, so that nothing flashes or jumps.
function drawn(part) {
  const kept = [...part.querySelectorAll(".plot[data-ready]")].map(plot => [plot, specOf(plot)]);
  return () => {
    for (const [plot, before] of kept) {
      const fresh = part.querySelector(`#${CSS.escape(plot.id)}`);
      if (!fresh) continue;
      plot.ariaLabel = fresh.ariaLabel;
      fresh.replaceWith(plot);
      if (before !== specOf(plot)) tryToDraw(plot);
    }
  };
}

// Focus the same control, or a similar one if it is gone.
function refocus(part, active) {
  const same = each => active.id ? each.id === active.id
    : active.name ? each.name === active.name && each.value === active.value : each.outerHTML === active.outerHTML;
  const alike = [...part.querySelectorAll(active.tagName)];
  const found = part.contains(active) ? active
    : alike.find(same) ?? alike.find(each => active.name && each.name === active.name) ?? part.querySelector("[tabindex],select,input");
  found?.focus({ preventScroll: true });
}
