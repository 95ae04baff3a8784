// The explorer computes while the reader edits. Only the result is replaced, and the address is updated.

import { refresh } from "./live.js";

const PAUSE = 400;  // milliseconds without a change
const LONGEST = 19_000;  // characters of an address

const form = document.querySelector("form[data-edit]");
let timer = null, mark = () => {};

function marked() {
  const found = [...document.querySelectorAll("#problems [data-line]")];
  mark(found.map(each => ({ line: Number(each.dataset.line), message: each.textContent })));
}

async function compute() {
  const address = `${location.pathname}?${new URLSearchParams(new FormData(form))}`;
  if (address.length > LONGEST) return;
  history.replaceState(null, "", address);
  if (await refresh(true).catch(() => null)) marked();
}

if (form) {
  const script = document.createElement("script");
  script.src = new URL("editor.js", import.meta.url);
  script.onload = () => {
    mark = window.tesseraEditor(form.querySelector("textarea"));
    marked();
  };
  document.head.append(script);  // if it cannot be loaded, the text area stays
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(compute, PAUSE);
  });
}
