// The years at the edge of the list of all photos: where the list is, and the way to another year.

import { $, count, make, when } from "./dom.js";

const FEWEST_OF_A_SECTION = 12; // photos: months with fewer share a section with the next ones of the year

/** The years of the list in its order, with the position of each one's first photo. `onJump` goes to a position. */
export function drawYears(years, onJump) {
  let position = 0;
  const made = years.map(({ name, photos }) => {
    const [first, button] = [position, make("button", "", name || "no date")];
    position += photos;
    button.type = "button";
    button.dataset.year = name;
    button.title = count(photos, "photo");
    button.addEventListener("click", () => onJump(first));
    return button;
  });
  $("years").hidden = made.length < 2;
  document.body.classList.toggle("timeline", made.length >= 2);
  $("years").replaceChildren(...made);
}

/** The month of a photo with a date of its own; the time of a file may be that of a copy. */
const monthOf = (photo) => (photo && photo.taken_from !== "file" && photo.taken?.slice(0, 7)) || "";

/** Mark the year of the photo at the top of the window. */
export function markYear(photo) {
  const year = monthOf(photo).slice(0, 4);
  for (const button of $("years").children) button.setAttribute("aria-current", button.dataset.year === year);
}

/** The sections of photos in the order of their dates: the name and the heading of each photo's section. */
export function byMonth(photos) {
  const groups = [];
  const groupOf = new Map();
  for (const photo of photos) {
    const month = monthOf(photo);
    let group = groups.at(-1);
    const isFull = group?.size >= FEWEST_OF_A_SECTION && month !== group.last;
    if (!group || isFull || month.slice(0, 4) !== group.last.slice(0, 4)) {
      group = { name: `${groups.length} ${month}`, first: month, size: 0 };
      groups.push(group);
    }
    group.last = month;
    group.size += 1;
    groupOf.set(photo.id, group);
  }
  return ({ id }) => [groupOf.get(id).name, headingOf(groupOf.get(id))];
}

function headingOf({ first, last }) {
  if (!first) return "No date";
  const [from, to] = [first, last].sort().map((month) => when(`${month}-01T00:00:00`, "month"));
  return from === to ? from : `${from.split(" ")[0]} – ${to}`;
}
