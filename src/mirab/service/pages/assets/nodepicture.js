// Nodes as a picture: a tile for each, a cell for each GPU; what is kept or out of use is marked by form, not colour.

import { el, svg } from "/assets/dom.js";
import { count, instant } from "/assets/format.js";
import { path } from "/assets/parts.js";

const WORDS = { i: "idle", m: "partly used", a: "in use", g: "degraded", d: "draining", r: "in repair", x: "down" };
const OUT = "gdrx";
const SIDE = 44;

/** The tiles of a pool, one stop for the tabulator: arrows move inside. `held`: node to the hold on it. */
export function tiles(pool, held) {
  const many = pool.nodes.length;
  const size = many > 400 ? "small" : many > 100 ? "medium" : many > 48 ? "large" : "huge";
  return el("ul", { class: `tiles ${size}`, "aria-label": `Nodes of ${pool.name}; arrow keys move` },
    pool.nodes.map((node, place) => el("li", { "data-key": node[0] }, tile(pool, node, held.get(node[0]), place, size))));
}

function tile(pool, [name, letter, used, jobs], hold, place, size) {
  const told = words(pool, name, letter, used, jobs, hold);
  return el("a", { href: path("nodes", name), tabindex: place ? "-1" : "0", "aria-label": told, title: told },
    picture(pool, letter, used, Boolean(hold)), size === "huge" ? el("span", null, name) : null);
}

function words(pool, name, letter, used, jobs, hold) {
  const parts = [`${name}: ${WORDS[letter]}`];
  if (pool.unit === "GPU") {
    parts.push(`${used} of ${pool.per_node} GPUs in use`);
  }
  if (jobs.length) {
    parts.push(`job${jobs.length === 1 ? "" : "s"} ${jobs.slice(0, 8).join(", ")}`);
  }
  if (hold) {
    parts.push(`kept for ${hold.job ? `job ${hold.job}` : `reservation ${hold.reservation}`} by ${instant(hold.until)}`);
  }
  return parts.join(", ");
}

function picture(pool, letter, used, held) {
  const cells = pool.unit === "GPU" ? [used, pool.per_node] : [used, 2];
  return svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, "aria-hidden": "true", class: OUT.includes(letter) ? "out" : null },
    svg("rect", { class: held ? "frame held" : "frame", x: 1.5, y: 1.5, width: SIDE - 3, height: SIDE - 3, rx: 3 }),
    svg("path", { class: "free", d: grid(cells[0], cells[1], cells[1]) }),
    svg("path", { class: "used", d: grid(0, cells[0], cells[1]) }),
    mark(letter));
}

/** The cells from one number to another as one path, in as square a grid as can be. */
function grid(from, to, all) {
  const least = Math.ceil(Math.sqrt(all));
  const wide = [least, least + 1, least + 2].find((each) => all % each === 0) ?? least;
  const high = Math.ceil(all / wide);
  const inner = SIDE - 11;
  const [stepX, stepY] = [inner / wide, inner / high];
  let drawn = "";
  for (let cell = from; cell < to; cell += 1) {
    const x = 5.5 + (cell % wide) * stepX + 0.75;
    const y = 5.5 + Math.floor(cell / wide) * stepY + 0.75;
    drawn += `M${x.toFixed(1)} ${y.toFixed(1)}h${(stepX - 1.5).toFixed(1)}v${(stepY - 1.5).toFixed(1)}h${(1.5 - stepX).toFixed(1)}z`;
  }
  return drawn;
}

function mark(letter) {
  const lines = {
    g: "M4 40L40 4", d: "M4 40L40 4M4 22L22 4M22 40L40 22", r: "M4 22H40", x: "M4 4L40 40M4 40L40 4",
  }[letter];
  return lines ? svg("path", { class: "mark", d: lines }) : null;
}

const SAMPLES = [
  ["in use", "m", 8, false], ["partly used", "m", 3, false], ["idle", "i", 0, false], ["kept for a job", "m", 4, true],
  ["degraded", "g", 4, false], ["draining", "d", 8, false], ["in repair", "r", 0, false], ["down", "x", 0, false],
];

export function legend() {
  return el("ul", { class: "legend", "aria-label": "How nodes are drawn" }, SAMPLES.map(([word, letter, used, held]) =>
    el("li", null, picture({ unit: "GPU", per_node: 8 }, letter, used, held), word)));
}

export const usedOf = (node) => (node.gpus ? `${count(node.gpus_used)} of ${count(node.gpus)}` : "");
