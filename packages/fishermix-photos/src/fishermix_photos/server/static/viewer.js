// One photo: the picture, its actions, what it shows, why it matched, and photos like it.

import { $, ask, copy, make, original, parameters, picture, size, toast, when } from "./dom.js";
import { find, focusCard, grid, select } from "./grid.js";
import { hasMore, loadMore } from "./results.js";
import { back, current, go, isReturning } from "./route.js";
import { isZoomed, reset } from "./zoom.js";

const MOST_COPIES = 24;
const MOST_SIMILAR = 8;
const SMALL_WORDS = /^(an?|the|of|[io]n|at|by|to|with|and|is|are)$/;
const LEAST_SHARE = 0.1; // of the word that counts most: a word with less hardly counts
const viewer = { photo: null, details: {} };
export const isOpen = () => $("viewer").open;
const shows = (id) => isOpen() && viewer.photo?.id === id;

/** Open the photo with an id, from the list or by its address. */
export async function show(id) {
  if (shows(id)) return;
  let photo = grid.items[find(id)];
  if (!photo) {
    try {
      photo = await ask(`/api/photos/${id}/details`);
    } catch (problem) {
      if (current().photo !== id) return;
      toast(problem.message);
      return go({ photo: "" }, { replace: true });
    }
    if (current().photo !== id) return;
  }
  look(photo);
}

/** Open it as a step of the history; a step to another photo while one is open replaces it. */
export function open(id) {
  if (viewer.photo && !isOpen()) leave(); // the browser closed the dialog; its event is still to come
  if (isOpen() && !isReturning()) go({ photo: id }, { replace: true, opened: history.state?.opened });
  else go({ photo: id }, { opened: true });
}

export function step(by) {
  const here = find(viewer.photo?.id);
  const next = grid.items[here + by];
  if (here >= 0 && next) open(next.id);
  if (here + by >= grid.items.length - 5 && hasMore()) loadMore().then(drawSteps);
}

/** Leave the photo: back to the list that it was opened from. */
export function leave() {
  if (history.state?.opened) back();
  else go({ photo: "" }, { replace: true });
}

export function hide() {
  if (!viewer.photo) return;
  const { id } = viewer.photo;
  viewer.photo = null;
  $("viewer-video").removeAttribute("src");
  $("viewer-video").load();
  $("viewer").close();
  focusCard(id);
}

function drawSteps() {
  const here = find(viewer.photo?.id);
  $("previous").disabled = here <= 0;
  $("next").disabled = here < 0 || here >= grid.items.length - 1;
}

function drawPicture(photo) {
  const isVideo = photo.kind === "video";
  const image = $("viewer-photo");
  image.hidden = false;
  image.alt = photo.path;
  image.src = picture(photo, "small"); // already loaded; the large one replaces it
  const large = new Image();
  delete image.dataset.sharp;
  reset(photo);
  large.onload = () => {
    if (shows(photo.id) && !image.dataset.sharp) image.src = large.src;
  };
  large.src = picture(photo, "large");
  const video = $("viewer-video");
  video.hidden = true;
  video.onloadedmetadata = () => {
    if (!shows(photo.id)) return;
    [video.hidden, image.hidden] = [false, true];
  };
  if (isVideo) video.src = `${original(photo)}#t=${photo.time || 0}`;
  else video.removeAttribute("src");
}

function drawActions(photo) {
  $("open-original").href = original(photo);
  $("download").href = original(photo, true);
  drawPick();
}

function drawPick() {
  const on = grid.selected.has(viewer.photo?.id);
  $("pick").setAttribute("aria-pressed", on);
  $("pick").textContent = on ? "Selected" : "Select";
}

/** The place as a link to a map, which is on the network: it is opened only by a click. */
function map({ place, latitude, longitude }) {
  if (latitude == null) return place || "";
  const at = `${latitude.toFixed(5)}/${longitude.toFixed(5)}`;
  const link = make("a", "", place || at.replace("/", ", "));
  Object.assign(link, { target: "_blank", rel: "noreferrer noopener", title: "Show on openstreetmap.org" });
  link.href = `https://www.openstreetmap.org/?mlat=${latitude}&mlon=${longitude}#map=14/${at}`;
  return link;
}

function facts(details) {
  const sizes = details.width ? `${details.width}\u00a0×\u00a0${details.height}` : "";
  const taken = details.taken && `${when(details.taken)}${details.taken_from === "file" ? " (time of the file)" : ""}`;
  const known = [taken, map(details), details.camera, sizes, details.kind, details.bytes && size(details.bytes)].filter(Boolean);
  return known.flatMap((fact, number) => (number ? [" · ", fact] : [fact]));
}

// Captions can be switched off

const wantsCaptions = () => localStorage.getItem("captions") !== "off";
$("want-captions").checked = wantsCaptions();
$("want-captions").addEventListener("change", (event) => {
  localStorage.setItem("captions", event.target.checked ? "on" : "off");
  for (const id of ["viewer-caption", "dropped-caption"]) $(id).hidden = true; // those that are shown next have one
});

/** Ask for a caption and show it, unless the model is unsure of it or nobody wants captions. */
export function caption(element, request, isCurrent) {
  element.hidden = true;
  if (!wantsCaptions()) return;
  request().then(({ sentence, confidence, unsure }) => {
    if (!isCurrent() || unsure) return;
    const sure = confidence == null ? [] : [" ", make("small", "", `(${Math.round(100 * confidence)} % sure)`)];
    element.replaceChildren("Looks like: ", sentence, ...sure);
    element.hidden = false;
  }, () => {});
}

function look(photo) {
  Object.assign(viewer, { photo, details: photo });
  $("viewer").dataset.id = photo.id;
  $("viewer-path").textContent = photo.path;
  for (const id of ["viewer-similar", "why-words", "why-rest", "viewer-facts"]) $(id).replaceChildren();
  drawPicture(photo);
  drawActions(photo);
  drawSteps();
  if (!isOpen()) $("viewer").showModal();
  $("viewer").querySelector(".about").scrollTop = $("viewer").querySelector(".view").scrollTop = 0;
  $("viewer-photo").focus();
  const isCurrent = () => shows(photo.id);
  const q = /^photo:\w+$/.test(current().q) ? "" : current().q; // words can be explained
  $("why").hidden = !q;
  drawBand(photo);
  const id = photo.id;
  ask(`/api/photos/${id}/details`).then((details) => {
    if (!isCurrent()) return;
    viewer.details = details;
    $("viewer-facts").replaceChildren(...facts(details));
  }, () => {});
  // The fast ones first: the server computes two at once.
  const isCopy = new Set(photo.similar); // they have a list of their own
  ask(`/api/similar?${parameters({ id, n: MOST_SIMILAR + Math.min(isCopy.size, MOST_COPIES) })}`).then(({ photos }) => {
    const others = photos.filter((other) => !isCopy.has(other.id)).slice(0, MOST_SIMILAR);
    if (isCurrent()) $("viewer-similar").replaceChildren(...others.map((other) => likeness(other, "Similar")));
  }, () => {});
  drawCopies(photo, isCurrent);
  if (q) ask(`/api/explain?${parameters({ q, id })}`).then((why) => isCurrent() && explain(why), (problem) => isCurrent() && ($("why-words").textContent = problem.message));
  caption($("viewer-caption"), () => ask(`/api/caption?${parameters({ id })}`), isCurrent);
}

/** The near copies that share a place in the list with this photo. */
async function drawCopies(photo, isCurrent) {
  const section = $("viewer-copies").parentElement;
  section.hidden = true;
  const ids = (photo.similar || []).slice(0, MOST_COPIES);
  const found = await Promise.all(ids.map((id) => ask(`/api/photos/${id}/details`).catch(() => null)));
  if (!isCurrent()) return;
  const known = found.filter(Boolean);
  $("viewer-copies").replaceChildren(...known.map((other) => likeness(other, "Copy")));
  section.hidden = !known.length;
}

function likeness(photo, kind) {
  const image = make("img");
  image.src = picture(photo, "small");
  image.alt = "";
  const button = make("button", "", image);
  button.type = "button";
  button.title = photo.path;
  button.setAttribute("aria-label", `${kind}: ${photo.path}`);
  button.addEventListener("click", () => open(photo.id));
  return make("li", "", button);
}

/** How sure the search is of a photo. */
function drawBand({ band, probability }) {
  const words = { likely: "Likely right", maybe: "Maybe right", unlikely: "Unlikely to be right" };
  $("why-sure").hidden = !band;
  $("why-sure").textContent = band ? `${words[band]} (${Math.round(100 * probability)} %).` : "";
}

/** Which words counted, in the order of the query. */
function explain(why) {
  const most = Math.max(1e-6, ...why.words.map((part) => part.drop));
  const words = why.words.filter(({ word }) => !SMALL_WORDS.test(word));
  const counted = words.filter(({ drop }) => drop >= LEAST_SHARE * most);
  $("why-words").replaceChildren(...counted.map(({ word, drop }) => {
    const chip = make("span", "word", word, ...(drop === most && counted.length > 1 ? [" ", make("small", "", "counts most")] : []));
    chip.style.setProperty("--share", drop / most);
    return chip;
  }));
  const others = words.filter((part) => !counted.includes(part)).map(({ word }) => word);
  const lines = { "Hardly counted": others, "Not understood": why.out_of_vocabulary, Subtracted: why.subtracted.map(({ sentence }) => sentence) };
  $("why-rest").textContent = Object.entries(lines).filter(([, words]) => words.length).map(([line, words]) => `${line}: ${words.join(", ")}.`).join(" ");
}

// Actions

export const copyPath = () => copy(viewer.details.file || viewer.photo.path, "the path");
export function pick() {
  if (find(viewer.photo.id) < 0) return toast("Only photos of the list can be selected.");
  select(viewer.photo.id);
  drawPick();
}
export function searchWithPhoto() {
  go({ q: "", like: viewer.photo.id, view: "", photo: "" });
}

$("copy-path").addEventListener("click", copyPath);
$("pick").addEventListener("click", pick);
$("more-like-this").addEventListener("click", searchWithPhoto);
$("close").addEventListener("click", leave);
$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
$("viewer").addEventListener("cancel", (event) => {
  event.preventDefault();
  leave();
});
$("viewer").addEventListener("close", () => viewer.photo && !isOpen() && leave());
$("viewer").addEventListener("click", (event) => event.target === $("viewer") && leave());

let touched = null;
$("viewer").querySelector(".frame").addEventListener("touchstart", (event) => (touched = event.touches.length === 1 ? event.touches[0] : null), { passive: true });
$("viewer").querySelector(".frame").addEventListener("touchend", (event) => {
  const moved = touched ? event.changedTouches[0].clientX - touched.clientX : 0;
  if (Math.abs(moved) > 60 && !isZoomed()) step(moved < 0 ? 1 : -1);
  touched = null;
});
