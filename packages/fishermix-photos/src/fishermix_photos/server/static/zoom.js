// Zoom in the viewer: the wheel, a double click, the button, + and -. A photo that is larger than its frame follows the pointer.

import { $, original } from "./dom.js";

const MOST = 8;
const STEP = 1.5;
const CLOSER = 2.5; // a double click
const frame = $("viewer").querySelector(".frame");
const image = $("viewer-photo");
const zoom = { scale: 1, x: 0, y: 0, photo: null, held: null };

export const isZoomed = () => zoom.scale > 1;

/** Show a photo as a whole. */
export function reset(photo = zoom.photo) {
  Object.assign(zoom, { scale: 1, x: 0, y: 0, photo, held: null });
  draw();
}

function draw() {
  const [across, down] = [(frame.clientWidth * (zoom.scale - 1)) / 2, (frame.clientHeight * (zoom.scale - 1)) / 2];
  zoom.x = Math.max(-across, Math.min(across, zoom.x));
  zoom.y = Math.max(-down, Math.min(down, zoom.y));
  image.style.transform = isZoomed() ? `translate(${zoom.x}px, ${zoom.y}px) scale(${zoom.scale})` : "";
  frame.classList.toggle("zoomed", isZoomed());
  $("zoom").setAttribute("aria-pressed", isZoomed());
}

/** Zoom; the point of the photo at a place of the window, or its middle, stays where it is. */
export function zoomBy(factor, at) {
  if (image.hidden) return;
  const box = frame.getBoundingClientRect();
  const [x, y] = at ? [at.clientX - box.left - box.width / 2, at.clientY - box.top - box.height / 2] : [0, 0];
  const scale = Math.max(1, Math.min(MOST, zoom.scale * factor));
  const ratio = scale / zoom.scale;
  Object.assign(zoom, { scale, x: x - (x - zoom.x) * ratio, y: y - (y - zoom.y) * ratio });
  if (scale > 1) sharpen(zoom.photo);
  draw();
}

/** The original has more pixels than what is shown first. */
function sharpen(photo) {
  if (!photo.playable || photo.kind === "video" || photo.page || image.dataset.sharp) return;
  image.dataset.sharp = "loading";
  const whole = new Image();
  whole.onload = () => {
    if (zoom.photo === photo) image.src = whole.src;
  };
  whole.src = original(photo);
}

export const zoomIn = () => zoomBy(STEP);
export const zoomOut = () => zoomBy(1 / STEP);
export const toggleZoom = (at) => (isZoomed() ? reset() : zoomBy(CLOSER, at));

frame.addEventListener("wheel", (event) => {
  if (image.hidden || event.ctrlKey) return;
  event.preventDefault();
  zoomBy(Math.exp(-event.deltaY / 400), event);
}, { passive: false });
image.addEventListener("dblclick", (event) => toggleZoom(event));
image.addEventListener("dragstart", (event) => event.preventDefault());
image.addEventListener("pointerdown", (event) => {
  if (!isZoomed()) return;
  zoom.held = { x: event.clientX - zoom.x, y: event.clientY - zoom.y };
  image.setPointerCapture(event.pointerId);
});
image.addEventListener("pointermove", (event) => {
  if (!zoom.held) return;
  Object.assign(zoom, { x: event.clientX - zoom.held.x, y: event.clientY - zoom.held.y });
  draw();
});
for (const end of ["pointerup", "pointercancel"]) image.addEventListener(end, () => (zoom.held = null));
$("zoom").addEventListener("click", () => toggleZoom());
addEventListener("resize", () => isZoomed() && draw());
