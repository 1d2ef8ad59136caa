// Everything by keyboard: see the help in index.html.

import { $ } from "./dom.js";
import { openFilters } from "./filters.js";
import { buttons, grid, select, selectNone } from "./grid.js";
import { loadMore } from "./results.js";
import { ALL_PHOTOS, go } from "./route.js";
import { copyPath, isOpen, open, pick, searchWithPhoto, step } from "./viewer.js";
import { reset, zoomIn, zoomOut } from "./zoom.js";

const IN_VIEWER = {
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  o: () => $("open-original").click(),
  d: () => $("download").click(),
  c: copyPath,
  m: searchWithPhoto,
  "+": zoomIn,
  "=": zoomIn,
  "-": zoomOut,
  0: () => reset(),
  x: pick,
};
const IN_LIST = {
  "/": () => $("query").select(),
  b: () => go(ALL_PHOTOS),
  l: () => {
    openFilters();
    $("filter-year").focus();
  },
  Escape: selectNone,
};

const isTyping = (target) => target.matches("input:not([type=checkbox]):not([type=file]), textarea, select");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open || $("places").open || $("folders").matches(":popover-open")) return;
  if (isTyping(event.target)) {
    if (event.key === "ArrowDown" && event.target === $("query") && !$("completions").children.length) {
      event.preventDefault();
      buttons()[0]?.focus();
    }
    return;
  }
  if (event.key === "?") return act(event, () => $("help").showModal());
  if (isOpen()) {
    if (event.target.matches("video") && event.key.startsWith("Arrow")) return;
    if (event.key in IN_VIEWER) act(event, IN_VIEWER[event.key]);
  } else if (event.key in IN_LIST) {
    act(event, IN_LIST[event.key]);
  } else {
    moveAmongCards(event);
  }
});

function act(event, action) {
  event.preventDefault();
  action();
}

function moveAmongCards(event) {
  const cards = buttons();
  const here = cards.indexOf(document.activeElement);
  if (here < 0) {
    if (event.key === "ArrowDown" && document.activeElement === document.body) act(event, () => cards[0]?.focus());
    return;
  }
  if (event.key === "x") return act(event, () => select(cards[here].dataset.id));
  const target = { ArrowLeft: here - 1, ArrowRight: here + 1, ArrowUp: above(cards, here, -1), ArrowDown: above(cards, here, 1), Home: 0, End: cards.length - 1 }[event.key];
  if (target === undefined) return;
  event.preventDefault();
  if (target < 0) $("query").focus();
  else cards[Math.min(target, cards.length - 1)].focus();
  if (target >= cards.length - 8) loadMore();
}

/** The nearest card in the row above (-1) or below (1); sections may end with a short row. */
function above(cards, here, by) {
  const from = cards[here].getBoundingClientRect();
  let best = by < 0 ? -1 : cards.length - 1;
  let row = null;
  let distance = Infinity;
  for (let i = here + by; i >= 0 && i < cards.length; i += by) {
    const to = cards[i].getBoundingClientRect();
    if (Math.abs(to.top - from.top) < 2) continue;
    row ??= to.top;
    if (Math.abs(to.top - row) >= 2) break;
    if (Math.abs(to.left - from.left) < distance) [best, distance] = [i, Math.abs(to.left - from.left)];
  }
  return best;
}

$("show-help").addEventListener("click", () => $("help").showModal());
$("close-help").addEventListener("click", () => $("help").close());
$("help").addEventListener("click", (event) => event.target === $("help") && $("help").close());
grid.open = open;
