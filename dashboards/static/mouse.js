// The mouse in a figure: a click opens a trial, a box around points compares their trials, a zoom is stored in the
// address. The server may omit points of a figure; after a zoom it sends more points of the visible part.

import { addressOf, query, remember } from "./address.js";
import { compare } from "./chosen.js";

export function listen(plot, spec, draw) {
  plot.on("plotly_click", event => {
    const link = event.points[0]?.customdata;
    if (typeof link === "string" && link.startsWith("/")) location.assign(link);
  });
  plot.on("plotly_relayout", event => zoomed(plot, spec.thinned, event, draw));
  if (spec.brush) plot.on("plotly_selected", event => {
    const links = (event?.points ?? []).map(each => /\/trials\/(\d+)$/.exec(each.customdata ?? "")?.[1]);
    const trials = [...new Set(links.filter(Boolean))];
    if (trials.length > 1) compare(spec.brush, trials);
  });
}

function zoomed(plot, isThinned, event, draw) {
  const { name } = plot.dataset, { xaxis, yaxis } = plot._fullLayout;
  const isWhole = event["xaxis.autorange"] || event["yaxis.autorange"];
  if (!isWhole && !Object.keys(event).some(key => /^[xy]axis\.range/.test(key))) return;
  if (!isThinned) {
    const view = written([...xaxis.range, ...yaxis.range]);
    return remember({ [`view_${name}`]: isWhole ? null : view });
  }
  const ends = axis => written(axis.range.map(each => (axis.type === "log" ? 10 ** each : each)));
  remember({ zoom_x: isWhole ? null : ends(xaxis), zoom_y: isWhole ? null : ends(yaxis) });
  document.dispatchEvent(new CustomEvent("zoomed", { detail: refine(plot, draw) }));
}

const written = numbers => numbers.map(each => Number(each).toPrecision(6)).join(",");

const turns = new Map();
async function refine(plot, draw) {
  const { name } = plot.dataset, turn = (turns.get(name) ?? 0) + 1;
  turns.set(name, turn);
  const answer = await fetch(addressOf(".json", { figure: name })).catch(() => null);
  if (!answer?.ok) return;
  const spec = await answer.json();
  if (turns.get(name) === turn) await draw(plot, spec);
}
