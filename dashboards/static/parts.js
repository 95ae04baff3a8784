// Parts of the page are replaced if they changed. What the reader opened, chose, scrolled or focused stays.

import { addressOf } from "./address.js";
import { check } from "./chosen.js";
import { drawAll, specOf, tryToDraw } from "./plots.js";

let version = Number(document.body.dataset.version);
export const versionShown = () => version;

// The parts of the page at its address that differ from those that are shown.
export async function missing() {
  const shown = [...document.querySelectorAll("[data-live]")].map(part => `${part.id}=${part.dataset.live}`).join(",");
  const answer = await fetch(addressOf(".parts"), { headers: { "tessera-shown": shown } });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

// Returns the parts that say something else now: links alone may differ too.
// how: "told" by an event, "asked" for by the reader, or "back" in the history.
export function take(found, how) {
  version = found.version;
  const named = Object.entries(found.parts).map(([name, text]) => [document.getElementById(name), text]);
  // All are looked at before the first is replaced: a look at where a table is scrolled lays out the page.
  const ready = named.filter(([part]) => part).map(([part, text]) => [part, part.textContent, prepared(part, text, how)]);
  return ready.filter(([part, before, replace]) => {
    replace();
    return part.textContent !== before;
  }).map(([part]) => part);
}

// A part that waits until the reader leaves what is typed or chosen in it.
const waiting = new Map();
document.addEventListener("focusout", () => setTimeout(() => {
  for (const [name, text] of waiting) prepared(document.getElementById(name), text, "told")();
}));

function isBusy(active, how) {
  if (how === "told") return active?.matches("input,select");
  return how === "asked" && active?.matches("input:not([type=checkbox])");
}

// What replaces a part, or lets it wait.
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
    if (before[place]?.some(Boolean)) each.scrollTo(...before[place]);  // which lays out the page
  });
}

// Figures stay and get the new numbers: no flash, no jump.
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

// The same control, or one that is near if it is gone.
function refocus(part, active) {
  const same = each => active.id ? each.id === active.id
    : active.name ? each.name === active.name && each.value === active.value : each.outerHTML === active.outerHTML;
  const alike = [...part.querySelectorAll(active.tagName)];
  const found = part.contains(active) ? active
    : alike.find(same) ?? alike.find(each => active.name && each.name === active.name) ?? part.querySelector("[tabindex],select,input");
  found?.focus({ preventScroll: true });
}
