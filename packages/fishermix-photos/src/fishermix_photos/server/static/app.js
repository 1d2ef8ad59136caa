// The page: what the address says is what it shows.

import { $, ask, parameters, send, toast } from "./dom.js";
import * as filters from "./filters.js";
import "./keys.js";
import { follow, mayChange } from "./live.js";
import { choosePlace, explainOwner } from "./places.js";
import { isStarting, load, place, refresh, reload, tell } from "./results.js";
import { ALL_PHOTOS, current, go, listKey, start } from "./route.js";
import { caption, hide, show } from "./viewer.js";

let shown = null;
let turn = 0; // of photos that are sent

function apply(route, kept) {
  const key = listKey(route);
  $("query").value = route.q;
  document.title = route.q && !route.q.startsWith("photo:") ? `${route.q} · fishermix` : "fishermix";
  filters.draw(route);
  drawLike(route.like);
  if (key !== shown) {
    shown = key;
    load(route, kept);
  }
  if (route.photo) show(route.photo);
  else hide();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const q = $("query").value.trim();
  $("completions").replaceChildren();
  go({ q, view: "", photo: "" });
});
// The cross in the box: what it found goes with the words. Enter in an empty box submits the form.
$("query").addEventListener("search", () => $("query").value || go({ q: "", photo: "" }));
$("query").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  event.preventDefault(); // the browser would empty the box and leave what was found
  $("query").value = current().q;
  $("query").blur();
});
$("home").addEventListener("click", (event) => {
  event.preventDefault();
  go(ALL_PHOTOS);
});
$("show-duplicates").addEventListener("click", (event) => {
  event.preventDefault();
  go({ ...ALL_PHOTOS, view: "duplicates" });
});

// A photo to search with: one of the library, or one that is dropped or chosen

function drawLike(id) {
  const panel = $("dropped");
  panel.hidden = !id;
  if (!id || panel.dataset.id === id) return;
  panel.dataset.id = id;
  $("dropped-photo").src = `/api/photos/${id}`;
  const isCurrent = () => panel.dataset.id === id && !panel.hidden;
  caption($("dropped-caption"), () => ask(`/api/caption?${parameters({ id })}`), isCurrent);
}

/** Send a photo; the server keeps it for a while, so that the address can name it. */
async function useFile(file) {
  if (!file) return;
  hide();
  const mine = ++turn;
  tell("Analyzing your photo…");
  try {
    const { id } = await send("/api/uploads", file);
    if (mine === turn) go({ ...ALL_PHOTOS, like: id });
  } catch (problem) {
    if (mine === turn) tell(problem.message, true);
  }
}

$("forget-photo").addEventListener("click", () => go({ like: "", photo: "" }));

// A folder to add

function addFolder() {
  if (!mayChange()) return explainOwner();
  choosePlace("Add a folder", "Add this folder", false, async (path) => {
    const { name, photos } = await send("/api/folders", JSON.stringify({ path }));
    toast(`Adding ${photos.toLocaleString("en")} ${photos === 1 ? "photo" : "photos"} of ${name}.`);
  });
}

for (const id of ["add-folder", "add-first-folder"]) $(id).addEventListener("click", addFolder);

$("file").addEventListener("change", () => {
  useFile($("file").files[0]);
  $("file").value = "";
});
// dragenter and dragleave are sent for every element on the way: count them.
let entered = 0;
const dragging = (on) => document.body.classList.toggle("dragging", on);
document.addEventListener("dragenter", () => dragging(++entered > 0));
document.addEventListener("dragleave", () => dragging(--entered > 0));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  entered = 0;
  dragging(false);
  useFile(event.dataTransfer.files[0]);
});

start(apply, place);
follow(() => (isStarting() ? reload() : refresh()), filters.update);
