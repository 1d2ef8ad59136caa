// The folders of the machine: one is chosen to be added to the library, or to get copies of photos.

import { $, ask, count, make, parameters, toast } from "./dom.js";

const dialog = $("places");
let use = async () => {};

/** Ask for a folder. `onChoose` gets its path; what it raises is shown. */
export function choosePlace(title, action, mayBeNew, onChoose) {
  $("places-title").textContent = title;
  $("place-choose").textContent = action;
  $("place-hint").textContent = mayBeNew ? "Choose a folder, or type its path. The last folder of a path is created if it does not exist." : "Choose a folder, or type its path.";
  use = onChoose;
  dialog.showModal();
  list("");
}

/** The link in the terminal makes this browser the owner's. */
export function explainOwner() {
  toast("Open the link that fishermix serve printed in its terminal: it allows this.");
}

async function list(path) {
  say("");
  try {
    const place = await ask(`/api/places?${parameters({ path })}`);
    $("place-path").value = place.path;
    const up = place.parent === null ? [] : [row("↑ Up", place.parent)];
    $("place-list").replaceChildren(...up, ...place.folders.map(({ name, path: inside }) => row(name, inside)));
    $("place-list").scrollTop = 0;
    $("place-found").textContent = place.photos ? `${count(place.photos, "photo")} in this folder, and what is in the folders inside.` : "";
  } catch (problem) {
    say(problem.message);
  }
}

function row(name, path) {
  const button = make("button", "", name);
  button.type = "button";
  button.title = path;
  button.addEventListener("click", () => list(path));
  return make("li", "", button);
}

function say(message) {
  $("place-problem").textContent = message;
  $("place-problem").hidden = !message;
}

$("place-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  say("");
  $("place-choose").disabled = true;
  try {
    await use($("place-path").value.trim());
    dialog.close();
  } catch (problem) {
    say(problem.message);
  } finally {
    $("place-choose").disabled = false;
  }
});
$("place-open").addEventListener("click", () => list($("place-path").value.trim()));
$("close-places").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
