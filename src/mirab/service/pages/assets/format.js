// Numbers, spans and instants as people write them; instants in the reader's zone.

export const ABSENT = "–";
const NARROW = "\u00a0";

export const count = (value) => (value === null || value === undefined ? ABSENT : Math.round(value).toLocaleString("en"));

/** A ratio as a percentage; not quite everything never reads as 100 %, nor a little as 0 %. */
export function percent(ratio, places = 1) {
  if (ratio === null || ratio === undefined) {
    return ABSENT;
  }
  const step = 10 ** -(places + 2);
  if ((ratio > 1 - step && ratio < 1) || (ratio > 0 && ratio < step / 2)) {
    return `${ratio > 0.5 ? ">" : "<"}${((ratio > 0.5 ? 1 - step : step) * 100).toFixed(places)}${NARROW}%`;
  }
  return `${(ratio * 100).toFixed(places)}${NARROW}%`;
}

/** A share: no decimals where they would be zeros. */
export const share = (ratio) => percent(ratio).replace(".0", "");

/** An amount of GPU-hours: no decimals from ten on. */
export function hours(amount) {
  if (amount === null || amount === undefined) {
    return ABSENT;
  }
  return Math.abs(amount) >= 9.5 || Math.abs(amount) < 0.05 ? count(amount) : amount.toFixed(1);
}

export const ratio = (value) => (value === null || value === undefined ? ABSENT : value.toFixed(2));

/** A length of time in the unit that people would use. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) {
    return ABSENT;
  }
  for (const [unit, size, limit] of [["s", 1, 59.5], ["min", 60, 59.5 * 60], ["h", 3600, 47.95 * 3600]]) {
    if (Math.abs(seconds) < limit) {
      return `${short(seconds / size)}${NARROW}${unit}`;
    }
  }
  return `${short(seconds / 86400)}${NARROW}d`;
}

function short(value) {
  const text = value.toFixed(Math.abs(value) >= 9.95 ? 0 : 1);
  return text.replace(/\.0$/, "");
}

export const plural = (number, noun, several) => `${count(number)} ${number === 1 ? noun : (several ?? `${noun}s`)}`;

const two = (number) => String(number).padStart(2, "0");
const sameDay = (a, b) => a.toDateString() === b.toDateString();
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** `14:32`, `tomorrow 09:10`, `3 Dec 09:10`, `3 Dec 2025`: what is needed to know which instant is meant. */
export function instant(iso, seconds = false) {
  const at = new Date(iso);
  const now = new Date();
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
  if (sameDay(at, now)) {
    return clock;
  }
  if (sameDay(at, new Date(now.getTime() + 86400e3))) {
    return `tomorrow ${clock}`;
  }
  if (sameDay(at, new Date(now.getTime() - 86400e3))) {
    return `yesterday ${clock}`;
  }
  const day = `${at.getDate()} ${MONTHS[at.getMonth()]}`;
  return at.getFullYear() === now.getFullYear() ? `${day} ${clock}` : `${day} ${at.getFullYear()}`;
}

export const day = (iso) => `${new Date(iso).getDate()} ${MONTHS[new Date(iso).getMonth()]}`;

const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
export const fullInstant = (iso) => FULL.format(new Date(iso));

export const secondsSince = (iso) => (Date.now() - new Date(iso).getTime()) / 1000;
