// What reading does not need: keys, filtering while typing, and a fresh page without flicker. No dependency, no state.
(() => {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const filter = byId("filter");
  const served = new Map(); // what the server said last about each live part: the parts themselves change while people use them

  const lines = () => [...document.querySelectorAll("[data-line]")].filter((line) => !line.hidden);
  const target = (line) => line.querySelector("[data-open]") || line;
  const here = () => lines().findIndex((line) => line.contains(document.activeElement));

  function move(step) {
    const all = lines();
    if (all.length === 0) return;
    const at = here();
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
    target(next).focus();
    next.scrollIntoView({ block: "nearest" });
  }

  function again() {
    const buttons = byId("requeue");
    if (buttons) return buttons.querySelector("button").focus();
    const line = lines()[here()];
    if (line && line.querySelector("[data-open]")) location.assign(target(line).getAttribute("href") + "#requeue");
  }

  function up() {
    const link = document.querySelector("[data-up]");
    if (link) link.click();
  }

  function narrow() {
    if (!filter) return;
    const wanted = filter.value.trim().toLowerCase();
    let shown = 0;
    for (const line of document.querySelectorAll("[data-line]")) {
      line.hidden = wanted !== "" && !line.textContent.toLowerCase().includes(wanted);
      shown += line.hidden ? 0 : 1;
    }
    const nothing = byId("nothing");
    if (nothing) nothing.hidden = shown > 0;
  }

  const KEYS = {
    j: () => move(1),
    k: () => move(-1),
    r: again,
    u: up,
    "/": () => filter && filter.focus(),
    "?": () => byId("help").showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.target === filter && event.key === "Escape") return filter.blur();
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || byId("help").open;
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  // The new part keeps what a person has done to the old one: focus, opened details, the filter.
  function replace(part, fresh) {
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const key = focused && (focused.getAttribute("href") || focused.id);
    const at = focused ? here() : -1;
    const open = [...part.querySelectorAll("details[open]")].map((details) => details.id);
    part.replaceChildren(...fresh.childNodes);
    for (const details of part.querySelectorAll("details")) details.open = open.includes(details.id);
    narrow();
    if (!focused) return;
    const same = [...part.querySelectorAll("a, button, summary, [tabindex]")].find((item) => key && (item.getAttribute("href") || item.id) === key);
    const line = lines()[at];
    (same || (line && target(line)) || byId("main")).focus({ preventScroll: true });
  }

  function swap(page) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (!fresh) return location.reload(); // the page has other parts by now
      const text = fresh.innerHTML;
      if (served.get(part.id) !== text) replace(part, fresh);
      served.set(part.id, text);
    }
    if (page.querySelectorAll("[data-live]").length > document.querySelectorAll("[data-live]").length) location.reload();
  }

  async function refresh() {
    if (document.hidden || byId("help").open || !getSelection().isCollapsed) return;
    try {
      const answer = await fetch(location.pathname + location.search, { cache: "no-store" });
      if (answer.status === 401) return location.reload(); // the session is over: the form to log in
      if (!answer.ok) throw new Error(answer.status);
      swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
      byId("fresh").textContent = "";
    } catch {
      byId("fresh").textContent = "Not up to date: the server does not answer.";
    }
  }

  document.documentElement.classList.add("scripted");
  byId("keys").addEventListener("click", () => byId("help").showModal());
  if (filter) filter.addEventListener("input", narrow);
  // What a button has done is said once, not after each refresh.
  const said = new URLSearchParams(location.search);
  if (said.has("requeued") || said.has("done")) history.replaceState(null, "", location.pathname);
  // Going to the fragment takes the focus away, so it is given afterwards.
  if (location.hash === "#requeue") addEventListener("load", () => setTimeout(again));
  const live = document.querySelectorAll("[data-live]");
  for (const part of live) served.set(part.id, part.innerHTML);
  if (live.length > 0) setInterval(refresh, Number(document.body.dataset.seconds) * 1000);
})();
