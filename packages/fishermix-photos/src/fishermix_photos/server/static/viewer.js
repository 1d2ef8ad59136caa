// One photo: the picture, its actions, what it shows, why it matched, and photos like it.

import { $, ask, copy, make, original, parameters, picture, send, signed, size, toast, when } from "./dom.js";
import { find, focusCard, grid, select } from "./grid.js";
import { hasMore, loadMore } from "./results.js";
import { back, current, go, isReturning } from "./route.js";

const viewer = { photo: null, details: {}, canReveal: false };
export const isOpen = () => $("viewer").open;
export const allowReveal = (allowed) => (viewer.canReveal = allowed);
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
  large.onload = () => {
    if (shows(photo.id)) image.src = large.src;
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
  $("reveal").hidden = !viewer.canReveal;
  drawPick();
}

function drawPick() {
  const on = grid.selected.has(viewer.photo?.id);
  $("pick").setAttribute("aria-pressed", on);
  $("pick").textContent = on ? "Selected" : "Select";
}

function facts(details) {
  const sizes = details.width ? `${details.width} × ${details.height}` : "";
  const place = details.latitude == null ? "" : `${details.latitude.toFixed(4)}, ${details.longitude.toFixed(4)}`;
  const taken = details.taken && `${when(details.taken)}${details.taken_from === "file" ? " (time of the file)" : ""}`;
  return [taken, details.camera, place, sizes, details.kind, details.bytes && size(details.bytes)].filter(Boolean).join(" · ");
}

/** Show a caption when it comes; one that the model is unsure of is gray. */
export function caption(element, promise, isCurrent) {
  element.textContent = "Describing…";
  element.className = "caption waiting";
  promise.then((answer) => answer, (problem) => ({ caption: problem.message })).then(({ caption: text, unsure }) => {
    if (!isCurrent()) return;
    element.replaceChildren(text.charAt(0).toUpperCase() + text.slice(1), ...(unsure ? [" ", make("span", "unsure", "unsure")] : []));
    element.className = unsure ? "caption doubtful" : "caption";
  });
}

export function listSentences(list, sentences) {
  list.replaceChildren(...sentences.map(({ sentence, score }) =>
    make("li", "", make("span", "score", score.toFixed(3)), make("span", "", sentence))));
}

function look(photo) {
  Object.assign(viewer, { photo, details: photo });
  $("viewer").dataset.id = photo.id;
  $("viewer-path").textContent = photo.path;
  for (const id of ["viewer-sentences", "viewer-similar", "why-words", "why-components", "viewer-facts", "why-sum"]) $(id).replaceChildren();
  drawPicture(photo);
  drawActions(photo);
  drawSteps();
  if (!isOpen()) $("viewer").showModal();
  $("viewer").querySelector(".about").scrollTop = $("viewer").querySelector(".view").scrollTop = 0;
  $("viewer-photo").focus();
  const isCurrent = () => shows(photo.id);
  const q = /^photo:\w+$/.test(current().q) ? "" : current().q; // words can be explained
  $("why").hidden = !q;
  const id = photo.id;
  ask(`/api/photos/${id}/details`).then((details) => {
    if (!isCurrent()) return;
    viewer.details = details;
    $("viewer-facts").textContent = facts(details);
  }, () => {});
  // The fast ones first: the server computes two at once.
  ask(`/api/similar?${parameters({ id, n: 8 })}`).then(({ photos }) => isCurrent() && $("viewer-similar").replaceChildren(...photos.map(likeness)), () => {});
  ask(`/api/annotate?${parameters({ id, n: 5 })}`).then(({ sentences }) => isCurrent() && listSentences($("viewer-sentences"), sentences), () => {});
  if (q) ask(`/api/explain?${parameters({ q, id })}`).then((why) => isCurrent() && explain(why), (problem) => isCurrent() && ($("why-words").textContent = problem.message));
  caption($("viewer-caption"), ask(`/api/caption?${parameters({ id })}`), isCurrent);
}

function likeness(photo) {
  const image = make("img");
  image.src = picture(photo, "small");
  image.alt = "";
  const button = make("button", "", image);
  button.type = "button";
  button.title = photo.path;
  button.setAttribute("aria-label", `Similar: ${photo.path}`);
  button.addEventListener("click", () => open(photo.id));
  return make("li", "", button);
}

/** By words; the components of the mixtures are behind "Details". */
function explain(why) {
  const most = Math.max(1e-6, ...why.words.map((part) => part.drop));
  $("why-words").replaceChildren(...why.words.map(({ word, drop }) => {
    const chip = make("span", "word", `${word} `, make("small", "", signed(drop)));
    chip.style.setProperty("--share", Math.max(0, drop / most));
    chip.title = `Without “${word}” the score would be ${(why.score - drop).toFixed(3)}`;
    return chip;
  }));
  const rest = why.rest + (why.transformer || 0);
  $("why-sum").textContent = `Score ${why.score.toFixed(3)}: the components below, all others ${signed(rest)}, hubness correction ${signed(why.hubness)}.`;
  $("why-components").replaceChildren(...why.components.slice(0, 5).map(({ part, near, words }) =>
    make("li", "", make("span", "score", signed(part)),
      make("span", "", words.join(", "), make("span", "near", near.length ? ` · similar words: ${near.join(", ")}` : "")))));
}

// Actions

export const copyPath = () => copy(viewer.details.file || viewer.photo.path, "the path");
export const reveal = () => viewer.canReveal && send(`/api/photos/${viewer.photo.id}/reveal`).then(() => toast("The folder opens in your file manager."), (problem) => toast(problem.message));
export function pick() {
  if (find(viewer.photo.id) < 0) return toast("Only photos of the list can be selected.");
  select(viewer.photo.id);
  drawPick();
}
export function searchWithPhoto() {
  go({ q: `photo:${viewer.photo.id}`, photo: "", upload: 0 });
}

$("copy-path").addEventListener("click", copyPath);
$("reveal").addEventListener("click", reveal);
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
  if (Math.abs(moved) > 60) step(moved < 0 ? 1 : -1);
  touched = null;
});
