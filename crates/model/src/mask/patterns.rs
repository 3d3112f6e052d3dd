//! Secrets that a text gives away by its form: passwords in URLs, `name=value`, JSON, known kinds of tokens, PEM.
//!
//! Each function returns the places in the text that are to be hidden, and changes nothing.

use std::ops::Range;

use super::names::{MARK, Telling, is_no_secret, is_path, telling};

/// Places in a text, in bytes, at boundaries of letters.
pub(super) type Spans = Vec<Range<usize>>;

/// The separator of a name and its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    /// A value of a configuration: `name: value` is an entry too.
    Configuration,
    /// A sentence: `password: authentication failed` is no entry.
    Sentence,
}

/// All places that these rules know.
pub(super) fn secrets(text: &str, kind: TextKind) -> Spans {
    let mut spans = Spans::new();
    // Most values are words and numbers, and each rule needs one of these.
    if text.contains(':') {
        urls(text, &mut spans);
    }
    if text.contains(['=', ':']) {
        entries(text, kind, &mut spans);
    }
    if text.contains("</") {
        elements(text, &mut spans);
    }
    if text.len() >= SHORTEST_TOKEN {
        tokens(text, &mut spans);
        private_keys(text, &mut spans);
    }
    if text.contains('$') || text.contains("{SHA}") {
        password_hashes(text, &mut spans);
    }
    spans
}

/// Passwords in `scheme://user:password@host`, where the password may contain any letter except a space, `"` or `` ` ``. A `'` ends the
/// URL only if another one begins it: it may be a part of a password (RFC 3986, section 2.2).
fn urls(text: &str, spans: &mut Spans) {
    let mut start = 0;
    while let Some(found) = text.get(start..).and_then(|rest| rest.find("://")) {
        let scheme_end = start + found;
        let begin = scheme_end + 3;
        let rest = text.get(begin..).unwrap_or_default();
        // Another URL may follow after a comma: `redis://a:b@c,redis://d:e@f`.
        let rest = rest.find("://").map_or(rest, |next| {
            let before = rest.get(..next).unwrap_or_default();
            before.trim_end_matches(|letter: char| letter.is_ascii_alphanumeric() || "+.-".contains(letter))
        });
        let before = text.get(..scheme_end).unwrap_or_default();
        let before =
            before.trim_end_matches(|letter: char| letter.is_ascii_alphanumeric() || "+.-".contains(letter));
        let is_quoted = before.ends_with('\'');
        let is_end = |letter: char| {
            letter.is_whitespace() || matches!(letter, '"' | '`' | '<' | '>') || (is_quoted && letter == '\'')
        };
        let url = rest.get(..rest.find(is_end).unwrap_or(rest.len())).unwrap_or_default();
        start = begin + url.len();
        if is_notifier(text.get(..scheme_end).unwrap_or_default()) {
            spans.push(begin..begin + url.trim_end_matches(',').len());
            continue;
        }
        let Some(userinfo) = userinfo(url) else { continue };
        match userinfo.split_once(':') {
            Some((user, password)) if !password.is_empty() => {
                spans.push(begin + user.len() + 1..begin + userinfo.len());
            }
            // `https://TOKEN@host` has no name in front of it, unlike `ssh://git@host`.
            None if text
                .get(..scheme_end)
                .is_some_and(|before| before.ends_with("http") || before.ends_with("https")) =>
            {
                spans.push(begin..begin + userinfo.len());
            }
            Some(_) | None => {}
        }
    }
}

/// Schemes that shoutrrr and Apprise give to services whose tokens stand anywhere in the URL: `gotify://host/TOKEN`.
const NOTIFIERS: &[&str] = &[
    "bark",
    "discord",
    "gotify",
    "gotifys",
    "googlechat",
    "ifttt",
    "join",
    "mattermost",
    "mmost",
    "mmosts",
    "msteams",
    "opsgenie",
    "pbul",
    "pover",
    "pushbullet",
    "pushover",
    "rocketchat",
    "slack",
    "teams",
    "telegram",
    "tgram",
    "zulip",
];

/// Whether the text before `://` ends with the scheme of a notification service.
fn is_notifier(before: &str) -> bool {
    let scheme = before.rsplit(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default();
    NOTIFIERS.iter().any(|notifier| scheme.eq_ignore_ascii_case(notifier))
}

/// The passwords in the URLs of a text, as they are written there.
pub(super) fn passwords_of_urls(text: &str) -> impl Iterator<Item = &str> {
    let mut spans = Spans::new();
    if text.contains("://") {
        urls(text, &mut spans);
    }
    spans.into_iter().filter_map(|span| text.get(span))
}

/// The part before the `@` of a URL without its scheme.
fn userinfo(url: &str) -> Option<&str> {
    let authority = url.find(['/', '?', '#']).map_or(url, |end| url.get(..end).unwrap_or_default());
    let at = if authority.contains('@') {
        // `user:p@ss/word@host`: the last `@` that a host follows ends the password.
        url.rmatch_indices('@').map(|(at, _)| at).find(|at| *at < authority.len() || is_host(url, *at))?
    } else {
        // `user:pass/word@host`, unless it is `host:8080/@name` or `host:80/?to=a@b`.
        let (_, password) = authority.split_once(':')?;
        if password.is_empty() || password.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        url.rmatch_indices('@').map(|(at, _)| at).find(|at| is_host(url, *at))?
    };
    url.get(..at).filter(|userinfo| !userinfo.is_empty())
}

/// Whether a host name follows the `@` at this place.
fn is_host(url: &str, at: usize) -> bool {
    let host = url.get(at + 1..).unwrap_or_default();
    let host = host.find(['/', '?', '#', ',']).map_or(host, |end| host.get(..end).unwrap_or_default());
    let is_of_host = |letter: char| letter.is_alphanumeric() || "-._:[]%".contains(letter);
    !host.is_empty() && host.chars().all(is_of_host)
}

/// Values of entries whose names tell: `name=value`, `"name": "value"`, and in a configuration `name: value`.
fn entries(text: &str, kind: TextKind, spans: &mut Spans) {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(['=', ':'])) {
        let separator = from + found;
        from = separator + 1;
        let before = text.get(..separator).unwrap_or_default();
        let bare = before.trim_end_matches(['"', '\'', '\\', ' ']);
        let is_quoted =
            before.len() > bare.len() && !before.ends_with(' ') || before.trim_end().ends_with(['"', '\'']);
        let is_of_name = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
        let name = bare.rsplit(|letter: char| !is_of_name(letter)).next().unwrap_or_default();
        // `?sig=…` of a URL signs it.
        let signs =
            name == "sig" && bare.strip_suffix("sig").is_some_and(|front| front.ends_with(['?', '&']));
        if name.is_empty() || (telling(name) == Telling::No && !signs) {
            continue;
        }
        let after = text.get(from..).unwrap_or_default();
        let value = after.trim_start_matches([' ', '\t']);
        let is_equals = text.as_bytes().get(separator) == Some(&b'=');
        let begins_with_space = value.len() < after.len();
        if !is_equals && !is_quoted && (kind == TextKind::Sentence || !begins_with_space) {
            continue;
        }
        // `a == b`, `a := b` and `a = b` are code, not an entry, except that the last one is also a line of INI.
        if value.starts_with(['=', '>']) || (is_equals && begins_with_space && kind == TextKind::Sentence) {
            continue;
        }
        // Hidden already, in a text that is a part of this one, or left out, as in an advice to write `NAME=…`.
        let is_left_out =
            value.strip_prefix('…').is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        if value.starts_with(MARK) || is_left_out {
            continue;
        }
        let begin = from + (after.len() - value.len());
        let place = if let Some(quote) = quote(value) {
            let inner = value.get(quote.len()..).unwrap_or_default();
            let end = closing(inner, quote).unwrap_or(inner.len());
            begin + quote.len()..begin + quote.len() + end
        } else {
            let ends: &[char] = if is_equals && !begins_with_space {
                &[' ', '\t', '\n', '\r', '"', '\'', '&', ';']
            } else if is_quoted {
                &[' ', '\t', '\n', '\r', '"', '\'', ',', '}', ']']
            } else {
                &['\n', '\r', '"', '\'']
            };
            begin..begin + value.find(ends).unwrap_or(value.len())
        };
        let hidden = text.get(place.clone()).unwrap_or_default();
        if !is_no_secret(hidden) && !is_path(name, hidden) {
            from = place.end;
            spans.push(place);
        }
    }
}

/// In letters: no longer name of an element is looked at.
const LONGEST_NAME: usize = 64;

/// In bytes: no farther is the beginning of a section searched for.
const LONGEST_CDATA: usize = 8192;

/// Elements of XML whose names tell: `<password>value</password>`.
fn elements(text: &str, spans: &mut Spans) {
    for (end, _) in text.match_indices("</") {
        let (before, after) = (text.get(..end).unwrap_or_default(), text.get(end + 2..).unwrap_or_default());
        // Without a bound, a text of nothing but `</` would be read again for each of them.
        let is_of_name = |letter: char| letter.is_alphanumeric() || "_-.:".contains(letter);
        let name_length = after.char_indices().take(LONGEST_NAME).find(|(_, letter)| !is_of_name(*letter));
        let Some(name) = name_length.and_then(|(length, _)| after.get(..length)) else { continue };
        let is_closed = after.get(name.len()..).is_some_and(|rest| rest.trim_start().starts_with('>'));
        if !is_closed || telling(name) == Telling::No {
            continue;
        }
        let cdata = before.strip_suffix("]]>").and_then(|before| {
            let near = before.ceil_char_boundary(before.len().saturating_sub(LONGEST_CDATA));
            before.get(near..)?.rfind("<![CDATA[").map(|at| near + at)
        });
        let begin = cdata.unwrap_or_else(|| before.rfind('>').map_or(end, |at| at + 1));
        let value = text.get(begin..end).unwrap_or_default();
        if !is_no_secret(value) && !value.starts_with(MARK) {
            spans.push(begin..end);
        }
    }
}

/// The quote that a value begins with: `"`, `'`, or either after backslashes, as in JSON inside of JSON.
fn quote(value: &str) -> Option<&str> {
    let slashes = value.len() - value.trim_start_matches('\\').len();
    let is_quoted = value.get(slashes..).is_some_and(|rest| rest.starts_with(['"', '\'']));
    value.get(..=slashes).filter(|_| is_quoted)
}

/// The end of the text that `quote` opened. A quote with more backslashes in front is part of the text.
fn closing(inner: &str, quote: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = inner.get(from..)?.find(quote) {
        let at = from + found;
        let is_escaped = inner.get(..at)?.ends_with('\\');
        if !is_escaped {
            return Some(at);
        }
        from = at + quote.len();
    }
    None
}

/// Beginnings of tokens that no other text has, each with how many letters must follow.
const TOKENS: &[(&str, usize)] = &[
    ("ghp_", 16),
    ("gho_", 16),
    ("ghu_", 16),
    ("ghs_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 16),
    ("gldt-", 16),
    ("glrt-", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("xapp-", 10),
    ("sk-", 20),
    ("sk_live_", 10),
    ("rk_live_", 10),
    ("npm_", 30),
    ("pypi-", 30),
    ("hf_", 20),
    ("dop_v1_", 30),
    ("dckr_pat_", 16),
    ("tskey-", 16),
    ("whsec_", 20),
    ("hvs.", 20),
    ("hvb.", 20),
    ("SG.", 40),
    ("api.telegram.org/bot", 30),
    ("AGE-SECRET-KEY-1", 16),
    ("hooks.slack.com/services/", 8),
    ("discord.com/api/webhooks/", 8),
    ("discordapp.com/api/webhooks/", 8),
];

/// In bytes: no token with its beginning is shorter.
const SHORTEST_TOKEN: usize = 15;

fn tokens(text: &str, spans: &mut Spans) {
    bearers(text, spans);
    // The colon is in tokens of Telegram.
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(byte);
    let begins = |at: usize| at == 0 || !text.as_bytes().get(at - 1).is_some_and(u8::is_ascii_alphanumeric);
    for (prefix, least) in TOKENS {
        // The end of the last one: another one in it is hidden with it, or shorter and no token either.
        let mut end = 0;
        for (at, _) in text.match_indices(prefix) {
            if at < end || !begins(at) {
                continue;
            }
            let tail = text.as_bytes().get(at + prefix.len()..).unwrap_or_default();
            let length = tail.iter().take_while(|byte| is_of_token(byte)).count();
            end = at + prefix.len() + length;
            if length >= *least {
                spans.push(at..end);
            }
        }
    }
    let mut end = 0;
    for (at, _) in text.match_indices("eyJ") {
        if at < end || !begins(at) {
            continue;
        }
        let tail = text.as_bytes().get(at..).unwrap_or_default();
        let is_of_jwt = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
        let length = tail.iter().take_while(is_of_jwt).count();
        let dots = tail.iter().take(length).filter(|byte| **byte == b'.').count();
        end = at + length;
        if dots >= 2 && length >= 30 {
            spans.push(at..end);
        }
    }
}

/// Values of the header `Authorization` without its name: `Bearer …`, `Basic …`.
fn bearers(text: &str, spans: &mut Spans) {
    const SHORTEST: usize = 12;
    let is_of_token = |letter: &char| letter.is_ascii_alphanumeric() || "-._~+/=".contains(*letter);
    for scheme in ["Bearer ", "bearer ", "Basic "] {
        for (at, _) in text.match_indices(scheme) {
            let begin = at + scheme.len();
            let length = text.get(begin..).unwrap_or_default().chars().take_while(is_of_token).count();
            let token = text.get(begin..begin + length).unwrap_or_default();
            // A sentence goes on with words.
            let is_token =
                token.contains(|letter: char| letter.is_ascii_digit() || letter.is_ascii_uppercase());
            if length >= SHORTEST && is_token {
                spans.push(begin..begin + length);
            }
        }
    }
}

fn private_keys(text: &str, spans: &mut Spans) {
    const BEGIN: &str = "-----BEGIN ";
    for (at, _) in text.match_indices(BEGIN) {
        let rest = text.get(at + BEGIN.len()..).unwrap_or_default();
        let Some((name, body)) = rest.split_once("-----") else { continue };
        if !name.ends_with("PRIVATE KEY") && !name.ends_with("PRIVATE KEY BLOCK") {
            continue;
        }
        let begin = at + BEGIN.len() + name.len() + 5;
        spans.push(begin..begin + body.find("-----END").unwrap_or(body.len()));
    }
}

/// Hashes of passwords as `htpasswd` and `/etc/shadow` hold them: `$2y$05$…`, `$apr1$…`, `{SHA}…`. A Compose file
/// writes each `$` twice.
fn password_hashes(text: &str, spans: &mut Spans) {
    const KINDS: &[&str] =
        &["apr1", "2a", "2b", "2x", "2y", "1", "5", "6", "y", "gy", "7", "argon2i", "argon2d", "argon2id"];
    let is_end =
        |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '`' | ',' | ';' | '<' | '>');
    let length = |rest: &str| rest.find(is_end).unwrap_or(rest.len());
    for dollar in ["$$", "$"] {
        for kind in KINDS {
            let prefix = format!("{dollar}{kind}{dollar}");
            for (at, _) in text.match_indices(&prefix) {
                let rest = text.get(at..).unwrap_or_default();
                if length(rest) > prefix.len() + 7 {
                    spans.push(at..at + length(rest));
                }
            }
        }
    }
    for (at, _) in text.match_indices("{SHA}") {
        spans.push(at..at + length(text.get(at..).unwrap_or_default()));
    }
}
