// A link, choice or search that stays on this page replaces only the parts that differ, if that is enough.

import { isBehind, settle, step } from "./address.js";
import { chosen, compare } from "./chosen.js";
import { missing, take } from "./parts.js";
import { described, tell } from "./said.js";
import { stop, watch } from "./stream.js";

let latest = 0;
export async function show(how) {
  const mine = ++latest, main = document.getElementById("main");
  stop();
  settle();
  main.setAttribute("aria-busy", "true");
  try {
    const found = await missing();
    if (mine !== latest) return;
    if (found.frame !== document.body.dataset.frame) return location.reload();
    tell(take(found, how).map(described).filter(Boolean).join("; "));
  } catch {
    if (mine === latest) location.reload();  // the new page says what is wrong
    return;
  }
  main.removeAttribute("aria-busy");
  watch();
}

async function go(names, hash, from) {
  if (!step(names, hash)) return;
  await show("asked");
  const target = hash && document.getElementById(hash.slice(1));
  if (target && !target.closest("section").contains(from)) target.scrollIntoView();
}

document.addEventListener("click", event => {
  const link = event.target.closest?.("main a[href^='?']");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(new URL(link.href).searchParams, link.hash, link);
});

document.addEventListener("submit", event => {
  const { target: form, submitter } = event, compares = submitter?.getAttribute("formaction");
  if (!form.matches("form[data-live],form[data-auto]")) return;
  event.preventDefault();
  if (!compares) go(new URLSearchParams(Object.fromEntries(new FormData(form, submitter))), "", form);
  else if (chosen().length) compare(compares, chosen());
});

// Choices act at once; their button is for pages without scripts.
document.addEventListener("change", event => {
  if (event.target.matches("form[data-auto] select")) event.target.form.requestSubmit();
});

window.addEventListener("popstate", () => { if (isBehind()) show("back"); });

if (document.querySelector("[data-reading]")) setInterval(() => { if (!document.hidden) show("told"); }, 2000);
