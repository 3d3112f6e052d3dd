"use strict";
(() => {
  const $ = (id) => document.getElementById(id);

  // Times: the server sends exact ones, the reader wants relative ones.
  const rough = (seconds) => {
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  };
  const writeTimes = (root) => {
    const now = Date.now();
    for (const element of root.querySelectorAll("time[datetime]")) {
      const seconds = (now - Date.parse(element.dateTime)) / 1000;
      const past = "until" in element.dataset ? "now" : `${rough(Math.max(seconds, 0))} ago`;
      const relative = seconds >= 0 ? past : `in ${rough(-seconds)}`;
      const text = "exact" in element.dataset ? element.title : relative;
      if (element.textContent !== text) element.textContent = text;
    }
  };
  setInterval(() => { if (!document.hidden) writeTimes(document); }, 1000);
  document.addEventListener("visibilitychange", () => writeTimes(document));
  // A touch screen shows no titles, so a time that is tapped becomes the exact one, and the relative one again.
  document.addEventListener("click", (event) => {
    const time = event.target.closest("time[title]");
    if (!time) return;
    time.toggleAttribute("data-exact");
    writeTimes(time.parentElement);
  });

  // The search of the overview hides rows at once; the button asks the server. The server also finds what no row shows, such as the
  // message of an application that is well, so rows that it has found stay.
  const search = $("q");
  const hideRows = () => {
    if (!search) return;
    const words = (text) => text.trim().toLowerCase();
    const text = words(search.value);
    const shows = (row) => {
      const group = row.parentElement.id;
      const repository = group.startsWith("r-") ? group.slice(2) : "";
      return `${row.textContent} ${repository}`.toLowerCase().includes(text);
    };
    for (const row of document.querySelectorAll("table.rows tbody tr:not(.group)")) {
      row.hidden = text !== words(search.defaultValue) && !shows(row);
    }
  };
  if (search) search.addEventListener("input", hideRows);

  // The sentence after an action is of this visit only: neither of a bookmark nor of a page that is loaded again.
  if ($("done")) {
    const place = new URL(location.href);
    place.searchParams.delete("did");
    history.replaceState(null, "", place);
  }
  // A change that comes later than this is of something else.
  const ownChanges = 10000;

  // Changes of the page.
  const state = $("fresh");
  const say = (text, kind) => {
    if (!state) return;
    if (state.textContent !== text) state.textContent = text;
    state.className = `badge ${kind}`;
  };
  const identity = (element) =>
    element && (element.id ? `#${CSS.escape(element.id)}`
      : element.getAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null);
  const element = (html) => {
    // A row is only parsed as one inside a table.
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };
  // The stream of the page, from the version on that the page has.
  const version = document.body.dataset.version;
  const url = new URL(location.href);
  url.searchParams.set("v", version);
  url.hash = "";
  const apply = (change) => {
    if (performance.now() > ownChanges) $("done")?.remove();
    const focused = document.activeElement;
    const within = focused && focused !== document.body ? focused.closest("[id]") : null;
    const key = identity(focused);
    const opened = [...document.querySelectorAll("details[open][id]")].map((it) => it.id);
    const fresh = new Map();
    for (const [id, html] of Object.entries(change.parts)) {
      const next = element(html);
      if (!next) continue;
      const old = $(id);
      if (old) old.replaceWith(next); else fresh.set(id, next);
      writeTimes(next);
    }
    const lists = change.lists;
    // The agent does not know which lists this page has: those that it does not name are gone.
    if (change.whole) for (const list of document.querySelectorAll("tbody[id]")) lists[list.id] ??= [];
    for (const [id, rows] of Object.entries(lists)) {
      const list = $(id);
      // A new repository: the frame of the page has changed.
      if (!list && rows.length > 0) { location.reload(); return; }
      let last = null;
      for (const rowId of rows) {
        const row = $(rowId) || fresh.get(rowId);
        if (!row) continue;
        const place = last ? last.nextSibling : list.firstChild;
        if (row !== place) list.insertBefore(row, place);
        last = row;
      }
    }
    // A row that is in no list any more.
    const listed = new Set(Object.values(lists).flat());
    for (const id of Object.keys(lists)) {
      const list = $(id);
      if (!list) continue;
      for (const row of [...list.children]) if (!listed.has(row.id)) row.remove();
    }
    for (const id of opened) { const it = $(id); if (it) it.open = true; }
    if (within && key && !document.contains(focused)) {
      const again = document.querySelector(key);
      if (again) again.focus({ preventScroll: true });
    }
    if (change.title) document.title = `${change.title} · Driftless`;
    url.searchParams.set("v", change.version);
    hideRows();
  };
  if (version && "EventSource" in window) {
    // The agent sends something every 15 seconds; a stopped agent and a cut network end nothing.
    const overdue = 40000;
    let source = null, heard = Date.now(), opened = 0;
    const hear = () => { heard = Date.now(); say("live", "good"); };
    const lose = () => say(`no answer since ${new Date(heard).toISOString().slice(11, 19)} UTC`, "bad");
    // A proxy that logs people in leads to another host, which a script may not read.
    const page = () =>
      fetch(location.href, { headers: { accept: "text/html" }, redirect: "manual" }).catch(() => null);
    const refused = async () => {
      const answer = await page();
      // The session has ended: the form to log in. Or what the page shows is gone: a page that says so. A proxy may answer with
      // 404 too while the agent restarts, but not with a page of the agent.
      const isGone = answer?.status === 404 && (await answer.text().catch(() => "")).includes('id="fresh"');
      // The session at a proxy has ended, and only a person can begin the next one. The page was loaded with it, so one that was
      // loaded just now stays: a proxy that refuses scripts would have it loaded again and again.
      const isOfProxy = answer?.type === "opaqueredirect" || answer?.status === 403;
      const isEnded = isOfProxy && performance.now() > 60000;
      if (answer?.status === 401 || isGone || isEnded) { location.reload(); return; }
      setTimeout(() => { if (source?.readyState === EventSource.CLOSED) open(); }, 5000);
    };
    const close = () => { source?.close(); source = null; };
    const open = () => {
      close();
      // A browser opens six connections to a host, and each stream takes one.
      if (document.hidden) return;
      opened = Date.now();
      source = new EventSource(url);
      source.addEventListener("open", hear);
      source.addEventListener("alive", hear);
      source.addEventListener("change", (message) => { hear(); apply(JSON.parse(message.data)); });
      source.addEventListener("error", () => {
        lose();
        // A refusal ends the stream for good, for example while the agent restarts behind a proxy.
        if (source?.readyState === EventSource.CLOSED) refused();
      });
    };
    setInterval(() => {
      if (source && Date.now() - Math.max(heard, opened) > overdue) { lose(); open(); }
    }, 1000);
    document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
    // The title of a tab in the background has the number of failures, but not that of logs.
    setInterval(async () => {
      const answer = document.hidden && !$("log") ? await page() : null;
      const text = answer?.ok ? await answer.text().catch(() => "") : "";
      if (document.hidden && text) document.title = new DOMParser().parseFromString(text, "text/html").title;
    }, 60000);
    window.addEventListener("pagehide", close);
    open();
    // A page from the browser's history has closed its stream.
    window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  }

  // Logs: follow and search.
  const log = $("log");
  if (log) {
    const find = $("find"), follow = $("follow"), logState = $("log-state");
    const filter = (line) => {
      const text = find.value.trim().toLowerCase();
      line.hidden = text !== "" && !line.textContent.toLowerCase().includes(text);
    };
    let status = "";
    const report = () => {
      const isNone = find.value.trim() !== "" && [...log.children].every((line) => line.hidden);
      const none = isNone ? `none of these ${log.children.length} lines has this text` : "";
      const text = [status, none].filter((part) => part !== "").join(" · ");
      if (logState.textContent !== text) logState.textContent = text;
    };
    const tell = (text) => { status = text; report(); };
    find.addEventListener("input", () => { for (const line of log.children) filter(line); report(); });
    find.form.addEventListener("submit", (event) => { if (document.activeElement === find) event.preventDefault(); });
    const most = 5000;
    let running = null;
    // As the server writes lines: without the escape sequences of terminals, and with a mark for each letter that is no text.
    const escapes = /\u001b(?:\[[ -?]*[@-~]?|\][^\u0000-\u001f\u007f-\u009f]*(?:\u0007|\u001b\\)|[ -/]*[0-~]?)/g;
    const unprintable = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
    const plain = (text) => text.replace(escapes, "").replace(/\r$/, "").replace(unprintable, "\ufffd");
    const add = (text) => {
      const line = document.createElement("span");
      line.textContent = `${plain(text)}\n`;
      filter(line);
      log.append(line);
      while (log.children.length > most) log.firstElementChild.remove();
      return line;
    };
    // The start of the run that prints now, by the stream of changes of the page.
    const started = () => $("run")?.dataset.started;
    const wait = (time) => new Promise((next) => { setTimeout(next, time); });
    const pauses = { first: 3000, longest: 60000 };
    const read = async (signal, seen) => {
      const place = new URL(log.dataset.follow, location.href);
      seen.page = started();
      if (seen.isRead) place.searchParams.set("tail", most);
      // A proxy may answer with a page to log in, or lead to one.
      const answer = await fetch(place, { signal, redirect: "error" });
      if (!answer.ok || !answer.headers.get("content-type")?.startsWith("text/plain")) {
        const error = new Error(answer.ok ? "no output but a page came" : `the agent answers ${answer.status}`);
        error.isFinal = [401, 403].includes(answer.status);
        throw error;
      }
      // The answer names the run of its lines: the stream of the page may bring it later.
      const run = answer.headers.get("driftless-started") ?? seen.page ?? seen.run;
      const isNext = run !== seen.run;
      // The stream begins with the lines of this run that are there, also after a break.
      const shown = [...log.children];
      const again = isNext ? [] : shown.slice(shown.indexOf(seen.mark) + 1);
      seen.isRead = true;
      tell("following");
      if (isNext) seen.mark = add("— the container was started again —");
      seen.run = run;
      seen.pause = pauses.first;
      const show = (lines) => {
        const top = log.scrollTop, atEnd = top + log.clientHeight >= log.scrollHeight - 40;
        for (const line of again.splice(0)) line.remove();
        lines.forEach(add);
        report();
        log.scrollTop = atEnd ? log.scrollHeight : top;
      };
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        show(lines);
      }
      // A last line without an end. After an error, it is read again.
      if (rest) show([rest]);
    };
    // Runs that have ended cannot be followed.
    follow?.addEventListener("change", async () => {
      running?.abort();
      running = null;
      if (!follow.checked) { tell(""); return; }
      running = new AbortController();
      const { signal } = running;
      const seen = { run: started(), page: undefined, mark: null, isRead: false, pause: pauses.first };
      tell("following");
      log.scrollTop = log.scrollHeight;
      while (!signal.aborted) {
        try {
          await read(signal, seen);
          tell("the output has ended");
          while (!signal.aborted && [undefined, seen.run, seen.page].includes(started())) await wait(1000);
        } catch (error) {
          if (signal.aborted) return;
          if (error.isFinal) {
            tell(error.message);
            follow.checked = false;
            running = null;
            return;
          }
          tell(`${error.message}; trying again`);
          do await wait(seen.pause); while (document.hidden && !signal.aborted);
          seen.pause = Math.min(2 * seen.pause, pauses.longest);
        }
      }
    });
    log.scrollTop = log.scrollHeight;
  }

  // Keys.
  const keys = $("keys");
  const targets = () => [...document.querySelectorAll("[data-key]")];
  const showKeys = () => {
    const list = keys.querySelector("dl");
    list.replaceChildren();
    const entry = (key, text) => {
      const term = document.createElement("dt"), words = document.createElement("dd");
      const kbd = document.createElement("kbd");
      kbd.textContent = key;
      term.append(kbd);
      words.textContent = text;
      list.append(term, words);
    };
    entry("?", "this list");
    if (document.querySelector("table a")) entry("j, k", "next and previous row");
    for (const target of targets()) entry(target.dataset.key, target.dataset.name);
    keys.showModal();
  };
  const move = (step) => {
    const links = [...document.querySelectorAll("main tr:not([hidden]):not(.group) > :first-child a")];
    if (links.length === 0) return;
    const at = links.indexOf(document.activeElement);
    const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1);
    links[next].focus();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || keys && keys.open) return;
    const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
    if (typing) { if (event.key === "Escape") event.target.blur(); return; }
    if (event.key === "?" && keys) { event.preventDefault(); showKeys(); return; }
    if (event.key === "j" || event.key === "k") { event.preventDefault(); move(event.key === "j" ? 1 : -1); return; }
    const target = targets().find((it) => it.dataset.key === event.key);
    if (!target) return;
    event.preventDefault();
    if (target.matches("input[type=checkbox], a, button")) target.click(); else target.focus();
  });

  // A cookie is not sent by a page that another site has opened; a form that was sent twice asks once.
  for (const form of document.querySelectorAll("form[method=post]")) {
    form.addEventListener("submit", () => {
      for (const button of form.querySelectorAll("button[type=submit]")) setTimeout(() => { button.disabled = true; });
    });
  }
  const error = document.querySelector("[role=alert]");
  if (error) { error.tabIndex = -1; error.focus(); }
})();
