// Without this file pages are complete: pictures, tables, links and forms. With it figures can be zoomed, brushed and
// clicked, forms act at once, and pages update while a search runs.
"use strict";

const body = document.body;
let plotlyLoading = null;

function loaded(address) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
}

function loadPlotly() {
  return plotlyLoading ??= loaded("/static/plotly.min.js").then(() => window.Plotly);
}

// Colours arrive as names of custom properties, so that a figure follows the theme of the page.
function colours(value, styles) {
  if (typeof value === "string" && value.startsWith("--")) {
    const pale = value.endsWith("-pale");
    const found = styles.getPropertyValue(pale ? value.slice(0, -5) : value).trim();
    return pale ? found + "26" : found;
  }
  if (Array.isArray(value)) return value.length && typeof value[0] === "object" ? value.map(v => colours(v, styles)) : value;
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, colours(v, styles)]));
  return value;
}

function laidOut(layout, styles, width) {
  const text = styles.getPropertyValue("--faint").trim(), grid = styles.getPropertyValue("--grid").trim();
  const axis = each => ({ ...each, gridcolor: grid, zeroline: false, linecolor: grid, automargin: true, exponentformat: "SI" });
  return {
    ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis), autosize: true,
    margin: { l: 56, r: 12, t: 12, b: 48 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: text }, hovermode: "closest", dragmode: "zoom",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: width < 500 ? 10 : 12 } },
  };
}

function zoomOf(name) {
  const query = new URLSearchParams(location.search);
  return (query.get(`view_${name}`) ?? "").split(",").map(Number);
}

function remember(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) value === null ? query.delete(name) : query.set(name, value);
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : "") + location.hash);
  shown = location.search;
}

const textOf = plot => document.getElementById(`data-${plot.dataset.name}`)?.textContent;

// The server draws fewer points than there are, and others where the reader looks.
const turns = new Map();
async function refine(element, name) {
  const turn = (turns.get(name) ?? 0) + 1;
  turns.set(name, turn);
  const query = new URLSearchParams(location.search);
  query.set("figure", name);
  const answer = await fetch(`${location.pathname}.json?${query}`).catch(() => null);
  if (!answer?.ok) return;
  const spec = await answer.json();
  if (turns.get(name) === turn) await draw(element, spec);
}

function zoomed(element, name, thinned, event) {
  const whole = event["xaxis.autorange"] || event["yaxis.autorange"];
  if (!whole && !Object.keys(event).some(key => key.startsWith("xaxis.range") || key.startsWith("yaxis.range"))) return;
  const { xaxis, yaxis } = element._fullLayout;
  if (!thinned) {
    const view = [...xaxis.range, ...yaxis.range].map(v => Number(v).toPrecision(6)).join(",");
    return remember({ [`view_${name}`]: whole ? null : view });
  }
  const bounds = axis => axis.range.map(v => (axis.type === "log" ? 10 ** v : Number(v)).toPrecision(6)).join(",");
  remember({ zoom_x: whole ? null : bounds(xaxis), zoom_y: whole ? null : bounds(yaxis) });
  watch();
  refine(element, name);
}

// A long title in lines of about 26 letters, for phones.
function broken(text) {
  return text.length < 36 ? text : text.replace(/(.{18,26}) /g, "$1<br>");
}

async function draw(element, spec = JSON.parse(textOf(element))) {
  const name = element.dataset.name;
  const Plotly = await loadPlotly();
  const styles = getComputedStyle(body), width = element.clientWidth;
  const layout = laidOut(spec.layout, styles, width);
  if (width < 500) for (const axis of [layout.xaxis, layout.yaxis]) axis.title = { text: broken(axis.title.text), font: { size: 12 } };
  if (width < 500 && layout.yaxis.ticktext) {
    const short = text => text.length > 20 ? `…${text.slice(-19)}` : text;
    layout.yaxis = { ...layout.yaxis, ticktext: layout.yaxis.ticktext.map(short) };
    layout.xaxis = { ...layout.xaxis, nticks: 4 };
  }
  if (width < 500 && layout.xaxis.ticktext?.join("").length > 24) layout.xaxis = { ...layout.xaxis, tickangle: -45, ticklabeloverflow: "allow" };
  const zoom = zoomOf(name);
  if (zoom.length === 4 && zoom.every(Number.isFinite)) {
    layout.xaxis.range = zoom.slice(0, 2);
    layout.yaxis.range = zoom.slice(2);
  }
  const data = spec.data.map(trace => colours(trace, styles));
  for (const trace of data) if (trace.type === "heatmap" && width < 220 + 36 * trace.z[0].length) delete trace.texttemplate;
  for (const trace of data) if (trace.hovertext && trace.hovertext.length) trace.hoverinfo = "text";
  const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["toImage", "autoScale2d", ...(spec.brush ? [] : ["select2d", "lasso2d"])] };
  layout.height = Math.max(element.clientHeight, 240);  // the height of the picture that it replaces: no jump
  element.style.minHeight = `${layout.height}px`;
  const picture = element.querySelector("svg.figure");
  if (picture) picture.remove();
  await Plotly.react(element, data, layout, config);
  if (element.dataset.ready) return;
  element.dataset.ready = "yes";
  element.on("plotly_click", event => {
    const link = event.points[0]?.customdata;
    if (typeof link === "string" && link.startsWith("/")) location.assign(link);
  });
  element.on("plotly_relayout", event => zoomed(element, name, spec.thinned, event));
  if (spec.brush) element.on("plotly_selected", event => {
    const trials = [...new Set((event?.points ?? []).map(p => /\/trials\/(\d+)$/.exec(p.customdata ?? "")?.[1]).filter(Boolean))];
    if (trials.length > 1) location.assign(`${spec.brush}?trials=${trials.slice(0, MOST_CHOSEN).join(",")}`);
  });
}

const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) {
    watcher.unobserve(entry.target);
    draw(entry.target).catch(() => {});  // the picture without a script stays
  }
}, { rootMargin: "200px" });

function drawAll(root) {
  for (const element of root.querySelectorAll(".plot[data-name]:not([data-ready])")) watcher.observe(element);
}

// A part of the page is replaced if it changed; what the reader opened, chose, scrolled or focused stays.
// how: "told" by an event, "asked" for by the reader, or "back" in the history. What the reader types is kept until then.
const waiting = new Map();
function replacePart(part, text, how) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  const typing = active?.matches("input:not([type=checkbox])");
  if (how === "told" ? active?.matches("input,select") : how === "asked" && typing) return waiting.set(part.id, text);
  waiting.delete(part.id);
  const open = [...part.querySelectorAll("details")].map(each => each.open);
  const scrolled = [...part.querySelectorAll(".table")].map(each => [each.scrollLeft, each.scrollTop]);
  const plots = new Map([...part.querySelectorAll(".plot")].map(each => [each.id, each]));
  const before = new Map([...plots.values()].filter(each => each.dataset.ready).map(each => [each.id, textOf(each)]));
  const fresh = parsed(text);
  part.replaceChildren(...fresh.childNodes);
  part.dataset.live = fresh.dataset.live;
  for (const plot of part.querySelectorAll(".plot")) {
    const old = plots.get(plot.id);
    if (!old?.dataset.ready) continue;
    old.ariaLabel = plot.ariaLabel;
    plot.replaceWith(old);  // keep the drawn figure and give it the new numbers: no flash, no jump
    if (before.get(old.id) !== textOf(old)) draw(old).catch(() => {});
  }
  [...part.querySelectorAll("details")].forEach((each, place) => { each.open = open[place] ?? each.open; });
  [...part.querySelectorAll(".table")].forEach((each, place) => each.scrollTo(...scrolled[place] ?? [0, 0]));
  const numbers = chosen();
  for (const box of part.querySelectorAll("input[name=trials][type=checkbox]")) box.checked = numbers.includes(box.value);
  if (active) refocus(part, active);
  drawAll(part);
}

function parsed(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text;
  return holder.content.firstElementChild;
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

document.addEventListener("focusout", () => setTimeout(() => {
  for (const [name, text] of waiting) replacePart(document.getElementById(name), text, "told");
}));

// The parts of the page at its address that differ from those that are shown.
async function missing() {
  const shown = [...document.querySelectorAll("[data-live]")].map(part => `${part.id}=${part.dataset.live}`).join(",");
  const answer = await fetch(addressOf(".parts"), { headers: { "tessera-shown": shown } });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

function addressOf(ending) {
  return `${location.pathname === "/" ? "/index" : location.pathname}${ending}${location.search}`;
}

// Returns the parts that say something else now: links alone may differ too.
function take({ version, parts }, how) {
  seen = version;
  const changed = [];
  for (const [name, text] of Object.entries(parts)) {
    const part = document.getElementById(name), before = part?.textContent;
    if (part) replacePart(part, text, how);
    if (part && part.textContent !== before) changed.push(part);
  }
  return changed;
}

// After events that did not arrive.
let updating = false, again = false;
async function update() {
  if (updating) { again = true; return; }
  updating = true;
  const address = location.search;
  try {
    const found = await missing();
    if (address === location.search) take(found, "told");
  } catch { /* the server is away; the event source tries again */ }
  updating = false;
  if (again) { again = false; setTimeout(update, 500); }
}

// Links, choices and searches that stay on this page replace the parts that differ. If more differs, the page is loaded.
let showing = 0, shown = location.search;
async function show(how) {
  const mine = ++showing, main = document.getElementById("main");
  stop();
  shown = location.search;
  main.setAttribute("aria-busy", "true");
  try {
    const found = await missing();
    if (mine !== showing) return;
    if (found.frame !== body.dataset.frame) return location.reload();
    const changed = take(found, how);
    document.getElementById("said").textContent = changed.map(described).filter(Boolean).join("; ");
  } catch {
    if (mine === showing) location.reload();  // which says what is wrong
    return;
  }
  main.removeAttribute("aria-busy");
  watch();
}

function go(query, hash, from) {
  for (const name of new Set([...query.keys(), ...new URLSearchParams(location.search).keys()]))
    if (OWN.test(name)) query.get(name) === "" ? query.delete(name) : own(query, name);
  const text = query.toString();
  if (`?${text}` === location.search) return;
  history.pushState(null, "", location.pathname + (text ? `?${text}` : "") + hash);
  show("asked").then(() => {
    const target = hash && document.getElementById(hash.slice(1));
    if (target && !target.closest("section").contains(from)) target.scrollIntoView();
  });
}

// What the browser itself adds to the address is there and not in links that are older.
const OWN = /^(zoom_|view_|chosen$)/;
function own(query, name) {
  const value = new URLSearchParams(location.search).get(name);
  value === null ? query.delete(name) : query.set(name, value);
}

// What a screen reader says of a part that was replaced.
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
  const form = event.target;
  if (form.id === "compare") {
    event.preventDefault();
    if (chosen().length) location.assign(`${form.getAttribute("action")}?trials=${chosen().join(",")}`);
  } else if (form.matches("form[data-live],form[data-auto]")) {
    event.preventDefault();
    go(new URLSearchParams(new FormData(form)), "", form);
  }
});

// Choices act at once; their button is for pages without scripts. Trials that are chosen are part of the address.
document.addEventListener("change", event => {
  if (event.target.matches("form[data-auto] select")) event.target.form.requestSubmit();
  if (!event.target.matches("input[name=trials][type=checkbox]")) return;
  const { value, checked } = event.target, numbers = chosen().filter(each => each !== value);
  if (checked && numbers.length === MOST_CHOSEN) {
    event.target.checked = false;
    document.getElementById("said").textContent = `At most ${MOST_CHOSEN} trials are compared.`;
  } else remember({ chosen: [...numbers, ...(checked ? [value] : [])].join(",") || null });
});

const MOST_CHOSEN = 6;
function chosen() {
  return (new URLSearchParams(location.search).get("chosen") ?? "").split(",").filter(Boolean);
}

window.addEventListener("popstate", () => {
  if (location.search !== shown) show("back");
});

function say(text, lost) {
  const badge = document.getElementById("live");
  badge.classList.toggle("lost", lost);
  if (badge.textContent !== text) badge.textContent = text;
}

// The stream has the address of the page, with another ending: what changes depends on filters, order and zoom.
let events = null, seen = Number(body.dataset.version);
function stop() {
  events?.close();
  events = null;
}

function watch() {
  if (!body.dataset.version) return;
  stop();
  if (document.hidden) return say("", false);
  const mine = events = new EventSource(addressOf(".events"));
  events.addEventListener("changed", event => {
    say("live", false);
    const { version, before, parts } = JSON.parse(event.data);
    if (parts && before === seen) take({ version, parts }, "told");
    else if (version > seen) update();
  });
  events.addEventListener("problem", event => say(JSON.parse(event.data) || "live", event.data !== '""'));
  events.onerror = () => {
    say("", false);
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (events === mine) watch(); }, 10_000);
  };
}

drawAll(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of document.querySelectorAll(".plot[data-ready]")) draw(element).catch(() => {});
});
document.addEventListener("visibilitychange", watch);
watch();
if (document.querySelector("[data-reading]")) setInterval(() => { if (!document.hidden) show("told"); }, 2000);

// The explorer computes while the reader edits: only the result is replaced, and the address follows.
const explorer = document.querySelector("form[data-edit]");
if (explorer) {
  let timer = null, latest = 0, mark = () => {};
  const marked = () => mark([...document.querySelectorAll("#problems [data-line]")].map(each => ({
    line: Number(each.dataset.line), message: each.textContent })));
  loaded("/static/editor.js").then(() => {
    mark = window.tesseraEditor(explorer.querySelector("textarea"));
    marked();
  }).catch(() => {});  // the text area stays
  explorer.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const turn = ++latest, query = new URLSearchParams(new FormData(explorer));
      const address = `${location.pathname}?${query}`;
      if (address.length > 19000) return;
      history.replaceState(null, "", address);
      const found = await missing().catch(() => null);
      if (!found || turn !== latest) return;
      take(found, "asked");
      marked();
    }, 400);
  });
}
