//! The check for instructions that only `BuildKit` knows, before a build with the classic builder.

/// Why a build with secrets fails without a session.
pub(super) const SECRETS: &str = "build secrets need BuildKit, which this engine does not have";

/// Flags of instructions that the classic builder does not know.
const FLAGS: &[&str] = &[
    "--mount",
    "--network",
    "--security",
    "--chmod",
    "--link",
    "--parents",
    "--exclude",
    "--checksum",
    "--keep-git-dir",
];

/// Fails if an instruction needs `BuildKit`, with its line.
pub(super) fn check(dockerfile: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(dockerfile);
    let mut is_continued = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_beginning = !is_continued;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        is_continued = line.ends_with('\\');
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default().to_ascii_uppercase();
        if !is_beginning || !matches!(first.as_str(), "RUN" | "COPY" | "ADD") {
            continue;
        }
        let flags = words.clone().take_while(|it| it.starts_with("--"));
        let flag = flags.map(|it| it.split('=').next().unwrap_or(it)).find(|it| FLAGS.contains(it));
        let what = match flag {
            Some(flag) => format!("`{first} {flag}`"),
            None if words.any(is_heredoc) => "a here-document".to_owned(),
            None => continue,
        };
        let number = number + 1;
        return Err(format!(
            "line {number} of the Dockerfile: {what} needs BuildKit, and the BuildKit of this engine supports neither `shm_size` nor `ulimits`: remove those, or update the engine"
        ));
    }
    Ok(())
}

/// `<<EOF`, `<<-"EOF"`
fn is_heredoc(word: &str) -> bool {
    let Some(rest) = word.strip_prefix("<<") else { return false };
    rest.trim_start_matches('-')
        .starts_with(|it: char| it.is_ascii_alphabetic() || matches!(it, '"' | '\'' | '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buildkit_instruction_is_reported_with_its_line() {
        for plain in [
            "FROM a\nRUN make --mount=x",
            "RUN a \\\n --mount=x",
            "# RUN --mount=x",
            "RUN cat <<< x",
            "RUN [\"a\"]",
        ] {
            assert_eq!(check(plain.as_bytes()), Ok(()), "{plain}");
        }
        for (needy, what) in [
            (
                "FROM a\nRUN --mount=type=cache,target=/c make",
                "line 2 of the Dockerfile: `RUN --mount` needs",
            ),
            ("copy --chmod=755 a b", "line 1 of the Dockerfile: `COPY --chmod` needs"),
            ("RUN <<EOF\nmake\nEOF", "line 1 of the Dockerfile: a here-document needs"),
        ] {
            let error = check(needy.as_bytes()).unwrap_err();
            assert!(error.starts_with(what), "{error}");
        }
    }
}
