// Shows /status, whatever its shape: scalars as tiles, arrays of objects as
// tables, objects as sections. Of rows that hold tables themselves (upstreams) a
// table shows what an operator looks at first, and the rest opens below it.
// Everything is set as text, never as HTML.
"use strict";

const GOOD = ["healthy", "ok", "ready", "closed", "up", "good", "synced"];
const WARN = ["degraded", "throttled", "half_open", "half-open", "lagging", "syncing", "unknown",
  "unverified", "overspent", "astray"];
const BAD = ["failed", "unhealthy", "open", "down", "out_of_service", "bad", "stalled", "unready",
  "breaker_open", "wrong_chain", "spent"];
// Sections that come before the others.
const FIRST = ["chains", "upstreams"];
// The columns of a table of upstreams, as far as they are there.
const OVERVIEW = ["id", "tier", "condition", "head", "lag_blocks", "latency_ms", "p99_ms_at_most", "in_flight",
  "attempts", "failures", "credits", "held", "last_problem"];
// Rows with fewer of these are something else.
const OVERVIEW_MIN = 6;
const LONG = 28;
const EVERY_MS = 2000;
const DEPTH_MAX = 6;

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isScalar = (value) => value === null || typeof value !== "object";
const title = (key) => key.replaceAll("_", " ");

function node(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function words(value) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return value.every(isScalar) ? value.map(words).join(", ") || "–" : JSON.stringify(value);
  if (typeof value === "object") return Object.entries(value).map(([k, v]) => title(k) + " " + words(v)).join(", ") || "–";
  if (typeof value === "number" && !Number.isInteger(value)) return String(Math.round(value * 1000) / 1000);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

function colour(value) {
  if (value === null || value === undefined) return "faint";
  if (typeof value !== "string") return "";
  const word = value.toLowerCase();
  if (GOOD.includes(word)) return "good";
  if (WARN.includes(word)) return "warn";
  return BAD.includes(word) ? "bad" : "";
}

function tiles(entries) {
  const list = node("dl");
  for (const [key, value] of entries) {
    const tile = node("div");
    tile.append(node("dt", title(key)), node("dd", words(value), colour(value)));
    list.append(tile);
  }
  return list;
}

function table(rows) {
  const names = [...new Set(rows.flatMap(Object.keys))];
  const head = node("tr");
  for (const name of names) {
    const cell = node("th", title(name));
    cell.scope = "col";
    head.append(cell);
  }
  const body = node("tbody");
  for (const row of rows) {
    const line = node("tr");
    for (const name of names) {
      const value = row[name];
      const number = typeof value === "number" ? " number" : "";
      const long = words(value).length > LONG ? " long" : "";
      const cell = node("td", undefined, (colour(value) + number + long).trim());
      cell.dataset.name = title(name);
      cell.append(node("span", words(value)));
      line.append(cell);
    }
    body.append(line);
  }
  const whole = node("table");
  const thead = node("thead");
  thead.append(head);
  whole.append(thead, body);
  const scroll = node("div", undefined, "scroll");
  scroll.append(whole);
  return scroll;
}

function overview(rows) {
  const picked = rows.map((row) => Object.fromEntries(OVERVIEW.filter((name) => name in row).map((name) => [name, row[name]])));
  return picked.length && picked.every((row) => Object.keys(row).length >= OVERVIEW_MIN) ? table(picked) : null;
}

// What was opened stays open when the page is drawn again.
const opened = new Set();

function folded(path, name, row, depth) {
  const fold = node("details");
  fold.open = opened.has(path);
  fold.addEventListener("toggle", () => { if (fold.open) opened.add(path); else opened.delete(path); });
  fold.append(node("summary", "all of " + name));
  show(fold, row, depth, path);
  return fold;
}

function rank(key) {
  const at = FIRST.indexOf(key);
  return at < 0 ? FIRST.length : at;
}

function show(into, value, depth, path) {
  if (depth > DEPTH_MAX || !isObject(value)) {
    into.append(node("p", isScalar(value) ? words(value) : JSON.stringify(value)));
    return;
  }
  const entries = Object.entries(value);
  const flat = entries.filter(([, v]) => isScalar(v) || (Array.isArray(v) && v.every(isScalar)));
  if (flat.length) into.append(tiles(flat));
  const sections = entries.filter((entry) => !flat.includes(entry)).sort(([a], [b]) => rank(a) - rank(b));
  for (const [key, inner] of sections) {
    const section = node("section");
    section.append(node("h" + Math.min(4, depth + 2), title(key)));
    const here = path + "/" + key;
    const rows = Array.isArray(inner) && inner.every(isObject);
    // A row that holds rows itself (a chain and its upstreams) gets a section.
    const simple = rows && inner.every((row) => !Object.values(row).some((v) => Array.isArray(v) && v.some(isObject)));
    const first = rows && overview(inner);
    if (first) section.append(first, ...inner.map((row, index) => {
      const name = row.name ?? row.id ?? index + 1;
      return folded(here + "/" + name, name, row, depth + 1);
    }));
    else if (simple) section.append(table(inner));
    else if (rows) inner.forEach((row, index) => show(section, { [row.name ?? row.id ?? index + 1]: row }, depth + 1, here));
    else show(section, inner, depth + 1, here);
    into.append(section);
  }
}

let paused = false;
let shownAt = 0;
let shown = "";

// The token stays in this tab: no cookie, nothing on disk. The links of the page cannot send it.
const TOKEN = "wellhead-admin-token";
const token = () => sessionStorage.getItem(TOKEN);

function ask(path) {
  const headers = token() ? { authorization: "Bearer " + token() } : {};
  return fetch(path, { headers, credentials: "same-origin", cache: "no-store" });
}

function showLogin(asks, why) {
  document.getElementById("login").hidden = !asks;
  document.getElementById("refused").textContent = why;
  document.getElementById("forget").hidden = !token();
  document.getElementById("links").hidden = asks || Boolean(token());
  if (asks) {
    document.getElementById("status").replaceChildren();
    shown = "";
  }
}

document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = document.getElementById("token");
  const given = input.value.trim();
  input.value = "";
  // Other characters cannot be sent in a header.
  if (/[^\x21-\x7e]/.test(given)) return showLogin(true, "a token has visible ASCII characters alone");
  sessionStorage.setItem(TOKEN, given);
  refresh();
});

document.getElementById("forget").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  showLogin(true, "");
});

async function refresh() {
  const pill = document.getElementById("ready");
  try {
    // Until there is a token, nothing more is asked for than whether it is ready.
    const waits = !document.getElementById("login").hidden && !token();
    const [ready, status] = await Promise.all([ask("readyz"), waits ? null : ask("status")]);
    if (!status) {
      pill.textContent = ready.ok ? "ready" : "not ready";
      pill.className = "pill " + (ready.ok ? "good" : "bad");
      return;
    }
    if (status.status === 401 || status.status === 403) {
      const why = token() ? (await status.json()).error : "";
      if (status.status === 401) sessionStorage.removeItem(TOKEN);
      showLogin(true, why);
    } else {
      showLogin(false, "");
    }
    pill.textContent = ready.ok ? "ready" : "not ready";
    pill.className = "pill " + (ready.ok ? "good" : "bad");
    if (!status.ok) return;
    const text = await status.text();
    shownAt = Date.now();
    // Unchanged text is not drawn again, so that a selection survives.
    if (text !== shown) {
      const fresh = document.createDocumentFragment();
      show(fresh, JSON.parse(text), 0, "");
      const scrolled = [...document.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
      document.getElementById("status").replaceChildren(fresh);
      document.querySelectorAll(".scroll").forEach((box, index) => { box.scrollLeft = scrolled[index] ?? 0; });
      shown = text;
    }
  } catch {
    pill.textContent = "no answer";
    pill.className = "pill bad";
  }
}

function age() {
  const seconds = Math.round((Date.now() - shownAt) / 1000);
  document.getElementById("age").textContent = shownAt ? "as of " + seconds + " s ago" : "";
}

document.getElementById("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", String(paused));
  event.target.textContent = paused ? "resume" : "pause";
});

async function follow() {
  if (!paused && !document.hidden) await refresh();
  setTimeout(follow, EVERY_MS);
}
setInterval(age, 1000);
follow();
