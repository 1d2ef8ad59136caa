// How a query was understood, in words: a sentence for each note of the server, and what may be searched for instead.

import { make } from "./dom.js";
import { go } from "./route.js";

const photos = (count) => `${count.toLocaleString("en")} ${count === 1 ? "photo" : "photos"}`;
const asWords = "Search for the words instead";

function period(meaning) {
  const [first, last] = meaning.split("/");
  if (first === last) return `on ${first}`;
  return [first && `from ${first}`, last && `until ${last}`].filter(Boolean).join(" ");
}

function years(meaning) {
  const [first, last] = meaning.split("/");
  return first === last ? first : `${first} to ${last}`;
}

function unknown(names) {
  const quoted = names.map((name) => `'${name}'`);
  const last = quoted.pop();
  return quoted.length ? `${quoted.join(", ")} and ${last} are not English words that the model knows.` : `${last} is not an English word that the model knows.`;
}

// Of each kind of note: what is said, the text of the button that searches for its suggestion, and what follows it.
const SENTENCES = {
  date: ({ name, meaning }) => [`'${name}' was read as a date: only photos taken ${period(meaning)}.`, asWords],
  several_dates: () => ["A query can have one date, or one range such as 2018 to 2020. These dates were not read."],
  no_such_date: ({ name, meaning }) => meaning
    ? [`'${name}' is not a day of the calendar.`, `Search for ${meaning} instead`]
    : [`'${name}' was not read as a date: there is no such day, or it is in the future. Write 2019, 2019-07 or 2019-07-14.`],
  undated: () => ["Only photos without a date of their own."],
  left_out: ({ count }) => [`Skipped ${photos(count)} without a date of their own.`, "Search them"],
  corrected: ({ name, meaning }) => [`Showing results for ${meaning}.`, `Search instead for ${name}`],
  excluded: ({ meaning }) => [`Searching for: ${meaning}.`, asWords],
  required: ({ name, meaning, count }) => [`Only photos ${meaning === "text" ? "with the name or text" : "named"} '${name}': ${count.toLocaleString("en")}.`, "Search all photos for these words"],
  preferred: ({ name, count }) => [`Photos named '${name}' come first: ${count.toLocaleString("en")}.`],
  written: ({ name, count }) => [`Photos with the text '${name}' come first: ${count.toLocaleString("en")}.`],
  country: ({ meaning }) => [`Only photos taken in ${meaning}.`],
  near: ({ name, meaning }) => [`Only photos taken within ${meaning} km of ${name}.`],
  ignored: ({ names }) => [unknown(names)],
  guessed: ({ names }) => [unknown(names)],
  month: ({ name }) => [`To search for the photos of a month, add its year: ${name} 2024.`],
  no_coordinates: ({ count }) => [`${count === 1 ? "The only photo here has no" : `None of the ${photos(count)} here has`} coordinates, so no place can be searched.`],
  none_near: ({ name, meaning, count }) => [`None of the ${photos(count)} with coordinates is near ${name}.${meaning ? ` Places: ${meaning}.` : ""}`],
  no_folder: ({ name, meaning }) => [`There is no folder called '${name}'. Folders: ${meaning}.`],
  no_camera: ({ name }) => [`No photo here was taken with a camera called '${name}'.`],
  no_kind: ({ name, meaning }) => [`There are no ${name} files here. Kinds: ${meaning}.`],
  none_undated: () => ["All photos here have a date of their own."],
  none_then: ({ meaning }) => [meaning ? `No photo here is from that time: their dates are from ${years(meaning)}.` : "No photo here has a date of its own."],
  similar_word: ({ name, meaning }) => ["Did you mean", meaning, ` instead of ${name}?`],
};

/** The notes with one in place of all about unknown words. */
function joinUnknown(notes) {
  const joined = [];
  for (const note of notes) {
    const first = ["ignored", "guessed"].includes(note.kind) && joined.find(({ kind }) => kind === note.kind);
    if (first) first.names.push(note.name);
    else joined.push({ ...note, names: [note.name] });
  }
  return joined;
}

/** Notes as elements; one with a suggestion ends with a button that searches for it. */
export function drawNotes(notes) {
  return joinUnknown(notes).filter((note) => SENTENCES[note.kind]).map((note) => {
    const [said, offer, end] = SENTENCES[note.kind](note);
    if (!offer || !note.suggestion) return make("span", "", end ? `${said} ${offer}${end} ` : `${said} `);
    const button = make("button", "", offer);
    button.type = "button";
    button.addEventListener("click", () => go({ q: note.suggestion, photo: "" }));
    return make("span", "", `${said} `, button, `${end || "."} `);
  });
}
