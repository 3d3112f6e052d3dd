//! Letters that change how the text around them is shown: control characters, and those that change its direction.

/// Whether a letter can hide or reorder other text in a terminal or on a page. Line breaks and tabs do so too.
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text on one line with a replacement character for each unprintable letter.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_unprintable(letter) { '\u{fffd}' } else { letter }).collect()
}

/// A text without the escape sequences of terminals (ECMA-48), such as colours, links and titles of windows.
pub fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, sequence)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after_escape(sequence);
    }
    plain.push_str(rest);
    plain
}

/// The text after an escape sequence, which begins after its first character.
fn after_escape(sequence: &str) -> &str {
    if let Some(control) = sequence.strip_prefix('[') {
        let end = control.trim_start_matches(|letter: char| (' '..='?').contains(&letter));
        return end.strip_prefix(|letter: char| ('@'..='~').contains(&letter)).unwrap_or(end);
    }
    if let Some(command) = sequence.strip_prefix(']') {
        let end = command.trim_start_matches(|letter: char| !letter.is_control());
        // Without an end, it is shown.
        return end.strip_prefix('\u{7}').or_else(|| end.strip_prefix("\u{1b}\\")).unwrap_or(command);
    }
    let end = sequence.trim_start_matches(|letter: char| (' '..='/').contains(&letter));
    end.strip_prefix(|letter: char| ('0'..='~').contains(&letter)).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_removed() {
        for (text, plain) in [
            ("\u{1b}[1;31mFATAL\u{1b}[0m: disk", "FATAL: disk"),
            ("\u{1b}]0;title\u{7}a \u{1b}]8;;https://a.b/\u{1b}\\link\u{1b}]8;;\u{1b}\\", "a link"),
            ("a\u{1b}(B\u{1b}[?25l\u{1b}Mb\u{1b}", "ab"),
            ("\u{1b}]no end\nnext \u{1b}[", "no end\nnext "),
            ("Größe [0m", "Größe [0m"),
        ] {
            assert_eq!(without_escapes(text), plain, "{text:?}");
        }
    }

    #[test]
    fn unprintable_letters_are_replaced() {
        assert_eq!(
            printable("fix \u{202e}txt.exe\u{1b}[2K\u{85}\r\n"),
            "fix \u{fffd}txt.exe\u{fffd}[2K\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!(printable("Größe – 日本 עברית"), "Größe – 日本 עברית");
        assert!(is_unprintable('\u{2069}') && is_unprintable('\u{200f}') && !is_unprintable('a'));
    }
}
