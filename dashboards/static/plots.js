// Plotly replaces the static picture of a figure when the reader scrolls near it.

import { query } from "./address.js";
import { drawClouds } from "./clouds.js";
import { load } from "./loading.js";
import { listen } from "./mouse.js";

const NARROW = 500;  // pixels: below this width, as on a phone, labels are shorter and turned
const LETTER = 7.5;  // pixels: the width of a letter of a title

export const specOf = plot => document.getElementById(`data-${plot.dataset.name}`)?.textContent;

// Colours arrive as names of custom properties, so that a figure follows the theme of the page.
function coloured(value, styles) {
  if (typeof value === "string" && value.startsWith("--")) {
    const pale = value.endsWith("-pale");
    const found = styles.getPropertyValue(pale ? value.slice(0, -5) : value).trim();
    return pale ? found + "26" : found;
  }
  if (Array.isArray(value)) return value.length && typeof value[0] === "object" ? value.map(v => coloured(v, styles)) : value;
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, coloured(v, styles)]));
  return value;
}

function laidOut(layout, styles, width) {
  const text = styles.getPropertyValue("--faint").trim(), grid = styles.getPropertyValue("--grid").trim();
  const axis = each => ({ ...each, gridcolor: grid, zeroline: false, linecolor: grid, automargin: true, exponentformat: "SI" });
  const made = {
    ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis), autosize: true,
    margin: { l: 56, r: 12, t: 12, b: 48 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: text }, hovermode: "closest", dragmode: "zoom",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: width < NARROW ? 10 : 12 } },
  };
  if (width < NARROW) narrowed(made);
  const names = Math.max(0, ...(made.yaxis.ticktext ?? []).map(name => name.length));
  made.xaxis.title.text = broken(made.xaxis.title.text, (width - Math.max(56, 6.5 * names)) / LETTER);
  made.yaxis.title.text = broken(made.yaxis.title.text, (layout.height - 90) / LETTER);
  return made;
}

function narrowed({ xaxis, yaxis }) {
  for (const axis of [xaxis, yaxis]) axis.title = { ...axis.title, font: { size: 12 } };
  if (yaxis.ticktext) {
    yaxis.ticktext = yaxis.ticktext.map(text => (text.length > 20 ? `…${text.slice(-19)}` : text));
    xaxis.nticks = 4;
  }
  if (xaxis.ticktext?.join("").length > 24) Object.assign(xaxis, { tickangle: -45, ticklabeloverflow: "allow" });
}

// A long title, broken into lines of about `letters` letters.
function broken(text, letters) {
  if (text.length <= letters) return text;
  return text.replace(new RegExp(`(.{1,${Math.max(12, Math.floor(letters))}})( |$)`, "g"), "$1<br>").replace(/<br>$/, "");
}

function traces(spec, styles, width) {
  const found = spec.data.map(trace => coloured(trace, styles));
  for (const trace of found) {
    if (trace.type === "heatmap" && width < 220 + 36 * trace.z[0].length) delete trace.texttemplate;
    if (trace.hovertext?.length) trace.hoverinfo = "text";
  }
  return found;
}

function zoomOf(name) {
  const view = (query().get(`view_${name}`) ?? "").split(",").map(Number);
  return view.length === 4 && view.every(Number.isFinite) ? view : null;
}

function settings(spec) {
  const left = spec.brush ? [] : ["select2d", "lasso2d"];
  return { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["toImage", "autoScale2d", ...left] };
}

export async function draw(plot, spec = JSON.parse(specOf(plot))) {
  await load("plotly.min.js");
  const styles = getComputedStyle(document.body), width = plot.clientWidth;
  const layout = laidOut(spec.layout, styles, width), zoom = zoomOf(plot.dataset.name);
  if (zoom) [layout.xaxis.range, layout.yaxis.range] = [zoom.slice(0, 2), zoom.slice(2)];
  layout.height = Math.max(plot.clientHeight, 240);  // the height of the picture that it replaces: no jump
  plot.style.minHeight = `${layout.height}px`;
  plot.querySelector("svg.figure")?.remove();
  const isNew = !plot.dataset.ready;
  await Plotly.react(plot, traces(spec, styles, width), layout, settings(spec));
  drawClouds(plot);
  if (!isNew) return;
  plot.dataset.ready = "yes";
  plot.on("plotly_afterplot", () => drawClouds(plot));
  listen(plot, spec, draw);
}

// If Plotly cannot be loaded, the static picture stays.
export const tryToDraw = plot => draw(plot).catch(() => {});

const near = new IntersectionObserver(entries => {
  for (const { target } of entries.filter(each => each.isIntersecting)) {
    near.unobserve(target);
    tryToDraw(target);
  }
}, { rootMargin: "200px" });

export function drawAll(root) {
  for (const plot of root.querySelectorAll(".plot[data-name]:not([data-ready])")) near.observe(plot);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.querySelectorAll(".plot[data-ready]").forEach(tryToDraw);
});
