// The explorer computes while the reader edits. Only the result is replaced, and the address is updated.

import { load } from "./loading.js";
import { missing, take } from "./parts.js";

const PAUSE = 400;  // milliseconds without a change
const LONGEST = 19_000;  // characters of an address

const form = document.querySelector("form[data-edit]");
let timer = null, latest = 0, mark = () => {};

function marked() {
  const found = [...document.querySelectorAll("#problems [data-line]")];
  mark(found.map(each => ({ line: Number(each.dataset.line), message: each.textContent })));
}

async function compute() {
  const turn = ++latest, address = `${location.pathname}?${new URLSearchParams(new FormData(form))}`;
  if (address.length > LONGEST) return;
  history.replaceState(null, "", address);
  const found = await missing().catch(() => null);
  if (!found || turn !== latest) return;
  take(found, "asked");
  marked();
}

if (form) {
  load("editor.js").then(() => {
    mark = window.tesseraEditor(form.querySelector("textarea"));
    marked();
  }).catch(() => {});  // the text area stays
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(compute, PAUSE);
  });
}
