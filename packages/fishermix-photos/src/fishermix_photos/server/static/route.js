// The address of the page says what it shows: the query, the photo that is searched with, the filters and the open photo.

export const FILTERS = ["after", "before", "in", "camera", "near", "kind", "undated", "sort"];
const NAMES = ["q", "like", "view", ...FILTERS, "photo"];
export const ALL_PHOTOS = Object.fromEntries(NAMES.map((name) => [name, ""]));
let apply = () => {};
let waiting = null; // while the browser goes back: where to go from there

export const isReturning = () => waiting !== null;

/** Go back one step, however often this is called before the browser has done it. */
export function back() {
  if (isReturning()) return;
  waiting = {};
  history.back();
}

/** What the address says; `like` is the id of a photo of the library, or of one that was dropped on the page. */
export function read() {
  const given = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, given.get(name) || ""]));
}

export const current = read;

function address(route) {
  const values = NAMES.filter((name) => route[name]).map((name) => [name, route[name]]);
  const query = new URLSearchParams(values).toString();
  return query ? `/?${query}` : "/";
}

/** Go to another place; `opened` marks a photo that was opened from the list before it in the history. */
export function go(changes, { replace = false, opened = history.state?.opened && replace } = {}) {
  if (isReturning()) {
    waiting = { changes: { ...waiting.changes, ...changes }, options: { replace, opened } }; // now, it would be what the browser goes back from
    return;
  }
  const route = { ...read(), ...changes };
  const state = { opened: Boolean(opened) };
  if (replace) {
    history.replaceState({ ...history.state, ...state }, "", address(route));
  } else {
    remember();
    history.pushState(state, "", address(route));
  }
  apply(route, {});
}

/** Keep how far the list was scrolled with its place in the history. */
let measure = () => ({});
export const remember = () => history.replaceState({ ...history.state, ...measure() }, "");

export function start(onChange, onMeasure) {
  apply = onChange;
  measure = onMeasure;
  history.scrollRestoration = "manual";
  addEventListener("popstate", () => {
    const next = waiting;
    waiting = null;
    apply(read(), history.state || {});
    if (next?.changes) go(next.changes, next.options);
  });
  addEventListener("pagehide", remember);
  apply(read(), history.state || {});
}

/** What the list of photos depends on. */
export function listKey(route) {
  return JSON.stringify([route.q, route.like, route.view, ...FILTERS.map((name) => route[name])]);
}
