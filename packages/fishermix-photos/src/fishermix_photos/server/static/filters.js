// Filters and sort, and suggestions: what the folder offers, and what the address says.

import { $, ask, make } from "./dom.js";
import { drawFolders } from "./folders.js";
import { current, FILTERS, go } from "./route.js";

const SORTS = { search: [["", "best first"], ["date", "newest first"]], browse: [["", "newest first"], ["oldest", "oldest first"], ["name", "by name"]] };
const facets = { years: [], folders: [], kinds: [] };
let words = [];

function option(value, text) {
  const made = make("option", "", text);
  made.value = value;
  return made;
}

function fill(select, options, value) {
  if (value && !options.some(([known]) => known === value)) options = [...options, [value, value]];
  select.replaceChildren(...options.map(([known, text]) => option(known, text)));
  select.value = value;
}

const counted = (list) => list.map(({ name, photos }) => [name, `${name} (${photos.toLocaleString("en")})`]);

/** The day before another, or after it: `before` excludes its day, people mean it included. */
function shift(day, by) {
  const date = new Date(`${day}T00:00:00Z`);
  date.setUTCDate(date.getUTCDate() + by);
  return date.toISOString().slice(0, 10);
}

function yearOf({ after, before }) {
  if (!after && !before) return "";
  return /^\d{4}$/.test(after) && before === String(Number(after) + 1) ? after : "between";
}

export function draw(route = current()) {
  const year = yearOf(route);
  fill($("filter-year"), [["", "any time"], ...counted(facets.years), ["between", "between…"]], year);
  $("between").hidden = year !== "between";
  if (year === "between") {
    $("filter-after").value = route.after.length === 10 ? route.after : "";
    $("filter-to").value = route.before.length === 10 ? shift(route.before, -1) : "";
  }
  $("filter-in").textContent = `Folder: ${route.in.split("/").at(-1) || "all"} ▾`;
  drawFolders(facets.folders, route.in, (path) => go({ in: path, photo: "" }));
  fill($("filter-kind"), [["", "all kinds"], ...counted(facets.kinds)], route.kind);
  $("filter-undated").checked = Boolean(route.undated);
  for (const name of ["camera", "near"]) $(`filter-${name}`).value = route[name];
  const sorts = SORTS[route.q || route.like ? "search" : "browse"];
  fill($("filter-sort"), sorts, sorts.some(([value]) => value === route.sort) ? route.sort : "");
  $("show-filters").hidden = Boolean(route.view);
  if ($("show-filters").hidden) openFilters(false);
  const on = FILTERS.filter((name) => name !== "sort" && name !== "before" && route[name]).length || (route.before ? 1 : 0);
  $("filters-on").textContent = on ? ` (${on})` : "";
  $("clear-filters").hidden = !on && !route.sort;
}

export function openFilters(open = true) {
  $("filters").hidden = !open;
  $("show-filters").setAttribute("aria-expanded", open);
}

/** Read again what the folder offers. */
export async function update() {
  try {
    const [offered, topics] = await Promise.all([ask("/api/facets"), ask("/api/topics")]);
    Object.assign(facets, offered);
    words = topics;
  } catch {
    return; // the server is starting
  }
  if (!$("filters").contains(document.activeElement) && !$("folders").matches(":popover-open")) draw();
  drawTopics();
}

function drawTopics() {
  const chips = words.map((word) => {
    const button = make("button", "quiet chip", word);
    button.type = "button";
    button.addEventListener("click", () => go({ q: word, view: "", photo: "", sort: "" }));
    return button;
  });
  $("topics").replaceChildren(...chips);
  $("topics").hidden = !chips.length;
  hideCutOff();
}

/** Hide the suggestions for which there is no room. */
function hideCutOff() {
  const chips = [...$("topics").children];
  for (const chip of chips) chip.hidden = false;
  const room = $("topics").clientHeight;
  const cutOff = chips.filter((chip) => chip.offsetTop + chip.offsetHeight > room);
  for (const chip of cutOff) chip.hidden = true;
}

new ResizeObserver(hideCutOff).observe($("topics"));

/** Complete the last word that is typed. */
function complete() {
  const typed = $("query").value;
  const [, before, start] = typed.match(/^(.*?)(\S*)$/s);
  const found = start ? words.filter((word) => word.startsWith(start.toLowerCase()) && word !== start) : [];
  $("completions").replaceChildren(...found.slice(0, 8).map((word) => option(before + word, "")));
}

$("query").addEventListener("input", complete);
$("filter-year").addEventListener("change", () => {
  const year = $("filter-year").value;
  if (year === "between") {
    $("between").hidden = false;
    $("filter-after").focus();
  } else {
    go({ after: year, before: year && String(Number(year) + 1), photo: "" });
  }
});
for (const id of ["filter-after", "filter-to"]) {
  $(id).addEventListener("change", () => {
    const to = $("filter-to").value;
    go({ after: $("filter-after").value, before: to && shift(to, 1), photo: "" });
  });
}
for (const name of ["camera", "near", "kind", "sort"]) $(`filter-${name}`).addEventListener("change", (event) => go({ [name]: event.target.value.trim(), photo: "" }));
$("filter-undated").addEventListener("change", (event) => go({ undated: event.target.checked ? "true" : "", photo: "" }));
$("clear-filters").addEventListener("click", () => go({ ...Object.fromEntries(FILTERS.map((name) => [name, ""])), photo: "" }));
$("show-filters").addEventListener("click", () => openFilters($("filters").hidden));
