// Messages for screen readers, and the badge that says whether the page follows a search.

export const tell = text => { document.getElementById("said").textContent = text; };

export function sign(text, isLost) {
  const badge = document.getElementById("live");
  badge.classList.toggle("lost", isLost);
  if (badge.textContent !== text) badge.textContent = text;
}

// The message for screen readers about a part that was replaced.
export function described(part) {
  const table = part.querySelector(".table[id]"), order = part.querySelector("th[aria-sort]");
  if (!table) return part.querySelector(".plot")?.ariaLabel;
  const sorted = order && `sorted by ${order.textContent.trim()}, ${order.ariaSort}`;
  return [table.ariaLabel, sorted, part.querySelector(".pages span")?.textContent].filter(Boolean).join(", ");
}
