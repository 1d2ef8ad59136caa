"use strict";
// All text from the service goes through textContent or attributes: nothing that comes from a photo is ever markup.

const $ = (id) => document.getElementById(id);
const EXAMPLES = ["two dogs run on a beach", "people sit at a table and eat", "a child plays in the snow", "a city at night - people"];
const state = { photos: [], open: -1, query: "", asked: 0 };

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

async function ask(path, body) {
  const response = await fetch(path, body ? { method: "POST", body } : undefined);
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const detail = Array.isArray(answer.detail) ? answer.detail.map((part) => part.msg).join("; ") : answer.detail;
    throw new Error(detail || `The server responded with status ${response.status}.`);
  }
  return answer;
}

const parameters = (values) => new URLSearchParams(values).toString();
const picture = (id, size) => `/api/photos/${id}?size=${size}`;
const percent = (score) => score.toFixed(3);

function tell(message, problem = false) {
  $("status").textContent = message;
  $("status").classList.toggle("problem", problem);
}

function meter(share) {
  const fill = make("span");
  fill.style.setProperty("--share", Math.max(0, Math.min(1, share)));
  return make("span", "meter", fill);
}

function card(photo, position) {
  const image = make("img");
  image.src = picture(photo.id, "small");
  image.alt = "";
  image.loading = "lazy";
  const path = make("span", "path", make("bdi", "", photo.path));
  const button = make("button", "photo", image,
    make("span", "below", make("span", "score", percent(photo.score)), meter(photo.score), path));
  button.type = "button";
  button.title = photo.path;
  button.setAttribute("aria-label", `${photo.path}, score ${percent(photo.score)}`);
  button.addEventListener("click", () => view(position));
  return make("li", "", button);
}

function show(found) {
  state.photos = found.photos;
  const certain = found.threshold === null ? found.photos.length : found.photos.filter((photo) => photo.score >= found.threshold).length;
  const cards = found.photos.map(card);
  $("strong").replaceChildren(...cards.slice(0, certain));
  $("weak").replaceChildren(...cards.slice(certain));
  $("weaker").hidden = certain === cards.length;
  $("weaker").textContent = certain ? "Weaker matches" : "No photo stands out. The best matches:";
  $("welcome").hidden = true;
  const count = (n) => (n === 1 ? "1 photo stands" : `${n} photos stand`);
  const unknown = found.out_of_vocabulary.length ? ` Ignored, not in the vocabulary: ${found.out_of_vocabulary.join(", ")}.` : "";
  tell(cards.length ? `${count(certain)} out.${unknown}` : "There are no photos in this folder yet.");
}

async function search(query) {
  query = query.trim();
  if (!query) return;
  const turn = ++state.asked;
  state.query = query;
  $("query").value = query;
  $("dropped").hidden = true;
  history.replaceState(null, "", `?${parameters({ q: query })}`);
  tell("Searching…");
  try {
    const found = await ask(`/api/search?${parameters({ q: query, n: 60 })}`);
    if (turn === state.asked) show(found);
  } catch (problem) {
    if (turn === state.asked) fail(problem);
  }
}

function fail(problem) {
  $("strong").replaceChildren();
  $("weak").replaceChildren();
  $("weaker").hidden = true;
  state.photos = [];
  tell(problem.message, true);
}

function listSentences(list, sentences) {
  list.replaceChildren(...sentences.map(({ sentence, score }) =>
    make("li", "", make("span", "score", percent(score)), make("span", "", sentence))));
}

function caption(element, promise, current) {
  element.textContent = "Describing…";
  element.classList.add("waiting");
  promise.then((answer) => answer.caption, (problem) => problem.message).then((text) => {
    if (!current()) return;
    element.textContent = text.charAt(0).toUpperCase() + text.slice(1);
    element.classList.remove("waiting");
  });
}

async function useFile(file) {
  if (!file) return;
  const turn = ++state.asked;
  const current = () => turn === state.asked;
  state.query = "";
  $("query").value = "";
  history.replaceState(null, "", location.pathname);
  if ($("viewer").open) $("viewer").close();
  URL.revokeObjectURL($("dropped-photo").src);
  $("dropped-photo").src = URL.createObjectURL(file);
  $("dropped").hidden = false;
  $("dropped-sentences").replaceChildren();
  tell("Analyzing your photo…");
  try {
    const found = await ask("/api/similar?n=60", file);
    if (!current()) return;
    show(found);
    tell("Photos that are similar to yours, best first.");
    caption($("dropped-caption"), ask("/api/caption", file), current);
    const { sentences } = await ask("/api/annotate?n=5", file);
    if (current()) listSentences($("dropped-sentences"), sentences);
  } catch (problem) {
    if (!current()) return;
    $("dropped").hidden = true;
    fail(problem);
  }
}

async function view(position) {
  if (position < 0 || position >= state.photos.length) return;
  state.open = position;
  look(state.photos[position]);
  $("previous").disabled = position === 0;
  $("next").disabled = position === state.photos.length - 1;
}

async function look(photo) {
  const current = () => $("viewer").open && $("viewer").dataset.id === photo.id;
  $("viewer").dataset.id = photo.id;
  $("viewer-path").textContent = photo.path;
  $("viewer-photo").src = picture(photo.id, "small"); // already loaded; the large one replaces it
  const large = new Image();
  large.onload = () => {
    if (current()) $("viewer-photo").src = large.src;
  };
  large.src = picture(photo.id, "large");
  for (const id of ["viewer-sentences", "viewer-similar", "why-words", "why-components"]) $(id).replaceChildren();
  if (!$("viewer").open) $("viewer").showModal();
  $("viewer").scrollTop = 0;
  caption($("viewer-caption"), ask(`/api/caption?${parameters({ id: photo.id })}`), current);
  $("why").hidden = !state.query;
  const jobs = [
    ask(`/api/annotate?${parameters({ id: photo.id, n: 5 })}`).then(({ sentences }) => {
      if (current()) listSentences($("viewer-sentences"), sentences);
    }),
    ask(`/api/similar?${parameters({ id: photo.id, n: 8 })}`).then(({ photos }) => {
      if (current()) $("viewer-similar").replaceChildren(...photos.map(likeness));
    }),
  ];
  if (state.query) {
    jobs.push(ask(`/api/explain?${parameters({ q: state.query, id: photo.id })}`).then((why) => {
      if (current()) explain(why);
    }));
  }
  for (const result of await Promise.allSettled(jobs)) {
    if (result.status === "rejected" && current()) $("why-words").textContent = result.reason.message;
  }
}

function likeness(photo) {
  const image = make("img");
  image.src = picture(photo.id, "small");
  image.alt = "";
  const button = make("button", "", image);
  button.type = "button";
  button.title = photo.path;
  button.setAttribute("aria-label", `Similar: ${photo.path}`);
  button.addEventListener("click", () => look(photo));
  return make("li", "", button);
}

function explain(why) {
  const most = Math.max(1e-6, ...why.words.map((part) => part.drop));
  $("why-words").replaceChildren(...why.words.map(({ word, drop }) => {
    const chip = make("span", "word", `${word} `, make("small", "", (drop >= 0 ? "+" : "−") + Math.abs(drop).toFixed(3)));
    chip.style.setProperty("--share", Math.max(0, drop / most));
    chip.title = `Without “${word}” the score would be ${percent(why.score - drop)}`;
    return chip;
  }));
  $("why-components").replaceChildren(...why.components.slice(0, 5).map(({ part, near, words }) =>
    make("li", "", make("span", "score", (part >= 0 ? "+" : "−") + Math.abs(part).toFixed(3)),
      make("span", "", words.join(", "), make("span", "near", near.length ? ` · similar words: ${near.join(", ")}` : "")))));
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  search($("query").value);
});
$("file").addEventListener("change", () => {
  useFile($("file").files[0]);
  $("file").value = "";
});
$("close").addEventListener("click", () => $("viewer").close());
$("previous").addEventListener("click", () => view(state.open - 1));
$("next").addEventListener("click", () => view(state.open + 1));
$("more-like-this").addEventListener("click", () => {
  const { id } = $("viewer").dataset;
  $("viewer").close();
  search(`photo:${id}`);
});
$("viewer").addEventListener("click", (event) => {
  if (event.target === $("viewer")) $("viewer").close();
});
$("viewer").addEventListener("close", () => {
  const card = document.querySelectorAll(".photo")[state.open];
  if (card) card.focus();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if ($("viewer").open) {
    if (event.key === "ArrowLeft") view(state.open - 1);
    if (event.key === "ArrowRight") view(state.open + 1);
  } else if (event.key === "/" && event.target !== $("query")) {
    event.preventDefault();
    $("query").select();
  } else if (event.key.startsWith("Arrow")) {
    moveAmongCards(event);
  }
});

function moveAmongCards(event) {
  const cards = [...document.querySelectorAll(".photo")];
  const here = cards.indexOf(document.activeElement);
  if (here < 0) {
    if (event.key === "ArrowDown" && document.activeElement === $("query") && cards.length) {
      event.preventDefault();
      cards[0].focus();
    }
    return;
  }
  const row = cards.filter((card) => card.offsetTop === cards[0].offsetTop).length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row }[event.key];
  event.preventDefault();
  if (here + step < 0) $("query").focus();
  else cards[Math.min(here + step, cards.length - 1)].focus();
}

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

$("examples").append(...EXAMPLES.map((example) => {
  const button = make("button", "quiet", example);
  button.type = "button";
  button.addEventListener("click", () => search(example));
  return button;
}));
ask("/api/health").then(({ photos, folder }) => {
  $("folder").textContent = `${photos.toLocaleString("en")} ${photos === 1 ? "photo" : "photos"} in ${folder}`;
}, () => {});
const asked = new URLSearchParams(location.search).get("q");
if (asked) search(asked);
