//! The source line that a finding points at, unless it may hold a secret.

use driftless_model::{Finding, Mask, is_unprintable};

/// Adds the source line it points at, unless that line may hold a secret.
#[must_use]
pub fn with_excerpt(mut finding: Finding, source: &[u8]) -> Finding {
    let index = (finding.location.line as usize).checked_sub(1);
    let line = index.and_then(|it| source.split(|byte| *byte == b'\n').nth(it));
    let line = line.and_then(|it| std::str::from_utf8(it).ok()).map(str::trim_end);
    finding.excerpt =
        line.filter(|it| is_harmless(it) && !speaks_of_values(&finding.path)).map(str::to_owned);
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
    let telling =
        ["env", "environment", "args", "command", "entrypoint", "content", "data", "stringData", "literals"];
    path.split(['.', '[']).any(|it| telling.contains(&it))
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
}
