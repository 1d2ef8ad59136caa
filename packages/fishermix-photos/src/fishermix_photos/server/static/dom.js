// Small helpers. All text from the service goes through textContent or attributes: nothing that comes from a photo is
// ever markup.

export const $ = (id) => document.getElementById(id);

export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

export const GONE = 0; // the status if there is no response

export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refusal(GONE, "The server does not respond. Is fishermix serve still running?");
  }
  if (response.status === 204) return {};
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const detail = Array.isArray(answer.detail) ? answer.detail.map((part) => part.msg).join("; ") : answer.detail;
    throw new Refusal(response.status, detail || `The server responded with status ${response.status}.`);
  }
  return answer;
}

/** Send a file, or JSON. */
export const send = (path, body) => ask(path, { method: "POST", body, headers: typeof body === "string" ? { "Content-Type": "application/json" } : {} });

/** The parameters of a URL, without the empty ones. */
export function parameters(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value != null)).toString();
}

export const picture = (photo, size) => `/api/photos/${photo.id}?${parameters({ size, v: photo.version })}`;
export const original = (photo, download) => `/api/photos/${photo.id}/original${download ? "?download=true" : ""}`;
export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

export function clock(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** "July 2019" or "14 July 2019, 12:30" of YYYY-MM-DDTHH:MM:SS, which is local time where the photo was taken. */
export function when(taken, style) {
  if (!taken) return "";
  const date = new Date(`${taken}Z`);
  const day = style === "month" ? { month: "long", year: "numeric" } : { day: "numeric", month: "long", year: "numeric", hour: "2-digit", minute: "2-digit" };
  return date.toLocaleString("en-GB", { ...day, timeZone: "UTC" });
}

export function size(bytes) {
  return bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

let hide = 0;
/** A short message that goes away. */
export function toast(message) {
  (document.querySelector("dialog[open]") || document.body).append($("toast")); // a dialog hides what is outside of it
  $("toast").textContent = message;
  $("toast").classList.add("on");
  clearTimeout(hide);
  hide = setTimeout(() => $("toast").classList.remove("on"), 3500);
}

/** Copy text; pages that come over plain HTTP from another machine have no clipboard of their own. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", "unseen");
    area.value = text;
    (document.querySelector("dialog[open]") || document.body).append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) return toast("The browser did not allow copying.");
  }
  toast(`Copied ${what}.`);
}
