// The form that asks for a token.

import { logIn, Problem } from "/assets/api.js";
import { el } from "/assets/dom.js";

export function loginView(why) {
  return el("div", { class: "login" },
    el("h1", null, "Log in"),
    el("p", null, "Paste your token: it begins with ", el("code", null, "mirab_"), ". An administrator makes one with ",
      el("code", null, "mirab token create"), "."),
    el("form", { "data-login": true, method: "post" },
      el("div", { class: "field" },
        el("label", { for: "token" }, "Token"),
        el("input", { id: "token", name: "token", type: "password", autocomplete: "off", required: true,
          spellcheck: "false", "aria-describedby": "login-problem" })),
      el("button", { type: "submit" }, "Log in")),
    el("p", { class: "problem", id: "login-problem", role: "alert" }, why),
    el("p", { class: "soft" }, "The token is not kept. Your browser gets a cookie that only reads, that no script can see, ",
      "and that ends with the browser, after a week, or when the token is revoked."));
}

/** Whether it worked; if not, the form says why. */
export async function loginSent(form) {
  const problem = document.getElementById("login-problem");
  problem.textContent = "";
  try {
    await logIn(form.elements.token.value.trim());
    form.elements.token.value = "";
    return true;
  } catch (error) {
    if (!(error instanceof Problem)) {
      throw error;
    }
    problem.textContent = error.message;
    form.elements.token.focus();
    return false;
  }
}
