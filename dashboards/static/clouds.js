// Draws the points of a large series as one element for each colour. Plotly makes an element for each point, which takes
// a browser a second for 2,000 points. So it draws only one (maxdisplayed: 1), but knows all for hover and selections.

const COLOURS = 24;  // steps of a colour scale

export function drawClouds(plot) {
  const { xaxis, yaxis } = plot._fullLayout;
  for (const group of plot.querySelectorAll(".scatterlayer > .trace")) {
    for (const old of group.querySelectorAll(":scope > .cloud")) old.remove();
    const points = group.__data__, { marker } = points[0].trace;
    if (marker?.maxdisplayed !== 1) continue;
    const paths = new Map(), colour = colours(marker), mark = marks(marker);
    for (const point of points) {
      const place = `M${xaxis.c2p(point.x).toFixed(1)} ${yaxis.c2p(point.y).toFixed(1)}${mark}`;
      point.mcc = colour(point.i);  // where Plotly looks for the colour of a label
      paths.set(point.mcc, (paths.get(point.mcc) ?? "") + place);
    }
    group.prepend(...[...paths].map(([key, path]) => element(key, path, marker.size)));
  }
}

// A dot is a line of length zero with round ends.
function marks({ symbol, size }) {
  const r = size / 2;
  return symbol === "circle" ? "h0" : `m0 ${-r}l${r} ${1.5 * r}h${-2 * r}Z`;
}

function element(colour, path, size) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const dots = path.endsWith("h0");
  const form = { d: path, fill: dots ? "none" : colour, stroke: colour, "stroke-width": dots ? size : 0, "stroke-linecap": "round" };
  for (const [name, value] of Object.entries(form)) made.setAttribute(name, value);
  made.classList.add("cloud");
  return made;
}

// The colour of a point by its index: from the scale, in steps, or the same for all.
function colours({ color, colorscale, cmin, cmax, reversescale }) {
  if (!Array.isArray(color)) return () => color;
  return place => {
    const share = (color[place] - cmin) / (cmax - cmin || 1), at = reversescale ? 1 - share : share;
    return between(colorscale, Math.round(at * COLOURS) / COLOURS);
  };
}

function between(scale, at) {
  const next = Math.max(1, scale.findIndex(([place]) => place >= at));
  const [[low, from], [high, to]] = [scale[next - 1], scale[next]], share = (at - low) / (high - low);
  const [start, end] = [from, to].map(colour => colour.match(/[0-9a-f]{2}/gi).map(part => parseInt(part, 16)));
  return `rgb(${start.map((part, place) => Math.round(part + share * (end[place] - part)))})`;
}
