//! `.dockerignore`: the paths of a build context that are ignored. The rules are those of Docker's own matcher: Go's
//! `filepath.Match` with `**`, later lines win, a line with `!` includes again, and a matched folder matches its content.

/// The rules of one file.
#[derive(Debug, Default)]
pub(super) struct Ignore {
    rules: Vec<Rule>,
}

/// One line.
#[derive(Debug)]
struct Rule {
    /// The line starts with `!`.
    includes_again: bool,
    pattern: Vec<Token>,
}

/// One part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Letter(char),
    /// `?`: one letter except a slash.
    Any,
    /// `*`: any letters except slashes.
    Star,
    /// `**` at the end: any letters.
    Everything,
    /// The next two tokens are optional: `**/` is [`Token::Everything`] and a slash, or nothing.
    Optional,
    /// `[a-z]`, `[^0-9]`.
    Class {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
}

/// The rules that match a folder, and therefore its content.
#[derive(Clone, Debug)]
pub(super) struct Inherited(Vec<bool>);

impl Ignore {
    /// Parses a file. The error names the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            if line.starts_with('#') {
                continue;
            }
            let line = line.trim();
            let (includes_again, pattern) = match line.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, line),
            };
            let pattern = clean(pattern);
            if pattern.is_empty() {
                if includes_again {
                    return Err(format!("line {}: `!` needs a pattern", number + 1));
                }
                continue;
            }
            let pattern = tokens(&pattern).map_err(|why| format!("line {}: {why}", number + 1))?;
            rules.push(Rule { includes_again, pattern });
        }
        Ok(Self { rules })
    }

    /// No rule matches the context itself.
    pub(super) fn top(&self) -> Inherited {
        Inherited(vec![false; self.rules.len()])
    }

    /// Whether a path is ignored, and the rules that match its content.
    pub(super) fn check(&self, above: &Inherited, path: &str) -> (bool, Inherited) {
        let mut is_out = false;
        let mut inherited = Vec::with_capacity(self.rules.len());
        for (rule, from_above) in self.rules.iter().zip(&above.0) {
            let is_matched = *from_above || matches(&rule.pattern, path);
            if is_matched {
                is_out = !rule.includes_again;
            }
            inherited.push(is_matched);
        }
        (is_out, Inherited(inherited))
    }

    /// Whether a file in an ignored folder may be included again.
    pub(super) fn may_include_again(&self) -> bool {
        self.rules.iter().any(|it| it.includes_again)
    }
}

/// A pattern without `.`, `..`, doubled slashes and slashes at the ends. It cannot lead out of the context.
fn clean(pattern: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn tokens(pattern: &str) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        let token = match letter {
            '?' => Token::Any,
            '*' if letters.peek() == Some(&'*') => {
                while letters.next_if_eq(&'*').is_some() {}
                letters.next_if_eq(&'/');
                if letters.peek().is_some() {
                    tokens.extend([Token::Optional, Token::Everything]);
                    Token::Letter('/')
                } else {
                    Token::Everything
                }
            }
            '*' => Token::Star,
            '\\' => Token::Letter(letters.next().ok_or("a pattern cannot end with `\\`")?),
            '[' => class(&mut letters)?,
            letter => Token::Letter(letter),
        };
        tokens.push(token);
    }
    Ok(tokens)
}

fn class(letters: &mut impl Iterator<Item = char>) -> Result<Token, &'static str> {
    const OPEN: &str = "`[` without `]`";
    let mut letters = letters.peekable();
    let negated = letters.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        let one = |letters: &mut std::iter::Peekable<_>| match letters.next().ok_or(OPEN)? {
            '\\' => letters.next().ok_or(OPEN),
            letter => Ok::<char, &'static str>(letter),
        };
        if !ranges.is_empty() && letters.peek() == Some(&']') {
            letters.next();
            return Ok(Token::Class { ranges, negated });
        }
        let first = one(&mut letters)?;
        let last = match letters.peek() {
            Some('-') => {
                letters.next();
                one(&mut letters)?
            }
            Some(_) => first,
            None => return Err(OPEN),
        };
        ranges.push((first, last));
    }
}

/// Matches in polynomial time: keeps the set of positions in the pattern that the path can be at.
fn matches(pattern: &[Token], path: &str) -> bool {
    let mut places = vec![false; pattern.len() + 1];
    places[0] = true;
    let mut next = vec![false; pattern.len() + 1];
    skip_empty(pattern, &mut places);
    for letter in path.chars() {
        next.fill(false);
        let mut is_alive = false;
        for (at, token) in pattern.iter().enumerate().filter(|(at, _)| places[*at]) {
            let (stays, goes_on) = match token {
                Token::Letter(it) => (false, *it == letter),
                Token::Any => (false, letter != '/'),
                Token::Star => (letter != '/', false),
                Token::Everything => (true, false),
                Token::Optional => (false, false),
                Token::Class { ranges, negated } => {
                    let is_in = ranges.iter().any(|(first, last)| (first..=last).contains(&&letter));
                    (false, letter != '/' && is_in != *negated)
                }
            };
            next[at] |= stays;
            next[at + 1] |= goes_on;
            is_alive |= stays || goes_on;
        }
        if !is_alive {
            return false;
        }
        skip_empty(pattern, &mut next);
        std::mem::swap(&mut places, &mut next);
    }
    places[pattern.len()]
}

/// Adds the positions that are reached without a letter.
fn skip_empty(pattern: &[Token], places: &mut [bool]) {
    for (at, token) in pattern.iter().enumerate() {
        let (may_pass, may_leave_out) = match token {
            Token::Star | Token::Everything => (true, false),
            Token::Optional => (true, true),
            Token::Letter(_) | Token::Any | Token::Class { .. } => (false, false),
        };
        places[at + 1] |= places[at] && may_pass;
        if places[at] && may_leave_out {
            places[at + 3] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_out(lines: &str, path: &str) -> bool {
        let ignore = Ignore::parse(lines).unwrap();
        let mut above = ignore.top();
        let mut result = false;
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            (result, above) = ignore.check(&above, &path[..end]);
        }
        result
    }

    #[test]
    fn paths_match_as_in_docker() {
        for (pattern, path, expected) in [
            ("a", "a", true),
            ("a", "a/b/c", true),
            ("a", "b/a", false),
            ("/a/", "a", true),
            ("./a/../b", "b", true),
            ("*.md", "README.md", true),
            ("*.md", "docs/README.md", false),
            ("**/*.md", "README.md", true),
            ("**/*.md", "docs/deep/README.md", true),
            ("docs/**", "docs/a/b", true),
            ("docs/**", "docs", false),
            ("**/temp", "a/b/temp/c", true),
            ("**/temp", "attemp", false),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z", true),
            ("a/**/z", "a/bz", false),
            ("**z", "a/z", true),
            ("**z", "az", false),
            ("temp?", "temp1", true),
            ("temp?", "temp", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*/temp*", "a/temporary.txt", true),
            ("*", "a/b", true),
            ("# a", "# a", false),
            ("", "a", false),
        ] {
            assert_eq!(is_out(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn later_lines_win_and_exclamation_marks_include_again() {
        let lines = "*.md\n!README*.md\nREADME-secret.md\n";
        assert!(is_out(lines, "a.md"));
        assert!(!is_out(lines, "README.md"));
        assert!(is_out(lines, "README-secret.md"));
        assert!(!is_out("*\n!src\n", "src/main.rs"));
        assert!(!is_out("node_modules\n!node_modules/keep\n", "node_modules/keep/a"));
        assert!(is_out("node_modules\n!node_modules/keep\n", "node_modules/drop"));
    }

    #[test]
    fn invalid_patterns_are_reported_with_their_line() {
        assert_eq!(Ignore::parse("a\n[b").unwrap_err(), "line 2: `[` without `]`");
        assert_eq!(Ignore::parse("!").unwrap_err(), "line 1: `!` needs a pattern");
    }

    #[test]
    fn hostile_patterns_take_no_time() {
        let pattern = format!("{}x", "**/*".repeat(200));
        assert!(!is_out(&pattern, "a/".repeat(200).trim_end_matches('/')));
    }
}
