// Asking the service, logging in to it, and hearing when something has happened.

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** An answer that is an error: `status` 0 = the service cannot be reached. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Ask for something. Values of `query` that are empty are left out; lists are repeated. */
export async function get(path, query = {}) {
  const address = new URL(`/api/v1/${path}`, location.origin);
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") {
        address.searchParams.append(name, each);
      }
    }
  }
  return (await asked(address, { headers: { "X-Time-Zone": ZONE ?? "" } })).json();
}

/** The same, or null where there is nothing of that kind, or the reader may not see it. */
export async function getIfThere(path, query) {
  try {
    return await get(path, query);
  } catch (problem) {
    if (problem instanceof Problem && [403, 404, 405, 503].includes(problem.status)) {
      return null;
    }
    throw problem;
  }
}

/** Who is looking; a `Problem` of 401 if nobody has logged in. */
export async function whoIsThere() {
  const { me } = await get("session");
  if (me === null) {
    throw new Problem(401, "");
  }
  return me;
}

/** The token becomes a cookie that no script can read; it is kept nowhere else. */
export async function logIn(token) {
  return (await asked("/api/v1/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } })).json();
}

export async function logOut() {
  await asked("/api/v1/session", { method: "DELETE" });
}

async function asked(address, options) {
  let answer;
  try {
    answer = await fetch(address, { credentials: "same-origin", redirect: "error", ...options });
  } catch {
    throw new Problem(0, "The service does not answer. This page goes on trying.");
  }
  if (!answer.ok) {
    throw new Problem(answer.status, await detailOf(answer));
  }
  return answer;
}

async function detailOf(answer) {
  try {
    return (await answer.json()).detail;
  } catch {
    return `The service answered with ${answer.status}.`;
  }
}

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30000;

/** A stream of events while the page is looked at. `onNews`: something was decided; `onState`: "live" or "lost". */
export class Stream {
  constructor(onNews, onState) {
    this.onNews = onNews;
    this.onState = onState;
    this.source = null;
    this.pause = FIRST_PAUSE;
    this.timer = null;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
  }

  /** A browser allows few connections to one address, so a page that nobody sees gives its own back. */
  open() {
    if (this.source !== null || document.hidden) {
      return;
    }
    clearTimeout(this.timer);
    const source = (this.source = new EventSource("/api/v1/events"));
    source.onopen = () => {
      this.pause = FIRST_PAUSE;
      this.onState("live");
      this.onNews();
    };
    source.addEventListener("decision", () => this.onNews());
    source.onerror = () => {
      this.close();
      this.onState("lost");
      this.timer = setTimeout(() => this.open(), this.pause * (0.75 + Math.random() / 2));
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
    };
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }
}
