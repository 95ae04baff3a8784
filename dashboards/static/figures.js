// The mouse in a figure: a label for what it points to, a drag for a zoom, Shift and a drag to compare trials. The zoom
// is part of the address, and the server draws the part: more points of it, if it left some out.

import { go } from "./live.js";

const LEAST = 8;  // pixels: a shorter drag is a click
const MOST = 6;  // trials of a comparison
const label = document.createElement("div");
label.className = "label";
label.hidden = true;
label.setAttribute("aria-hidden", "true");
document.body.append(label);

// A scale of the server: {low, high, start, end, log}, and functions between its pixels and values.
function scaleOf(text) {
  const words = text.split(" "), [low, high, start, end] = words.map(Number), log = words[4] === "log";
  const [from, to] = log ? [Math.log10(low), Math.log10(high)] : [low, high];
  const value = at => {
    const found = from + (at - start) / (end - start) * (to - from);
    return log ? 10 ** found : found;
  };
  return { least: Math.min(start, end), most: Math.max(start, end), value };
}

const plotOf = event => event.target.closest?.(".plot svg[data-x]");

function placed(svg, event) {
  const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const across = scaleOf(svg.dataset.x), up = scaleOf(svg.dataset.y);
  return { x, y, across, up, isInside: x >= across.least && x <= across.most && y >= up.least && y <= up.most };
}

const short = number => Number(number.toPrecision(4)).toLocaleString("en", { notation: Math.abs(number) >= 1e5 ? "compact" : "standard", maximumSignificantDigits: 4 });

function point(event) {
  const mark = event.target.closest?.(".plot .mark"), svg = plotOf(event);
  let text = mark?.querySelector("title")?.textContent;
  if (!text && svg) {
    const { x, y, across, up, isInside } = placed(svg, event);
    if (isInside) text = `${short(across.value(x))}, ${short(up.value(y))}`;
  }
  label.hidden = !text;
  if (!text) return;
  label.textContent = text;
  const left = Math.min(event.clientX + 14, innerWidth - label.offsetWidth - 8);
  label.style.translate = `${left}px ${event.clientY + 16}px`;
}

let drag = null;
function box(a, b) {
  const [left, right] = [a.x, b.x].sort((p, q) => p - q), [top, bottom] = [a.y, b.y].sort((p, q) => p - q);
  return { left, right, top, bottom };
}

document.addEventListener("pointerdown", event => {
  const svg = plotOf(event);
  if (!svg || event.button || event.pointerType === "touch") return;
  const start = placed(svg, event);
  if (start.isInside) drag = { svg, start, rect: null };
});

document.addEventListener("pointermove", event => {
  if (!drag) return point(event);
  label.hidden = true;
  const { svg, start } = drag, now = placed(svg, event);
  if (!drag.rect && Math.hypot(now.x - start.x, now.y - start.y) < LEAST) return;
  if (!drag.rect) {
    drag.rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    drag.rect.classList.add("drag");
    svg.append(drag.rect);
  }
  const clamped = { x: Math.min(Math.max(now.x, now.across.least), now.across.most), y: Math.min(Math.max(now.y, now.up.least), now.up.most) };
  drag.box = box(start, clamped);
  const { left, right, top, bottom } = drag.box;
  for (const [name, value] of Object.entries({ x: left, y: top, width: right - left, height: bottom - top })) drag.rect.setAttribute(name, value);
});

document.addEventListener("pointerup", event => {
  const done = drag;
  drag = null;
  if (!done?.rect) return;
  done.rect.remove();
  // The drag may end on a point: it is no click on it.
  addEventListener("click", each => { each.preventDefault(); each.stopPropagation(); }, { capture: true, once: true, signal: AbortSignal.timeout(50) });
  const plot = done.svg.closest(".plot");
  if (event.shiftKey && plot.dataset.brush) return compare(plot, done.box);
  const { across, up } = done.start, { left, right, top, bottom } = done.box;
  const ends = [across.value(left), across.value(right), ...[up.value(top), up.value(bottom)].sort((p, q) => p - q)];
  view(plot, ends.map(each => each.toPrecision(6)).join(","));
});

document.addEventListener("dblclick", event => {
  const plot = plotOf(event)?.closest(".plot");
  if (plot && new URLSearchParams(location.search).has(`view_${plot.dataset.name}`)) view(plot, null);
});

document.addEventListener("dragstart", event => { if (plotOf(event)) event.preventDefault(); });

function view(plot, text) {
  const names = new URLSearchParams(location.search), name = `view_${plot.dataset.name}`;
  text === null ? names.delete(name) : names.set(name, text);
  go(names);
}

function compare(plot, { left, right, top, bottom }) {
  const numbers = new Set();
  for (const link of plot.querySelectorAll("a[href*='/trials/']")) {
    const { x, y, width, height } = link.getBBox(), [across, up] = [x + width / 2, y + height / 2];
    if (across >= left && across <= right && up >= top && up <= bottom) numbers.add(link.getAttribute("href").split("/trials/")[1]);
  }
  // The front is drawn last, above the others, so it comes first.
  if (numbers.size > 1) location.assign(`${plot.dataset.brush}?trials=${[...numbers].reverse().slice(0, MOST).join(",")}`);
}
