// The parts of a page that changed are replaced, if they changed on the server or the reader asked for another view.
// The state of details, boxes, scrolling and focus is kept.

const PAUSE = 4000;  // milliseconds between two requests of a page that follows a search
const SHARE = 8, LONGEST = 20_000;  // after a request of t milliseconds, wait 8 t, at most 20 s: a busy server is spared
const MOST = 6;  // trials of a comparison

export const tell = text => { document.getElementById("said").textContent = text; };

function sign(text) {
  const badge = document.getElementById("live");
  if (badge.textContent !== text) badge.textContent = text;
}

const partsOf = page => [...page.querySelectorAll("[data-live]")];
const written = new Map(partsOf(document).map(part => [part.id, part.outerHTML]));  // as the server sent them
let etag = null, latest = 0;

// Replaces the parts of this page that differ at its address, and returns those with another text; null if a later
// request was made.
export async function refresh(isAsked) {
  const mine = isAsked ? ++latest : latest;
  const answer = await fetch(location.href, { headers: etag ? { "if-none-match": etag } : {}, cache: "no-store" });
  if (mine !== latest || answer.status === 304) return mine === latest ? [] : null;
  if (!answer.ok) throw new Error(answer.statusText);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== latest) return null;
  if (isAsked && frame(page) !== frame(document)) return location.reload();
  const changed = [];
  let isBusy = false;
  for (const fresh of partsOf(page)) {
    const part = document.getElementById(fresh.id), text = fresh.outerHTML;
    if (!part || written.get(fresh.id) === text) continue;
    if (!isAsked && part.contains(document.activeElement) && document.activeElement.matches("input,select")) isBusy = true;
    else {
      const before = part.textContent;
      replace(part, fresh);
      written.set(fresh.id, text);
      if (part.textContent !== before) changed.push(part);  // sometimes only links differ
    }
  }
  etag = isBusy ? null : answer.headers.get("etag");  // a part in which the reader types is replaced later
  return changed;
}

// What is not in a part that can be replaced.
function frame(page) {
  const main = page.getElementById("main").cloneNode(true);
  for (const part of main.querySelectorAll("[data-live]")) part.remove();
  for (const editor of main.querySelectorAll("form[data-edit] > div")) editor.remove();
  return main.textContent;
}

function replace(part, fresh) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  const open = [...part.querySelectorAll("details")].map(each => each.open);
  const scrolled = [...part.querySelectorAll(".table")].map(each => [each.scrollLeft, each.scrollTop]);
  const boxes = new Map([...part.querySelectorAll("input[name=trials]")].map(box => [box.value, box.checked]));
  part.replaceChildren(...fresh.childNodes);
  [...part.querySelectorAll("details")].forEach((each, place) => { each.open = open[place] ?? each.open; });
  [...part.querySelectorAll(".table")].forEach((each, place) => { if (scrolled[place]?.some(Boolean)) each.scrollTo(...scrolled[place]); });
  for (const box of part.querySelectorAll("input[name=trials]")) box.checked = boxes.get(box.value) ?? box.checked;
  if (active) refocus(part, active);
}

// Focus the same control, or the next one of its kind if it is gone.
function refocus(part, active) {
  const same = each => active.id ? each.id === active.id
    : active.name ? each.name === active.name && each.value === active.value : each.outerHTML === active.outerHTML;
  const alike = [...part.querySelectorAll(active.tagName)];
  const found = alike.find(same) ?? alike.find(each => active.name && each.name === active.name) ?? part.querySelector("[tabindex],select,input");
  found?.focus({ preventScroll: true });
}

// Another view of this page. It makes an entry in the history.
export async function go(names, hash = "", from = null) {
  history.pushState(null, "", `${location.pathname}?${names}${hash}`);
  await show();
  const target = hash && document.getElementById(hash.slice(1));
  if (target && !target.closest("section")?.contains(from)) target.scrollIntoView();
}

async function show() {
  const main = document.getElementById("main");
  main.setAttribute("aria-busy", "true");
  try {
    const changed = await refresh(true);
    if (!changed) return;
    tell(changed.map(described).filter(Boolean).join("; "));
    main.removeAttribute("aria-busy");
  } catch {
    location.reload();  // the new page says what is wrong
  }
}

// The message for screen readers about a part that was replaced.
function described(part) {
  const table = part.querySelector(".table[id]"), order = part.querySelector("th[aria-sort]");
  if (!table) return part.querySelector(".plot")?.ariaLabel;
  const sorted = order && `sorted by ${order.textContent.trim()}, ${order.ariaSort}`;
  return [table.ariaLabel, sorted, part.querySelector(".pages span")?.textContent].filter(Boolean).join(", ");
}

document.addEventListener("click", event => {
  const link = event.target.closest?.("main a[href^='?']");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(new URL(link.href).searchParams, link.hash, link);
});

document.addEventListener("submit", event => {
  const { target: form, submitter } = event;
  if (!form.matches("form[data-live],form[data-auto]") || submitter?.hasAttribute("formaction")) return;
  event.preventDefault();
  go(new URLSearchParams(new FormData(form, submitter)), "", form);
});

// Choices act at once; their button is for pages without scripts.
document.addEventListener("change", event => {
  const { target } = event;
  if (target.matches("form[data-auto] select")) target.form.requestSubmit();
  if (!target.matches("input[name=trials][type=checkbox]")) return;
  if (new FormData(target.form).getAll("trials").length <= MOST) return;
  target.checked = false;
  tell(`At most ${MOST} trials can be compared.`);
});

window.addEventListener("popstate", show);

async function follow() {
  let spent = 0;
  if (document.hidden) sign("");
  else {
    const began = performance.now();
    try {
      await refresh(false);
      sign("live");
    } catch {
      sign("");
    }
    spent = performance.now() - began;
  }
  setTimeout(follow, Math.min(LONGEST, Math.max(PAUSE, SHARE * spent)));
}
if (document.body.hasAttribute("data-live-page")) follow();
document.addEventListener("visibilitychange", () => { if (document.hidden) sign(""); });
