// The page: what the address says is what it shows.

import { $, send } from "./dom.js";
import * as filters from "./filters.js";
import "./keys.js";
import { follow } from "./live.js";
import { isStarting, load, place, refresh, reload, setFile } from "./results.js";
import { ALL_PHOTOS, go, listKey, start } from "./route.js";
import { caption, hide, show } from "./viewer.js";

let shown = null;
let upload = 0;

function apply(route, kept) {
  if (route.upload && route.upload !== upload) route = { ...route, upload: 0 }; // dropped before the page was loaded again
  const key = listKey(route);
  $("query").value = route.q;
  document.title = route.q && !route.q.startsWith("photo:") ? `${route.q} · fishermix` : "fishermix";
  filters.draw(route);
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
  go({ q, view: "", photo: "", upload: 0 });
});
$("home").addEventListener("click", (event) => {
  event.preventDefault();
  go(ALL_PHOTOS);
});
$("show-duplicates").addEventListener("click", (event) => {
  event.preventDefault();
  go({ ...ALL_PHOTOS, view: "duplicates" });
});

// A photo that is dropped or chosen

function useFile(file) {
  if (!file) return;
  hide();
  setFile(file);
  URL.revokeObjectURL($("dropped-photo").src);
  $("dropped-photo").src = URL.createObjectURL(file);
  $("dropped").hidden = false;
  const number = ++upload;
  const isCurrent = () => number === upload && !$("dropped").hidden;
  go({ ...ALL_PHOTOS, upload });
  caption($("dropped-caption"), send("/api/caption", file), isCurrent);
}

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
