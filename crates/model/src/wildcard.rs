//! Text patterns with wildcards: `*` is any run of characters, also none.
//!
//! The callers know no other special character (a file name or a host pattern may contain `[` and `{`), therefore
//! this is no glob library. The time is at most the product of both lengths, for every pattern.

/// Whether the whole text matches a pattern in which only `*` is special.
pub fn matches_star(pattern: &str, text: &str) -> bool {
    matches(pattern.as_bytes(), text.as_bytes(), |wanted, found| wanted == found)
}

/// Whether the whole text matches a pattern in which `*` and `?` (one byte) are special, as in `ssh_config(5)`.
pub fn matches_star_and_question(pattern: &str, text: &str) -> bool {
    matches(pattern.as_bytes(), text.as_bytes(), |wanted, found| wanted == b'?' || wanted == found)
}

/// A failed attempt resumes after the last `*` only: what an earlier `*` could take, the last one can take as well.
fn matches(pattern: &[u8], text: &[u8], is_equal: impl Fn(u8, u8) -> bool) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut last_star = None;
    while let Some(&found) = text.get(read) {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                last_star = Some((at, read));
            }
            Some(&wanted) if is_equal(wanted, found) => {
                at += 1;
                read += 1;
            }
            Some(_) | None => {
                let Some((after_star, taken)) = last_star else { return false };
                (at, read) = (after_star, taken + 1);
                last_star = Some((at, read));
            }
        }
    }
    pattern.iter().skip(at).all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn star_matches_any_run_of_characters() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "a"),
            ("a*", "a"),
            ("a*c", "abc"),
            ("*b*", "abc"),
            ("a*b*c", "aXbYc"),
            ("a**c", "ac"),
            ("*ab", "aab"),
            ("é*", "éü"),
            ("[a]{b}?", "[a]{b}?"),
            ("", ""),
        ] {
            assert!(matches_star(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*c", "ab"), ("ab*b", "ab"), ("*b", "abc"), ("", "a"), ("a?", "ab"), ("[a]", "a")]
        {
            assert!(!matches_star(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn question_mark_matches_one_byte() {
        assert!(matches_star_and_question("a?c*", "abcd"));
        assert!(!matches_star_and_question("a?c", "ac"));
        assert!(!matches_star_and_question("?", ""));
    }

    /// The definition, which takes exponential time.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => slow(rest, text) || (!text.is_empty() && slow(pattern, &text[1..])),
            (Some((b'?', rest)), Some((_, after))) => slow(rest, after),
            (Some((one, rest)), Some((other, after))) if one == other => slow(rest, after),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(
                matches_star_and_question(&pattern, &text),
                slow(pattern.as_bytes(), text.as_bytes())
            );
        }
    }
}
