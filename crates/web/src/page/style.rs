//! Style and script of the page, and the policy that allows them. Both are inline, so that the page fetches nothing
//! else. Their digests are in its content security policy, so that nothing else runs.

use std::sync::LazyLock;

use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderValue;
use sha2::{Digest, Sha256};

/// Follows the reader's choice of light or dark. The text next to a colour always says the same.
pub(super) const STYLE: &str = r#"
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #fff; --line: #e2e5ea; --text: #1b1f27; --soft: #5c6573;
  --good: #14703c; --good-bg: #dcf3e4; --busy: #1a56b8; --busy-bg: #dfeafc;
  --warn: #8a5200; --warn-bg: #fdeecb; --bad: #b3261e; --bad-bg: #fce0de; --idle: #4b5563; --idle-bg: #e8eaee;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f1217; --card: #171b22; --line: #2a303a; --text: #e7eaf0; --soft: #98a2b3;
    --good: #7ee2a8; --good-bg: #12341f; --busy: #9cc3ff; --busy-bg: #162a4a;
    --warn: #ffd17a; --warn-bg: #3b2a08; --bad: #ffaaa3; --bad-bg: #451a17; --idle: #b4bcc9; --idle-bg: #272d37;
  }
}
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif }
.wide { max-width: 74rem; margin: 0 auto; padding: 0 1.25rem }
header { background: var(--card); border-bottom: 1px solid var(--line) }
header .wide { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; padding-block: .9rem }
h1 { font-size: 1.15rem; margin: 0; letter-spacing: -.01em; display: flex; align-items: center; gap: .55rem }
h1 svg { display: block }
header .counts { margin-left: auto; display: flex; flex-wrap: wrap; gap: .4rem }
main.wide { padding-block: 1.25rem 1.5rem }
article, .block { background: var(--card); border: 1px solid var(--line); border-radius: .7rem;
  margin-bottom: 1rem; overflow: hidden }
article > .top { padding: .9rem 1.1rem; display: flex; flex-wrap: wrap; gap: .35rem .7rem; align-items: center }
h2 { font-size: 1.1rem; margin: 0 }
h2 a { color: inherit; text-decoration: none }
h2 a:hover { text-decoration: underline }
h3 { font-size: .74rem; font-weight: 650; text-transform: uppercase; letter-spacing: .06em; color: var(--soft);
  margin: 0; padding: .75rem 1.1rem .2rem }
.commit { margin-left: auto; color: var(--soft); font-size: .87rem; min-width: 0; overflow-wrap: anywhere }
.badge { display: inline-block; font-size: .78rem; font-weight: 600; line-height: 1.55; white-space: nowrap;
  padding: 0 .55rem; border-radius: 1rem; background: var(--idle-bg); color: var(--idle) }
.good { background: var(--good-bg); color: var(--good) } .busy { background: var(--busy-bg); color: var(--busy) }
.warn { background: var(--warn-bg); color: var(--warn) } .bad { background: var(--bad-bg); color: var(--bad) }
.idle { background: var(--idle-bg); color: var(--idle) }
p.note { margin: 0; padding: .5rem 1.1rem; border-top: 1px solid var(--line); overflow-wrap: anywhere }
.scroll { overflow-x: auto }
table { width: 100%; border-collapse: collapse; font-size: .9rem }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: .8rem; white-space: nowrap }
th, td { padding: .38rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
tr > :first-child { padding-left: 1.1rem } tr > :last-child { padding-right: 1.1rem }
tbody tr:last-child > * { border-bottom: 0 }
tbody th { color: var(--text); font-size: .9rem }
tr.instance td { color: var(--soft); border-bottom-style: dotted } tr.instance td:first-child { padding-left: 2rem }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
code, .mono, pre { font-family: ui-monospace, SFMono-Regular, Menlo, "Liberation Mono", monospace; font-size: .85em }
.scroll table { min-width: 44rem } td { overflow-wrap: break-word }
.soft { color: var(--soft) } time { white-space: nowrap }
details { border-top: 1px solid var(--line) }
summary { padding: .55rem 1.1rem; cursor: pointer; color: var(--soft); font-size: .88rem }
details ol { margin: 0; padding: 0 1.1rem .8rem 2.4rem; font-size: .88rem }
.empty { padding: 3rem 1.5rem; text-align: center; color: var(--soft) }
footer.wide { color: var(--soft); font-size: .84rem; padding-bottom: 2rem }
footer a { color: inherit }
:focus-visible { outline: 2px solid var(--busy); outline-offset: 2px }
"#;

/// Fetches the page every five seconds and replaces its parts. Opened details and marked text stay. If the agent
/// does not answer, the page says since when it is old.
pub(super) const SCRIPT: &str = r#"
"use strict";
const every = 5000;
const open = () => [...document.querySelectorAll("details[open]")].map(it => it.id);
async function refresh() {
  const state = document.getElementById("fresh");
  try {
    if (document.hidden || String(getSelection())) return;
    const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(every) });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const opened = open();
    for (const part of ["main", "counts"]) {
      document.getElementById(part).replaceWith(fresh.getElementById(part));
    }
    for (const id of opened) { const it = id && document.getElementById(id); if (it) it.open = true; }
    document.title = fresh.title;
    state.textContent = "live";
    state.className = "badge good";
  } catch (error) {
    if (!state.dataset.since || state.className.includes("good")) {
      state.dataset.since = new Date().toLocaleTimeString();
    }
    state.textContent = "no answer since " + state.dataset.since;
    state.className = "badge bad";
  } finally {
    setTimeout(refresh, every);
  }
}
setTimeout(refresh, every);
"#;

/// Allows the page's own style and script by digest, and nothing else; no other page may frame it.
pub(crate) fn content_security_policy() -> HeaderValue {
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
        let digest = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
            digest(STYLE),
            digest(SCRIPT),
        );
        HeaderValue::try_from(policy).expect("a policy of printable ASCII fits into a header")
    });
    POLICY.clone()
}
