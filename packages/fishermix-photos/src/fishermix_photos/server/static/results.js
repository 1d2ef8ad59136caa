// Asks for photos page by page: for a query, without one, or for a photo that was dropped on the page.

import { $, ask, count, parameters, send, when } from "./dom.js";
import { draw, grid } from "./grid.js";
import { FILTERS } from "./route.js";

const PAGE = 60;
const MOST_AT_ONCE = 200;
const list = { route: null, more: false, busy: false, turn: 0, found: null };

export function tell(message, problem = false) {
  $("status").textContent = message;
  $("status").classList.toggle("problem", problem);
}

const filtersOf = (route) => Object.fromEntries(FILTERS.map((name) => [name, route[name]]));

function request(route, offset, n) {
  if (route.upload) return send(`/api/similar?n=${MOST_AT_ONCE}`, list.file);
  const only = filtersOf(route);
  if (route.q) return ask(`/api/search?${parameters({ q: route.q, ...only, sort: only.sort === "date" ? "date" : "", offset, n })}`);
  return ask(`/api/browse?${parameters({ ...only, offset, n })}`);
}

/** Show another list. `kept` is how much of it was seen before: number of photos and scroll position. */
export async function load(route, kept = {}) {
  const turn = ++list.turn;
  Object.assign(list, { route, more: false, busy: true });
  if (!route.upload) $("dropped").hidden = true;
  $("remarks").hidden = true;
  tell(route.upload ? "Analyzing your photo…" : route.q ? "Searching…" : "");
  try {
    const photos = [];
    let found;
    do {
      found = await request(route, photos.length, Math.min(MOST_AT_ONCE, Math.max(PAGE, (kept.count || 0) - photos.length)));
      if (turn !== list.turn) return;
      photos.push(...found.photos);
    } while (found.more && photos.length < (kept.count || 0) && !route.upload);
    list.found = found;
    list.more = Boolean(found.more) && !route.upload;
    draw(photos, sections(route, found, photos));
    describe(route, found, photos);
    scrollTo(0, kept.scroll || 0);
  } catch (problem) {
    if (turn === list.turn) fail(problem);
  } finally {
    if (turn === list.turn) list.busy = false;
  }
  fill();
}

/** Ask again for what is shown, after photos have changed; nothing jumps. */
export async function refresh() {
  if (!list.route || list.route.upload || list.busy) return;
  const { route, turn } = list;
  const photos = [];
  let found;
  try {
    do {
      found = await request(route, photos.length, Math.min(MOST_AT_ONCE, Math.max(PAGE, grid.items.length - photos.length)));
      photos.push(...found.photos);
    } while (found.more && photos.length < grid.items.length);
  } catch {
    return; // the next change asks again
  }
  if (turn !== list.turn || list.busy) return;
  Object.assign(list, { found, more: found.more });
  draw(photos, sections(route, found, photos));
  describe(route, found, photos);
  fill();
}

export async function loadMore() {
  if (!list.more || list.busy) return;
  const { turn, route } = list;
  list.busy = true;
  try {
    const found = await request(route, grid.items.length, PAGE);
    if (turn !== list.turn) return;
    const known = new Set(grid.items.map((photo) => photo.id));
    const shown = grid.items.length;
    list.more = found.more && found.photos.length > 0;
    const photos = [...grid.items, ...found.photos.filter((photo) => !known.has(photo.id))];
    draw(photos, sections(route, list.found, photos), shown);
  } catch (problem) {
    if (turn === list.turn) tell(problem.message, true);
    return; // scrolling on asks again
  } finally {
    if (turn === list.turn) list.busy = false;
  }
  fill();
}

export const hasMore = () => list.more;
export const setFile = (file) => (list.file = file);
const isNearEnd = () => $("end").getBoundingClientRect().top < innerHeight + 800;
/** Ask for more while the end is near. An IntersectionObserver would miss an end that leaves and returns between two frames. */
const fill = () => requestAnimationFrame(() => isNearEnd() && loadMore());
for (const event of ["scroll", "resize"]) addEventListener(event, fill, { passive: true });

/** Whether photos are listed by date: without a query, or with one that is only a date. */
const isListed = (route, photos) => !route.upload && photos.every((photo) => photo.score === null);

/** The section of each photo: by how likely it is right, or by month. */
function sections(route, found, photos) {
  if (isListed(route, photos)) {
    if (route.sort === "name") return () => ["all", ""];
    return (photo) => [photo.taken?.slice(0, 7) || "none", when(photo.taken, "month") || "Without a date"];
  }
  if (route.upload || route.sort === "date") return () => ["found", ""];
  const headings = { maybe: "Maybe", unlikely: found.nothing_matches ? "" : "Unlikely" }; // if all are, the line above says so
  return (photo) => [photo.band || "found", headings[photo.band] || ""];
}

function describe(route, found, photos) {
  const remarks = found.remarks.map((remark) => remark.text);
  if (found.unknown_words.length) {
    remarks.push(`Unknown words, ${found.spelling ? "matched by spelling" : "ignored"}: ${found.unknown_words.join(", ")}.`);
  }
  $("remarks").textContent = remarks.join(" ");
  $("remarks").hidden = !remarks.length;
  tell(summarize(route, found, photos));
}

function summarize(route, found, photos) {
  const filtered = FILTERS.some((name) => name !== "sort" && route[name]);
  if (!photos.length) return filtered || route.q ? "No photo meets all conditions." : "There are no photos in this folder yet.";
  if (route.upload) return "Photos that are similar to yours, best first.";
  if (isListed(route, photos)) return filtered || route.q ? count(found.total, "photo") : "";
  const order = route.sort === "date" ? ", newest first" : "";
  if (found.nothing_matches) return `Nothing here looks like this. The nearest${order}:`;
  const likely = photos.filter((photo) => photo.band === "likely").length;
  const maybe = photos.filter((photo) => photo.band === "maybe").length;
  if (order) return likely + maybe ? `${count(likely + maybe, "photo")} may be right${order}.` : "Newest first.";
  if (likely) return `${count(likely, "likely photo")}.`;
  return maybe ? `${count(maybe, "photo")} may be right.` : "Best first.";
}

function fail(problem) {
  draw([], () => ["", ""]);
  if (list.route.upload) $("dropped").hidden = true;
  list.starting = problem.status === 503 && problem.message.startsWith("The server is starting");
  if (problem.status === 401) tell("You are signed out. Open the link that `fishermix serve` shows again.", true);
  else tell(list.starting ? "" : problem.message, true); // what it is loading is shown above
}

export function reload() {
  if (list.route) load(list.route);
}
export const isStarting = () => list.starting && !grid.items.length;
