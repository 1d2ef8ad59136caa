// The tree of folders, with the number of photos in each. Folders inside are drawn when they are shown.

import { $, make } from "./dom.js";

/** From "Pictures", "Pictures/2019" to a tree; a folder without photos of its own is a name on the way. */
function grow(folders) {
  const top = { children: new Map() };
  for (const { name, photos } of folders) {
    let node = top;
    const parts = name.split("/");
    parts.forEach((part, depth) => {
      if (!node.children.has(part)) node.children.set(part, { name: part, path: `/${parts.slice(0, depth + 1).join("/")}`, children: new Map() });
      node = node.children.get(part);
    });
    node.photos = photos;
  }
  return top;
}

/** Show the tree; the folder with the path `chosen` is marked, and the way to it open. */
export function drawFolders(folders, chosen, onChoose) {
  const choose = (path) => {
    $("folders").hidePopover();
    onChoose(path);
  };
  const button = (className, path, ...content) => {
    const made = make("button", className, ...content);
    made.type = "button";
    made.dataset.path = path;
    return made;
  };
  const list = (node) => make("ul", "", ...[...node.children.values()].map((child) => item(child, node.children.size === 1)));
  const item = (node, isOnly) => {
    const name = button("name", node.path, make("span", "", node.name), " ", make("span", "", node.photos?.toLocaleString("en") || ""));
    name.setAttribute("aria-pressed", node.path === chosen);
    name.addEventListener("click", () => choose(node.path));
    if (!node.children.size) return make("li", "", make("div", "", make("span", "toggle"), name));
    const toggle = button("toggle", node.path);
    toggle.setAttribute("aria-label", `Folders in ${node.name}`);
    const made = make("li", "", make("div", "", toggle, name));
    const expand = (open) => {
      toggle.setAttribute("aria-expanded", open);
      toggle.textContent = open ? "▾" : "▸";
      if (open) made.append(list(node));
      else made.querySelector("ul")?.remove();
    };
    toggle.addEventListener("click", () => expand(toggle.getAttribute("aria-expanded") !== "true"));
    expand(chosen.startsWith(`${node.path}/`) || isOnly);
    return made;
  };
  const all = button("name", "", "All folders");
  all.setAttribute("aria-pressed", !chosen);
  all.addEventListener("click", () => choose(""));
  $("folders").replaceChildren(all, list(grow(folders)));
}

// A popover is placed by the page: browsers do not yet agree on how to tie it to its button.
$("folders").addEventListener("beforetoggle", (event) => {
  if (event.newState !== "open") return;
  const box = $("filter-in").getBoundingClientRect();
  $("folders").style.top = `${box.bottom + 4}px`;
  $("folders").style.left = `${Math.max(8, Math.min(box.left, innerWidth - 430))}px`;
});
