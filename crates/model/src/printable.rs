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

#[cfg(test)]
mod tests {
    use super::*;

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
