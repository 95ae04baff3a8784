// The trials that the reader chose for a comparison are part of the address.

import { query, remember } from "./address.js";
import { tell } from "./said.js";

export const MOST = 6;

export const chosen = () => (query().get("trials") ?? "").split(",").filter(Boolean);

export const compare = (address, numbers) => location.assign(`${address}?trials=${numbers.slice(0, MOST).join(",")}`);

// Check the boxes of a part that was replaced: the server may not know the latest choice.
export function check(part) {
  const numbers = chosen();
  for (const box of part.querySelectorAll("input[name=trials][type=checkbox]")) box.checked = numbers.includes(box.value);
}

document.addEventListener("change", event => {
  if (!event.target.matches("input[name=trials][type=checkbox]")) return;
  const { value, checked } = event.target, numbers = chosen().filter(each => each !== value);
  if (checked && numbers.length === MOST) {
    event.target.checked = false;
    tell(`At most ${MOST} trials can be compared.`);
  } else remember({ trials: [...numbers, ...(checked ? [value] : [])].join(",") || null });
});
