//! The source line that a finding points at, unless it may hold a secret.

use driftless_model::{Finding, Mask, is_unprintable};

/// Adds the source line it points at, unless that line may hold a secret. `source` is the text that may be quoted.
#[must_use]
pub fn with_excerpt(mut finding: Finding, source: &[u8]) -> Finding {
    let index = (finding.location.line as usize).checked_sub(1);
    let line = index.and_then(|it| source.split(|byte| *byte == b'\n').nth(it));
    let line = line.and_then(|it| std::str::from_utf8(it).ok()).map(str::trim_end);
    let may_be_value = |finding: &Finding| match finding.path.as_str() {
        "" => may_be_value(source, index.unwrap_or_default()),
        path => speaks_of_values(path),
    };
    finding.excerpt = line.filter(|it| is_harmless(it) && !may_be_value(&finding)).map(str::to_owned);
    finding
}

/// A line without any sign of a secret, and short enough to print.
fn is_harmless(line: &str) -> bool {
    !line.trim().is_empty()
        && line.len() <= 200
        && !has_secret(line)
        && !line.contains("://")
        && !line.contains("value:")
        && !line.chars().any(|letter| is_unprintable(letter) && letter != '\t')
}

/// Whether a name in the line tells of a secret, or the mask hides a part of the line.
fn has_secret(line: &str) -> bool {
    let is_of_name = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    let mut names = line.split(|letter| !is_of_name(letter));
    names.any(Mask::is_telling) || Mask::new([0; 32]).text(line) != line
}

/// Environments, arguments and contents may hold a secret under any name.
fn speaks_of_values(path: &str) -> bool {
    path.split(['.', '[']).any(holds_values)
}

fn holds_values(key: &str) -> bool {
    let telling =
        ["env", "environment", "args", "command", "entrypoint", "content", "data", "stringData", "literals"];
    telling.contains(&key)
}

/// Whether a line that no path describes may be a value: it is an error of syntax, or a key is there twice.
///
/// The indentation of the line may be the mistake, so the line above it counts too, and a Secret hides its whole file.
fn may_be_value(source: &[u8], index: usize) -> bool {
    let Ok(text) = std::str::from_utf8(source) else { return true };
    let is_secret = |word: &str| matches!(word, "Secret" | "secretGenerator");
    if text.split(|letter: char| !letter.is_alphanumeric()).any(is_secret) {
        return true;
    }
    let lines: Vec<&str> = text.lines().take(index + 1).collect();
    let is_written = |index: &usize| lines.get(*index).is_some_and(|line| !is_blank(line));
    let above = (0..index).rev().find(is_written);
    [Some(index), above].into_iter().flatten().any(|it| is_among_values(&lines, it))
}

/// Whether a line, or a line that encloses it by its indentation, has the key of values.
fn is_among_values(lines: &[&str], index: usize) -> bool {
    let mut least = usize::MAX;
    let above = lines.iter().take(index + 1).rev().filter(|line| !is_blank(line));
    let mut enclosing = above.filter(|line| {
        let depth = depth(line);
        let is_outer = depth < least;
        least = least.min(depth);
        is_outer
    });
    enclosing.any(|line| {
        let key = line.trim_start_matches([' ', '\t', '-']).split(':').next().unwrap_or_default();
        holds_values(key.trim_end().trim_matches(['"', '\'']))
    })
}

/// The depth by indentation. The items of a list may be as far to the left as its key.
fn depth(line: &str) -> usize {
    let text = line.trim_start();
    2 * (line.len() - text.len()) + usize::from(text.starts_with("- "))
}

fn is_blank(line: &str) -> bool {
    let text = line.trim_start();
    text.is_empty() || text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Location;

    #[test]
    fn an_excerpt_shows_the_line_but_no_secret() {
        let source = b"image: nginx\nDB_PASSWORD: hunter2\n";
        let at = |line| Finding::error(Location::new("a.yaml", line, 1), "", "wrong");
        assert_eq!(with_excerpt(at(1), source).excerpt.as_deref(), Some("image: nginx"));
        assert_eq!(with_excerpt(at(2), source).excerpt, None);
        assert_eq!(with_excerpt(at(0), source).excerpt, None);
        assert_eq!(with_excerpt(at(9), source).excerpt, None);
        let mut in_env = at(1);
        in_env.path = "services.web.environment[0]".to_owned();
        assert_eq!(with_excerpt(in_env, source).excerpt, None);
    }
    #[test]
    fn errors_of_syntax_quote_no_value() {
        let quoted = |source: &str, line| {
            let finding = Finding::error(Location::new("a.yaml", line, 1), "", "wrong");
            with_excerpt(finding, source.as_bytes()).excerpt.is_some()
        };
        let compose = "services:\n  web:\n    environment:\n    - a\n      b: c: d\n    image: x: y\n    labels: q: r\n";
        assert!(!quoted(compose, 4) && !quoted(compose, 5));
        assert!(quoted(compose, 1) && quoted(compose, 7));
        // The text belongs to the key above, and is not indented far enough.
        assert!(!quoted("web:\n  content: |\nabc: d: e\n", 3));
        assert!(!quoted("data: {admin: one, admin: two}\n", 1));
        let secret = "kind: Secret\nmetadata: {}\nadmin: one\n";
        assert!(!quoted(secret, 3) && !quoted("{\"kind\": \"Secret\"}\n", 1));
        assert!(quoted(&secret.replace("Secret", "Secrets"), 3));
    }
}
