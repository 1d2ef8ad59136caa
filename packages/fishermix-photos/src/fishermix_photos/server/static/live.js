// Asks every other second what the server is doing; photos that were added, changed or deleted appear by themselves.

import { $, ask, count } from "./dom.js";

const PAUSE = 1500;
const SECONDS_BETWEEN_FACETS = 5;

export function follow(onChange, onFacets) {
  let version = -1;
  let facetsOf = -1;
  let asked = 0;
  let turn = 0; // only the last caller goes on

  async function look() {
    const mine = ++turn;
    try {
      const status = await ask("/api/status");
      draw(status);
      $("folder").textContent = `${count(status.photos, "photo")} in ${status.folder}`;
      if (version >= 0 && status.version !== version) onChange();
      version = status.version;
      const due = Date.now() - asked > 1000 * SECONDS_BETWEEN_FACETS;
      if (status.state !== "starting" && facetsOf !== version && due) {
        [facetsOf, asked] = [version, Date.now()];
        onFacets();
      }
    } catch (problem) {
      tell(problem.status === 401 ? "You are signed out. Open the link that fishermix serve shows again." : "The server does not respond. Is fishermix serve still running?");
    }
    if (!document.hidden) setTimeout(() => mine === turn && look(), PAUSE);
  }

  document.addEventListener("visibilitychange", () => !document.hidden && look());
  look();
}

function tell(message) {
  $("live-text").textContent = message;
  $("live").hidden = !message;
  $("live-bar").hidden = true;
}

function draw({ state, message, done, total, problem }) {
  if (problem) return tell(problem);
  if (state === "ready") return tell("");
  // Looking for changes takes a moment only: no message that flickers.
  if (state === "updating" && message.startsWith("Looking")) return tell("");
  tell(total ? `${message}: ${done.toLocaleString("en")} of ${total.toLocaleString("en")}` : message);
  $("live-bar").hidden = !total;
  if (total) $("live-bar").value = done / total;
}
