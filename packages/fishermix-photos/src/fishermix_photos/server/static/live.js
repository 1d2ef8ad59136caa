// Asks every other second what the server is doing; photos that were added, changed or deleted appear by themselves.

import { $, ask, count, GONE, make } from "./dom.js";

const PAUSE = 1500;
const SECONDS_BETWEEN_FACETS = 5;
let changes = "never";

/** Whether this browser may add folders and copy files: on the server's machine, with the link of the terminal. */
export const mayChange = () => changes === "allowed";

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
      changes = status.changes;
      document.body.classList.toggle("changeable", changes !== "never");
      $("empty").hidden = status.state === "starting" || status.photos > 0 || status.has_folders;
      $("folder").replaceChildren(count(status.photos, "photo"), make("span", "", ` in ${status.folder}`));
      if (version !== -1 && status.version !== version) onChange();
      version = status.version;
      const due = Date.now() - asked > 1000 * SECONDS_BETWEEN_FACETS;
      if (status.state !== "starting" && facetsOf !== version && due) {
        [facetsOf, asked] = [version, Date.now()];
        onFacets();
      }
    } catch (problem) {
      tell(problem.status === 401 ? "You are signed out. Open the link that fishermix serve shows again." : problem.message);
      if (problem.status === GONE) version = -2; // when it is back, the list is asked for again
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

/** "About 3 minutes left", once that can be said. */
function estimate(seconds) {
  if (seconds === null) return "";
  if (seconds < 45) return ", less than a minute left";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `, about ${count(Math.max(1, minutes), "minute")} left` : `, about ${count(Math.round(minutes / 60), "hour")} left`;
}

function draw({ state, message, done, total, problem, seconds_left: left }) {
  if (problem) return tell(problem);
  if (state === "ready" && !total) return tell("");
  // Looking for changes takes a moment only: no message that flickers.
  if (state === "updating" && message.startsWith("Looking")) return tell("");
  tell(total ? `${message}: ${done.toLocaleString("en")} of ${total.toLocaleString("en")}${estimate(left)}` : message);
  $("live-bar").hidden = !total;
  if (total) $("live-bar").value = done / total;
}
