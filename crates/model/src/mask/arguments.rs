//! Secrets in command lines: `--password X`, `-pX`, `redis-cli -a X`, `curl -u user:X`.

use std::ops::Range;

use super::{
    names::{Telling, is_no_secret, telling},
    patterns::Spans,
};

/// Options of one letter that take a password, by program. Other programs give the same letters another meaning.
struct Program {
    name: &'static str,
    /// Letters whose password follows in the same word: `-pX`.
    glued: &'static str,
    /// Letters whose password is the next word: `-a X`.
    apart: &'static str,
    /// Letters followed by `user:password`.
    pair: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program { name: "mysql", glued: "p", apart: "", pair: "" },
    Program { name: "mariadb", glued: "p", apart: "", pair: "" },
    Program { name: "mongo", glued: "p", apart: "p", pair: "" },
    Program { name: "7z", glued: "p", apart: "", pair: "" },
    Program { name: "sshpass", glued: "p", apart: "p", pair: "" },
    Program { name: "redis-cli", glued: "", apart: "a", pair: "" },
    Program { name: "valkey-cli", glued: "", apart: "a", pair: "" },
    Program { name: "keydb-cli", glued: "", apart: "a", pair: "" },
    Program { name: "ldap", glued: "w", apart: "w", pair: "" },
    Program { name: "curl", glued: "u", apart: "", pair: "uU" },
    Program { name: "smbclient", glued: "", apart: "", pair: "U" },
    Program { name: "zip", glued: "P", apart: "P", pair: "" },
    Program { name: "unzip", glued: "P", apart: "P", pair: "" },
    Program { name: "mosquitto_", glued: "", apart: "P", pair: "" },
];

/// Programs that mean something else by `-p`.
const OTHERS: &[&str] = &[
    "mkdir",
    "cp",
    "ssh",
    "scp",
    "sftp",
    "rsync",
    "docker",
    "podman",
    "install",
    "tar",
    "ps",
    "read",
    "declare",
    "export",
    "su",
    "find",
    "nc",
    "ncat",
    "netstat",
    "ss",
    "psql",
    "createdb",
    "nmap",
    "python",
    "perl",
    "java",
    "node",
    "npm",
    "npx",
    "yarn",
    "make",
    "git",
    "kill",
    "pgrep",
    "pkill",
    "lsof",
    "telnet",
    "dig",
    "test",
    "nginx",
    "gunicorn",
    "uvicorn",
    "vite",
    "ng",
    "top",
    "journalctl",
    "sed",
    "grep",
    "xargs",
    "touch",
    "rm",
    "ls",
    "redis-server",
    "memcached",
    "etcd",
];

/// The beginning of the names of more of them.
const OTHERS_BEGIN: &str = "pg_";

/// Options that begin with `-p` and take no password.
const WORDS_WITH_P: &[&str] = &[
    "ath",
    "rint",
    "rint0",
    "rintf",
    "rune",
    "erm",
    "ort",
    "orts",
    "rofile",
    "refix",
    "id",
    "idfile",
    "arameters",
    "lugin",
    "lugins",
    "roject",
    "rotocol",
    "roxy",
    "arallel",
    "ackage",
    "latform",
    "ull",
    "ush",
    "rivileged",
    "rod",
    "ipe",
];

/// Words of a shell that end a command.
const SEPARATORS: &[&str] = &["&&", "||", "|", ";", "&", "(", ")"];

/// The places to hide, for each argument. A single text is a command line on its own.
pub(super) fn secrets<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<Spans> {
    let mut line = Line::default();
    arguments.into_iter().map(|argument| line.argument(argument)).collect()
}

/// The state of a reader of a command line.
#[derive(Default)]
struct Line {
    program: Option<&'static Program>,
    is_other: bool,
    next: Next,
}

/// The meaning of the word that follows.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Plain,
    Password,
    /// The password of `-p`, unless it is a port.
    MaybePassword,
    /// `user:password`.
    Pair,
    /// A secret if it is in quotes: `IDENTIFIED BY 'X'`.
    Quoted,
}

impl Line {
    fn argument(&mut self, text: &str) -> Spans {
        let mut spans = Spans::new();
        // The argument after `--password` is the password as a whole.
        if matches!(self.next, Next::Password) && !is_option(text) {
            self.next = Next::Plain;
            push(text, 0..text.len(), &mut spans);
            return spans;
        }
        // `--password=X` in a word of its own: to the end, also with spaces.
        if let Some((name, value)) = text.split_once('=')
            && text.starts_with('-')
            && !name.contains(char::is_whitespace)
            && tells(name)
        {
            self.next = Next::Plain;
            push(text, text.len() - value.len()..text.len(), &mut spans);
            return spans;
        }
        for place in words(text) {
            self.word(text, place, &mut spans);
        }
        spans
    }

    fn word(&mut self, text: &str, place: Range<usize>, spans: &mut Spans) {
        let raw = text.get(place.clone()).unwrap_or_default();
        let trimmed = raw.trim_start_matches(['"', '\'', '\\']);
        let begin = place.start + (raw.len() - trimmed.len());
        let is_quoted = trimmed.len() < raw.len();
        let word = trimmed.trim_end_matches(['"', '\'', '\\', ';']);
        let place = begin..begin + word.len();
        match std::mem::take(&mut self.next) {
            Next::Password if !is_option(word) => return push(text, place, spans),
            Next::MaybePassword if !is_option(word) && !is_port(word) && !word.contains('/') => {
                return push(text, place, spans);
            }
            Next::Pair if !is_option(word) => return pair(text, place, spans),
            Next::Quoted if is_quoted => return push(text, place, spans),
            Next::Password | Next::MaybePassword | Next::Pair | Next::Quoted | Next::Plain => {}
        }
        // A command in quotes: `sh -c 'mysql -pX'`.
        if is_quoted && word.contains(char::is_whitespace) {
            let inner = Self::default().argument(word);
            spans.extend(inner.into_iter().map(|span| begin + span.start..begin + span.end));
            return;
        }
        if SEPARATORS.contains(&word) || raw.ends_with(';') {
            (self.program, self.is_other) = (None, false);
            return;
        }
        match word.strip_prefix('-') {
            Some(option) => self.option(text, option, begin + 1, spans),
            None => self.plain(word),
        }
    }

    fn plain(&mut self, word: &str) {
        let name = word.rsplit('/').next().unwrap_or_default();
        let name = name.strip_suffix(".exe").unwrap_or(name);
        if let Some(program) = PROGRAMS.iter().find(|program| name.starts_with(program.name)) {
            (self.program, self.is_other) = (Some(program), false);
        } else if OTHERS.contains(&name) || name.starts_with(OTHERS_BEGIN) {
            (self.program, self.is_other) = (None, true);
        }
        let is_one_of = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
        self.next = if is_one_of(&["requirepass", "masterauth", "masterpass", "auth_pass"]) {
            Next::Password
        } else if is_one_of(&["password", "by"]) {
            Next::Quoted
        } else {
            Next::Plain
        };
    }

    /// `option` is the word without its first dash, which begins at `begin`.
    fn option(&mut self, text: &str, option: &str, begin: usize, spans: &mut Spans) {
        let name = option.trim_start_matches('-');
        if name.contains('=') {
            // Whole arguments are read above, and other words by the rule for entries.
            return;
        }
        let is_long = name.len() < option.len();
        let mut letters = option.chars();
        let letter = letters.next().unwrap_or_default();
        let glued = letters.as_str().trim_start_matches(['"', '\'', '\\']);
        let has = |letters: &str| !is_long && letters.contains(letter);
        let at = begin + (option.len() - glued.len())..begin + option.len();
        match self.program {
            Some(program) if has(program.pair) && glued.is_empty() => self.next = Next::Pair,
            Some(program) if has(program.pair) => pair(text, at, spans),
            Some(program) if has(program.apart) && glued.is_empty() => self.next = Next::Password,
            Some(program) if has(program.glued) && !glued.is_empty() => push(text, at, spans),
            _ if is_long
                && matches!(name, "user" | "proxy-user")
                && self.program.is_some_and(|it| it.name == "curl") =>
            {
                self.next = Next::Pair;
            }
            _ if tells(option) => self.next = Next::Password,
            None if !is_long && letter == 'p' && !self.is_other => {
                if glued.is_empty() {
                    self.next = Next::MaybePassword;
                } else if !is_port(glued) && !glued.contains('/') && !WORDS_WITH_P.contains(&glued) {
                    push(text, at, spans);
                }
            }
            Some(_) | None => {}
        }
    }
}

/// Whether an option of this name takes a secret. `--no-password` takes nothing.
fn tells(option: &str) -> bool {
    let name = option.trim_start_matches('-').to_ascii_lowercase();
    let is_switch =
        ["no-", "skip-", "disable-", "enable-", "allow-", "require-", "without-", "with-", "prompt-"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
    !is_switch && name.len() > 1 && telling(&name) != Telling::No
}

/// Whether a word is another option, and so no value of the one before.
fn is_option(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next() == Some('-')
        && match letters.next() {
            Some('-') => letters.next().is_some_and(char::is_alphabetic),
            Some(letter) => letter.is_ascii_alphabetic() && letters.next().is_none(),
            None => false,
        }
}

/// Whether it is a port or a mapping of ports: `8080`, `8080:80`, `127.0.0.1:80:80/tcp`.
fn is_port(word: &str) -> bool {
    let is_number = |part: &str| {
        part.parse::<u32>().is_ok_and(|number| number <= 65_535)
            || part.split('.').all(|number| number.parse::<u8>().is_ok())
    };
    let word = word.strip_suffix("/tcp").or_else(|| word.strip_suffix("/udp")).unwrap_or(word);
    word.split([':', '-']).all(is_number)
}

/// Hides the password of `user:password`, except in `1000:1000`.
fn pair(text: &str, place: Range<usize>, spans: &mut Spans) {
    let word = text.get(place.clone()).unwrap_or_default();
    if let Some((user, password)) = word.split_once([':', '%'])
        && !password.bytes().all(|byte| byte.is_ascii_digit())
    {
        push(text, place.start + user.len() + 1..place.end, spans);
    }
}

fn push(text: &str, place: Range<usize>, spans: &mut Spans) {
    if text.get(place.clone()).is_some_and(|value| !is_no_secret(value)) {
        spans.push(place);
    }
}

/// The words of a line, each with what is quoted in it.
fn words(text: &str) -> Spans {
    let mut spans = Spans::new();
    let mut begin = None;
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => {
                quote = Some(letter);
                begin = begin.or(Some(at));
            }
            (None, letter) if letter.is_whitespace() => {
                if let Some(begin) = begin.take() {
                    spans.push(begin..at);
                }
            }
            (None, _) => begin = begin.or(Some(at)),
        }
    }
    if let Some(begin) = begin {
        spans.push(begin..text.len());
    }
    spans
}
