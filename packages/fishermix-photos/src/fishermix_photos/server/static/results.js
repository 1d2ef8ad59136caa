// Asks for photos page by page: for a query of words and a photo, or without one.

import { $, ask, count, GONE, make, parameters, size } from "./dom.js";
import { draw, firstVisible, grid } from "./grid.js";
import { drawNotes } from "./notes.js";
import { FILTERS } from "./route.js";
import { byMonth, drawYears, markYear } from "./timeline.js";

const PAGE = 60;
const MOST_AT_ONCE = 200;
const list = { route: null, start: 0, more: false, busy: false, missed: false, turn: 0, found: null };

export function tell(message, problem = false) {
  $("status").textContent = message;
  $("status").classList.toggle("problem", problem);
}

const filtersOf = (route) => Object.fromEntries(FILTERS.map((name) => [name, route[name]]));

function request(route, offset, n) {
  if (route.view) return compare();
  const only = filtersOf(route);
  const q = [route.q, route.like && `photo:${route.like}`].filter(Boolean).join(" + ");
  if (q) return ask(`/api/search?${parameters({ q, ...only, sort: only.sort === "date" ? "date" : "", offset, n })}`);
  return ask(`/api/browse?${parameters({ ...only, offset, n })}`);
}

/** The groups of duplicates as one list; the first photo of a group is best kept. */
async function compare() {
  const { groups, more } = await ask("/api/duplicates");
  const photos = groups.flatMap((group, number) => group.photos.map((photo, index) => ({ ...photo, group: number, keep: index === 0, reason: group.reason })));
  return { photos, groups, cut: more, more: false, notes: [] };
}

/** How much of the list is shown, and where. */
export const place = () => ({ count: grid.items.length, start: list.start, scroll: scrollY });

/** Show another list. `kept` is how much of it was seen before: the first photo, their number, the scroll position. */
export async function load(route, kept = {}) {
  const turn = ++list.turn;
  Object.assign(list, { route, start: kept.start || 0, more: false, busy: true });
  $("remarks").hidden = true;
  $("fresh").hidden = true;
  tell(route.view ? "Comparing your photos…" : isSearch(route) ? "Searching…" : "");
  $("select-copies").hidden = true;
  try {
    const photos = [];
    let found;
    do {
      found = await request(route, list.start + photos.length, Math.min(MOST_AT_ONCE, Math.max(PAGE, (kept.count || 0) - photos.length)));
      if (turn !== list.turn) return;
      photos.push(...found.photos);
    } while (found.more && photos.length < (kept.count || 0));
    list.found = found;
    list.more = Boolean(found.more);
    draw(photos, sections(route, found, photos));
    describe(route, found, photos);
    scrollTo(0, kept.scroll || 0);
  } catch (problem) {
    if (turn === list.turn) fail(problem);
  } finally {
    finish(turn);
  }
  fill();
}

const isSearch = (route) => Boolean(route.q || route.like);

/** Ask again for what is shown, after photos have changed; nothing jumps. New photos of a search wait for a click. */
export async function refresh() {
  if (!list.route || list.route.view) return;
  list.missed = list.busy; // the answer on its way may be older than this change
  if (list.busy) return;
  const { route, turn } = list;
  const photos = [];
  let found;
  try {
    do {
      found = await request(route, list.start + photos.length, Math.min(MOST_AT_ONCE, Math.max(PAGE, grid.items.length - photos.length)));
      photos.push(...found.photos);
    } while (found.more && photos.length < grid.items.length);
  } catch {
    return; // the next change asks again
  }
  if (turn !== list.turn) return;
  if (list.busy) {
    list.missed = true;
    return;
  }
  if (isSearch(route) && grid.items.length && offer(photos)) return;
  Object.assign(list, { found, more: found.more });
  keepPlace(() => draw(photos, sections(route, found, photos)));
  describe(route, found, photos);
  fill();
}

/** A request of `turn` has been answered: changes that came meanwhile are asked for. */
function finish(turn) {
  if (turn !== list.turn) return;
  list.busy = false;
  if (!list.missed) return;
  list.missed = false;
  refresh();
}

/** Offer photos of a search that would move those that are shown; others follow them. Returns whether there are any. */
function offer(photos) {
  const known = new Set(grid.items.map((photo) => photo.id));
  const last = photos.findLastIndex((photo) => known.has(photo.id));
  const fresh = photos.slice(0, last + 1).filter((photo) => !known.has(photo.id));
  const right = fresh.filter(({ band }) => band !== "unlikely"); // they are counted if there are any
  $("fresh").hidden = !fresh.length;
  $("fresh").textContent = `${count((right.length ? right : fresh).length, "new result")}, show`;
  return fresh.length > 0;
}

$("fresh").addEventListener("click", () => load(list.route));

export async function loadMore() {
  if (!list.more || list.busy) return;
  const { turn, route } = list;
  list.busy = true;
  try {
    const found = await request(route, list.start + grid.items.length, PAGE);
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
    finish(turn);
  }
  fill();
}

/** After a jump to a year: the photos before it, while the user scrolls up. */
async function loadBefore() {
  if (!list.start || list.busy) return;
  const { turn, route } = list;
  list.busy = true;
  try {
    const from = Math.max(0, list.start - PAGE);
    const found = await request(route, from, list.start - from);
    if (turn !== list.turn) return;
    list.start = from;
    const known = new Set(found.photos.map((photo) => photo.id));
    const photos = [...found.photos, ...grid.items.filter((photo) => !known.has(photo.id))];
    keepPlace(() => draw(photos, sections(route, list.found, photos)));
  } catch {
    return; // scrolling on asks again
  } finally {
    finish(turn);
  }
  fill();
}

/** Draw again without moving the photo at the top of the window. */
function keepPlace(change) {
  const seen = scrollY || list.start ? firstVisible() : null;
  const top = () => grid.cards.get(seen?.id)?.element.getBoundingClientRect().top;
  const before = top();
  change();
  const after = top();
  if (before !== undefined && after !== undefined) scrollBy(0, after - before);
}

/** Go to the photo at a position of the list of all photos: a year begins with a section. */
function jump(position) {
  const photo = grid.items[position - list.start];
  if (position >= list.start && photo) grid.cards.get(photo.id).element.closest("section").scrollIntoView();
  else load(list.route, { start: Math.max(0, position - PAGE), count: 2 * PAGE }).then(() => grid.items[position - list.start] && jump(position));
}

export const hasMore = () => list.more;
const isNearEnd = () => $("end").getBoundingClientRect().top < innerHeight + 800;
/** Ask for more while the end is near. An IntersectionObserver would miss an end that leaves and returns between two frames. */
const fill = () => requestAnimationFrame(() => {
  markYear(firstVisible());
  if (isNearEnd()) loadMore();
  else if (scrollY < 800) loadBefore();
});
for (const event of ["scroll", "resize"]) addEventListener(event, fill, { passive: true });

/** Whether photos are listed by date: without a query, or with one that is only a date. */
const isListed = (route, photos) => photos.every((photo) => photo.score === null);

/** The section of each photo: its group, how likely it is right, or its month. */
function sections(route, found, photos) {
  if (route.view) return ({ group }) => [`group ${group}`, headingOf(found.groups[group])];
  if (isListed(route, photos)) return route.sort === "name" ? () => ["all", ""] : byMonth(photos);
  if (route.sort === "date") return () => ["found", ""];
  const headings = { maybe: "Maybe", unlikely: "Unlikely" };
  return ({ band }) => [band || "found", band !== photos[0].band && headings[band] || ""]; // the line above speaks of the first ones
}

const headingOf = ({ exact, photos }) => (exact ? count(photos.length, "equal file") : `${photos.length} copies of one picture`);

function describe(route, found, photos) {
  $("remarks").replaceChildren(...drawNotes(found.notes));
  $("remarks").hidden = !found.notes.length;
  $("select-copies").hidden = !route.view || !photos.length;
  document.body.classList.toggle("duplicates", Boolean(route.view));
  drawYears(isListed(route, photos) && !route.view && route.sort !== "name" && found.years || [], jump);
  tell(route.view ? describeCopies(found, photos) : summarize(route, found, photos));
}

function describeCopies(found, photos) {
  if (!photos.length) return "There are no duplicates.";
  const copies = photos.filter((photo) => !photo.keep);
  const bytes = copies.reduce((sum, photo) => sum + (photo.bytes || 0), 0);
  const groups = found.cut ? `The first ${count(found.groups.length, "picture")}` : count(found.groups.length, "picture");
  return `${groups} with ${count(copies.length, "copy", "copies")} (${size(bytes)}). Nothing is deleted here: select copies and save their list.`;
}

function summarize(route, found, photos) {
  const filtered = FILTERS.some((name) => name !== "sort" && route[name]);
  if (!photos.length) return filtered || isSearch(route) ? "No photos found." : $("empty").hidden ? "There are no photos here yet." : "";
  if (isListed(route, photos)) return filtered || isSearch(route) ? count(found.total, "photo") : "";
  const order = route.sort === "date" ? ", newest first" : "";
  if (found.verdict) return found.verdict.replace(/:$/, `${order}:`);
  const counted = ["likely", "maybe"].map((band) => [photos.filter((photo) => photo.band === band).length, band]).filter(([number]) => number);
  const follow = ([, band]) => found.more && (order || photos.at(-1).band === band); // photos that are not here yet
  if (counted.length) return `${counted.map((some) => `${some[0]}${follow(some) ? " or more" : ""} ${some[1]}`).join(", ")}${order}.`;
  if (order) return "Newest first.";
  return route.like && !route.q ? "Photos that are similar to yours, best first." : "Best first.";
}

function fail(problem) {
  draw([], () => ["", ""]);
  list.starting = problem.status === 503 && problem.message.startsWith("The server is starting");
  if (problem.status === 401) tell("You are signed out. Open the link that `fishermix serve` shows again.", true);
  else if (problem.status === 404 && list.route.like && problem.message.includes(list.route.like)) tell("Your photo is not kept any more. Drop it again.", true);
  else tell(list.starting || problem.status === GONE ? "" : problem.message, true); // what it is loading, or that it is gone, is shown above
}

export function reload() {
  if (list.route) load(list.route);
}
export const isStarting = () => list.starting && !grid.items.length;
