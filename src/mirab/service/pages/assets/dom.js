// Elements out of values, and a tree brought up to date without losing focus, scrolling or what is folded open.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes that are null, undefined or false are left out; true stands without a value. */
export function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of a picture. */
export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) {
      append(node, child);
    } else if (child !== null && child !== undefined && child !== false && child !== "") {
      node.append(child);
    }
  }
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

/** Make `old` what `fresh` is, touching only what differs. What the reader changed (open, typed) stays. */
export function morph(old, fresh) {
  if (!alike(old, fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) {
      old.data = fresh.data;
    }
    return;
  }
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

const KEPT = { DETAILS: ["open"], INPUT: ["value", "checked"], A: ["tabindex"] };

function morphAttributes(old, fresh) {
  const kept = KEPT[old.nodeName.toUpperCase()] ?? [];
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !kept.includes(name)) {
      old.removeAttribute(name);
    }
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !kept.includes(name)) {
      old.setAttribute(name, value);
    }
  }
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) {
    if (keyOf(child) !== null) {
      keyed.set(keyOf(child), child);
    }
  }
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const found = key === null ? place : keyed.get(key);
    if (found && alike(found, wanted)) {
      if (found === place) {
        place = place.nextSibling;
      } else {
        old.insertBefore(found, place);
      }
      morph(found, wanted);
    } else {
      old.insertBefore(wanted, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}
