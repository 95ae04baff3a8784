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
}

const specOf = name => JSON.parse(document.getElementById(`data-${name}`).textContent);

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

async function draw(element, spec = specOf(element.dataset.name)) {
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
    if (trials.length > 1) location.assign(`${spec.brush}?trials=${trials.slice(0, 6).join(",")}`);
  });
}

const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) {
    watcher.unobserve(entry.target);
    draw(entry.target).catch(() => {});  // the picture without a script stays
  }
}, { rootMargin: "200px" });

function drawAll(root) {
  for (const element of root.querySelectorAll(".plot[data-name]")) watcher.observe(element);
}

// Forms of choices act at once; their button is for pages without scripts.
function prepareForms(root) {
  for (const form of root.querySelectorAll("form[data-auto]")) {
    const button = form.querySelector("button");
    if (button) button.hidden = true;
    form.addEventListener("change", () => form.requestSubmit());
  }
  const compare = document.getElementById("compare");
  compare?.addEventListener("submit", event => {
    event.preventDefault();
    const chosen = [...document.querySelectorAll("input[name=trials]:checked")].slice(0, 6).map(each => each.value);
    if (chosen.length) location.assign(`${compare.getAttribute("action")}?trials=${chosen.join(",")}`);
  });
}

// A part of the page is replaced only if its text changed; what the reader opened, chose, scrolled or focused stays.
const texts = new Map(), waiting = new Map();
function replacePart(part, text) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  if (active?.matches("input,select")) return waiting.set(part.id, text);  // until the reader leaves it
  waiting.delete(part.id);
  const open = [...part.querySelectorAll("details")].map(each => each.open);
  const scrolled = [...part.querySelectorAll(".table")].map(each => [each.scrollLeft, each.scrollTop]);
  const chosen = new Set([...part.querySelectorAll("input:checked")].map(each => each.value));
  const plots = new Map([...part.querySelectorAll(".plot")].map(each => [each.id, each]));
  part.innerHTML = text;
  texts.set(part.id, part.innerHTML);
  for (const plot of part.querySelectorAll(".plot")) {
    const old = plots.get(plot.id);
    if (old?.dataset.ready) {  // keep the drawn figure and give it the new numbers: no flash, no jump
      plot.replaceWith(old);
      draw(old).catch(() => {});
    }
  }
  [...part.querySelectorAll("details")].forEach((each, place) => { each.open = open[place] ?? each.open; });
  [...part.querySelectorAll(".table")].forEach((each, place) => each.scrollTo(...scrolled[place] ?? [0, 0]));
  for (const box of part.querySelectorAll("input[type=checkbox]")) box.checked = chosen.has(box.value);
  if (active) refocus(part, active);
  drawAll(part);
}

function refocus(part, active) {
  const same = each => active.id ? each.id === active.id : each.outerHTML === active.outerHTML;
  const found = part.contains(active) ? active : [...part.querySelectorAll(active.tagName)].find(same);
  found?.focus({ preventScroll: true });
}

document.addEventListener("focusout", () => setTimeout(() => {
  for (const [name, text] of waiting) replacePart(document.getElementById(name), text);
}));

// The whole page again: the first time, and after events that did not arrive.
let updating = false, again = false;
async function update() {
  if (updating) { again = true; return; }
  updating = true;
  try {
    const answer = await fetch(location.href.split("#")[0], { headers: { accept: "text/html" } });
    if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const other = fresh.getElementById(part.id);
        if (other && other.innerHTML !== texts.get(part.id)) replacePart(part, other.innerHTML);
      }
      seen = Number(fresh.body.dataset.version);
    }
  } catch { /* the server is away; the event source tries again */ }
  updating = false;
  if (again) { again = false; setTimeout(update, 500); }
}

function say(text, lost) {
  const badge = document.getElementById("live");
  badge.classList.toggle("lost", lost);
  if (badge.textContent !== text) badge.textContent = text;
}

// The stream has the address of the page, with another ending: what changes depends on filters, order and zoom.
let events = null, seen = Number(body.dataset.version);
function watch() {
  if (!body.dataset.version) return;
  events?.close();
  events = null;
  if (document.hidden) return say("", false);
  const path = location.pathname === "/" ? "/index" : location.pathname;
  const mine = events = new EventSource(`${path}.events${location.search}`);
  events.addEventListener("changed", event => {
    say("live", false);
    const { version, before, parts } = JSON.parse(event.data);
    if (parts && before === seen) {
      seen = version;
      for (const [name, text] of Object.entries(parts)) {
        const part = document.getElementById(name);
        if (part) replacePart(part, text);
      }
    } else if (version > seen) update();
  });
  events.addEventListener("problem", event => say(JSON.parse(event.data) || "live", event.data !== '""'));
  events.onerror = () => {
    say("", false);
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (events === mine) watch(); }, 10_000);
  };
}

for (const part of document.querySelectorAll("[data-live]")) texts.set(part.id, part.innerHTML);
prepareForms(document);
drawAll(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of document.querySelectorAll(".plot[data-ready]")) draw(element).catch(() => {});
});
document.addEventListener("visibilitychange", watch);
watch();

// The explorer computes while the reader edits: only the result is replaced, and the address follows.
const explorer = document.querySelector("form[data-edit]");
if (explorer) {
  let waiting = null, latest = 0, mark = () => {};
  const marked = () => mark([...document.querySelectorAll("#problems [data-line]")].map(each => ({
    line: Number(each.dataset.line), message: each.textContent })));
  loaded("/static/editor.js").then(() => {
    mark = window.tesseraEditor(explorer.querySelector("textarea"));
    marked();
  }).catch(() => {});  // the text area stays
  explorer.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const turn = ++latest, query = new URLSearchParams(new FormData(explorer));
      const address = `${location.pathname}?${query}`;
      if (address.length > 19000) return;
      const answer = await fetch(address).catch(() => null);
      if (!answer?.ok || turn !== latest) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const result = document.getElementById(explorer.dataset.edit), other = fresh.getElementById(explorer.dataset.edit);
      if (result && other) result.replaceChildren(...other.childNodes);
      marked();
      history.replaceState(null, "", address);
    }, 400);
  });
}
