//! Plain words: comments name things instead of asking about them, and words that a reader has to look up are not used.

use std::fs;

use crate::architecture::sources;

/// Words that are not used in sources and documents. Each has a plain replacement: "every", "a user who", "next to", "again".
const OLD_WORDS: &[&str] =
    &["whatever", "whoever", "whichever", "beside", "anew", "at hand", "is told", "are told", "whomever"];

/// Comments do not open with these words: "How long X may take" is "The time limit of X", "What is at a path" is "The
/// object at a path".
const OPENINGS: &[&str] = &["What", "Who", "Whoever", "Whatever", "Where", "How", "Which", "Whose"];

/// Parts of a test's name that say that it names no behaviour.
const VAGUE: &[&str] = &["what", "who", "whoever", "whatever", "whose", "anew", "beside", "told"];

/// In letters.
const LONGEST_TEST_NAME: usize = 60;

/// Sources that are checked: all but this file.
fn files() -> Vec<(String, String)> {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path());
    let folders = crates.chain(["src", "tests", "benches"].map(Into::into));
    let files = folders.flat_map(|folder| sources(&folder)).map(|path| path.to_str().unwrap().to_owned());
    let files = files.filter(|path| path != "tests/it/words.rs");
    let files: Vec<(String, String)> =
        files.map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect();
    assert!(files.len() > 400, "{} files", files.len());
    files
}

/// The text of a line's comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

/// The first of the words that a text contains as a whole word.
fn old_word(text: &str) -> Option<&'static str> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let text = format!(" {} ", words.collect::<Vec<_>>().join(" ").to_lowercase());
    OLD_WORDS.iter().find(|word| text.contains(&format!(" {word} "))).copied()
}

#[test]
fn old_words_are_found_as_whole_words() {
    assert_eq!(old_word("runs beside it"), Some("beside"));
    assert_eq!(old_word("Whatever is asked,"), Some("whatever"));
    assert_eq!(old_word("is at\nhand."), Some("at hand"));
    assert_eq!(old_word("besides a manewver; the hand"), None);
}

#[test]
fn comments_use_plain_words() {
    let mut wrong = Vec::new();
    for (path, source) in files().into_iter() {
        let lines: Vec<&str> = source.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(text) = comment(line) else { continue };
            let place = format!("{path}:{}", index + 1);
            if let Some(word) = old_word(text) {
                wrong.push(format!("{place}: `{word}`: {text}"));
            }
            let before = index.checked_sub(1).and_then(|index| comment(lines[index]));
            let is_first = before.is_none_or(str::is_empty);
            let opening = text.split(' ').next().unwrap_or_default();
            if is_first && OPENINGS.contains(&opening) {
                wrong.push(format!("{place}: opens with `{opening}`; name the thing: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documents_use_plain_words() {
    let mut wrong = Vec::new();
    let mut folders = vec!["docs".into()];
    let mut pages: Vec<std::path::PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(Into::into).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 30, "{pages:?}");
    for path in pages {
        let mut is_code = false;
        for (index, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            if let Some(word) = old_word(line).filter(|_| !is_code) {
                wrong.push(format!("{}:{}: `{word}`: {line}", path.display(), index + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn closures_of_several_lines_name_their_parameter() {
    let mut wrong = Vec::new();
    for (path, source) in files() {
        let lines = source.lines().enumerate().filter(|(_, line)| line.ends_with("|it| {"));
        wrong.extend(lines.map(|(index, line)| format!("{path}:{}: {}", index + 1, line.trim())));
    }
    assert!(wrong.is_empty(), "name the parameter after the thing:\n{}", wrong.join("\n"));
}

#[test]
fn tests_are_named_after_behaviour() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (path, source) in files() {
        let mut is_test = false;
        for line in source.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if is_test && !line.starts_with("#[") && !line.starts_with("//") {
                let name =
                    line.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap_or_default();
                count += 1;
                if name.len() > LONGEST_TEST_NAME || name.split('_').any(|word| VAGUE.contains(&word)) {
                    wrong.push(format!("{path}: {name}"));
                }
                is_test = false;
            }
        }
    }
    assert!(count > 900, "{count} tests");
    assert!(wrong.is_empty(), "name the behaviour:\n{}", wrong.join("\n"));
}
