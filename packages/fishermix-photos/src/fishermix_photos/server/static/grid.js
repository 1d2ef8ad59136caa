// The list of photos: cards in sections, more of them while the page is scrolled, and the selection.

import { $, clock, copy, count, make, picture, send, size, toast, when } from "./dom.js";
import { mayChange } from "./live.js";
import { choosePlace, explainOwner } from "./places.js";

export const grid = { items: [], cards: new Map(), selected: new Map(), open: () => {} };
const MOST_LISTED = 1000;
// Why a copy is the one to keep.
const REASONS = { larger: "larger", has_exif: "has date or camera", less_compressed: "less compressed", older: "older", original_name: "not named as a copy" };
let last = -1; // the card that was selected last, for ranges

function badge(photo) {
  if (photo.time !== null && photo.kind === "video") return make("span", "badge", `▶ ${clock(photo.time)}`);
  if (photo.keep) return make("span", "badge", REASONS[photo.reason] ? `keep: ${REASONS[photo.reason]}` : "keep");
  if (photo.page) return make("span", "badge", `page ${photo.page}`);
  return "";
}

/** The width of a photo in heights. Very long ones are cropped in the list. */
const shapeOf = ({ width, height }) => (width && height ? Math.max(0.6, Math.min(2.4, width / height)) : 4 / 3);

/** Why a photo was found by its text, or what a copy of a picture differs in. */
function below(photo) {
  if (photo.text) return make("span", "below", `text in the photo: ${photo.text}`);
  if (photo.group === undefined) return "";
  const facts = [photo.width && `${photo.width} × ${photo.height}`, photo.bytes && size(photo.bytes)].filter(Boolean).map((fact) => `${fact} · `);
  const path = photo.path.split("/").flatMap((name, position) => (position ? ["/", make("wbr"), name] : [name])); // breaks between names
  return make("span", "below", ...facts, ...path);
}

/** Opens the photo, where its near copies are shown. */
function copies(photo) {
  if (!photo.similar?.length) return "";
  const button = make("button", "badge", `+${photo.similar.length} similar`);
  button.type = "button";
  button.setAttribute("aria-label", `Show ${count(photo.similar.length, "photo")} similar to ${photo.path}`);
  button.addEventListener("click", () => grid.open(photo.id));
  return button;
}

function card(photo) {
  const image = make("img");
  image.src = picture(photo, "small");
  image.alt = "";
  image.loading = "lazy";
  image.addEventListener("error", () => {
    // A server that is busy is asked once more.
    if (image.dataset.tried) image.classList.add("missing");
    else setTimeout(() => (image.src = image.src), 2000);
    image.dataset.tried = "yes";
  });
  const band = ["likely", "maybe"].includes(photo.band) ? make("span", `band ${photo.band}`, photo.band) : "";
  const path = make("span", "path", make("bdi", "", photo.path));
  const button = make("button", "photo", image, badge(photo), band, below(photo), path);
  button.type = "button";
  button.title = photo.path;
  button.dataset.id = photo.id;
  button.setAttribute("aria-label", [photo.path, photo.band, photo.text, when(photo.taken)].filter(Boolean).join(", "));
  button.addEventListener("click", () => grid.open(photo.id));
  const box = make("input");
  box.type = "checkbox";
  box.tabIndex = -1;
  box.checked = grid.selected.has(photo.id);
  box.setAttribute("aria-label", `Select ${photo.path}`);
  box.addEventListener("click", (event) => select(photo.id, box.checked, event.shiftKey));
  const made = make("li", "", button, copies(photo), make("label", "pick", box));
  made.style.setProperty("--shape", shapeOf(photo).toFixed(3));
  return made;
}

function sameCard(old, photo) {
  return old && old.version === photo.version && old.score === photo.score && old.band === photo.band && old.time === photo.time
    && old.group === photo.group && old.text === photo.text && old.similar?.length === photo.similar?.length;
}

/** The photo with an id, and its position in the list. */
export const find = (id) => grid.items.findIndex((photo) => photo.id === id);

function cardOf(photo) {
  const kept = grid.cards.get(photo.id);
  if (sameCard(kept?.photo, photo)) return kept.element;
  const element = card(photo);
  grid.cards.set(photo.id, { photo, element });
  return element;
}

/** Show photos. `sectionOf` gives the name and the heading of the section that a photo belongs to. */
export function draw(photos, sectionOf, keep = 0) {
  const focused = document.activeElement?.dataset?.id;
  grid.items = photos;
  if (!keep) {
    const shown = new Set(photos.map((photo) => photo.id));
    for (const id of grid.cards.keys()) if (!shown.has(id)) grid.cards.delete(id);
  }
  const sections = new Map();
  if (keep) for (const section of $("results").children) sections.set(section.dataset.name, section.lastElementChild);
  const filled = new Map();
  for (const photo of photos.slice(keep)) {
    const [name, heading] = sectionOf(photo);
    if (!filled.has(name)) filled.set(name, { heading, cards: [] });
    filled.get(name).cards.push(cardOf(photo));
  }
  const added = [];
  for (const [name, { heading, cards }] of filled) {
    if (sections.has(name)) extend(sections.get(name), heading, cards);
    else added.push(section(name, heading, cards));
  }
  if (keep) $("results").append(...added);
  else $("results").replaceChildren(...added);
  if (focused && document.activeElement === document.body) grid.cards.get(focused)?.element.firstElementChild.focus();
  drawSelection();
}

function extend(list, heading, cards) {
  list.append(...cards);
  if (heading) list.previousElementSibling.textContent = heading;
}

function section(name, heading, cards) {
  const list = make("ul", "grid", ...cards);
  list.setAttribute("aria-label", heading || "Photos found");
  const made = make("section", "", ...(heading ? [make("h2", "divider", heading)] : []), list);
  made.dataset.name = name;
  return made;
}

export const buttons = () => [...document.querySelectorAll(".photo")];

/** The first photo that is not hidden below the header. The cards are in the order of their positions. */
export function firstVisible() {
  const cards = buttons();
  let [low, high] = [0, cards.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cards[middle].getBoundingClientRect().bottom > document.querySelector("header").offsetHeight) high = middle;
    else low = middle + 1;
  }
  return cards[low] && grid.items[find(cards[low].dataset.id)];
}

export const focusCard = (id) => grid.cards.get(id)?.element.firstElementChild.focus();

// Selection

/** Select all copies but the one that is best kept. */
export function selectCopies() {
  for (const photo of grid.items) if (!photo.keep) grid.selected.set(photo.id, photo);
  for (const box of document.querySelectorAll(".pick input")) box.checked = grid.selected.has(box.closest("li").firstElementChild.dataset.id);
  drawSelection();
}

export function select(id, on = !grid.selected.has(id), range = false) {
  const here = find(id);
  const from = range && last >= 0 ? Math.min(last, here) : here;
  const to = range && last >= 0 ? Math.max(last, here) : here;
  for (const photo of here < 0 ? [] : grid.items.slice(from, to + 1)) {
    if (on) grid.selected.set(photo.id, photo);
    else grid.selected.delete(photo.id);
    const box = grid.cards.get(photo.id)?.element.querySelector("input");
    if (box) box.checked = on;
  }
  last = here;
  drawSelection();
}

export function selectNone() {
  grid.selected.clear();
  for (const box of document.querySelectorAll(".pick input")) box.checked = false;
  drawSelection();
}

function drawSelection() {
  const chosen = grid.selected.size;
  $("selection").hidden = !chosen;
  document.body.classList.toggle("selecting", chosen > 0);
  $("selected-count").textContent = chosen > MOST_LISTED ? `${count(chosen, "photo")}: too many to list` : `${chosen.toLocaleString("en")} selected`;
  if (chosen && chosen <= MOST_LISTED) $("save-paths").href = `/api/export?${[...grid.selected.keys()].map((id) => `id=${id}`).join("&")}`;
  else $("save-paths").removeAttribute("href");
  $("copy-paths").disabled = $("copy-files").disabled = !$("save-paths").href;
  if ($("save-paths").href) $("save-zip").href = $("save-paths").href.replace("/api/export?", "/api/zip?");
  else $("save-zip").removeAttribute("href");
  for (const button of buttons()) button.parentElement.classList.toggle("chosen", grid.selected.has(button.dataset.id));
}

$("select-none").addEventListener("click", selectNone);
$("select-copies").addEventListener("click", selectCopies);
$("copy-files").addEventListener("click", () => {
  if (!mayChange()) return explainOwner();
  const ids = [...grid.selected.keys()];
  choosePlace(`Copy ${count(ids.length, "photo")}`, "Copy here", true, async (folder) => {
    const { copied, left_out: missing } = await send("/api/copies", JSON.stringify({ ids, folder }));
    toast(`Copied ${count(copied, "photo")}.${missing ? ` ${count(missing, "file")} could not be read.` : ""}`);
    selectNone();
  });
});
$("copy-paths").addEventListener("click", async () => {
  const paths = (await (await fetch($("save-paths").href)).text()).trimEnd();
  copy(paths, count(paths.split("\n").length, "path"));
});
