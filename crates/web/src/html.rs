//! Text that becomes HTML: escaping, and how times and names are shown. It knows no page.

use std::{fmt, time::Duration};

use driftless_model::Timestamp;

/// Text in which nothing is markup: good between tags, and inside double-quoted attributes.
pub(super) struct Text<T>(pub(super) T);

impl<T: fmt::Display> fmt::Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                // Characters that no HTML may hold, such as those of terminal colours.
                it if it.is_control() && it != '\n' && it != '\t' => self.0.write_char('\u{fffd}')?,
                it => self.0.write_char(it)?,
            }
        }
        Ok(())
    }
}

/// A moment, as seen from now: `12 s ago`, `in 3 min`; with the exact time for whoever points at it.
pub(super) struct Moment {
    pub(super) at: Timestamp,
    pub(super) now: Timestamp,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, now } = self;
        write!(f, r#"<time datetime="{at}" title="{at}">"#)?;
        if at > now {
            write!(f, "in {}", rough(at.since(*now)))?;
        } else {
            write!(f, "{} ago", rough(now.since(*at)))?;
        }
        f.write_str("</time>")
    }
}

/// A moment at which something will be done: `in 18 s`, or `now` when it has come.
pub(super) struct Due {
    pub(super) at: Timestamp,
    pub(super) now: Timestamp,
}

impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, now } = *self;
        if at > now { Moment { at, now }.fmt(f) } else { f.write_str("now") }
    }
}

/// The largest unit that fits: `48 s`, `5 min`, `3 h`, `12 d`.
fn rough(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        let text = Text("<script>alert(\"1\" & '2')</script>\u{1b}[31m").to_string();
        assert_eq!(text, "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;\u{fffd}[31m");
    }

    #[test]
    fn moments_are_told_from_now() {
        let now = Timestamp(10_000_000);
        let shown = |at| Moment { at: Timestamp(at), now }.to_string();
        assert!(shown(9_952_000).contains(">48 s ago<"), "{}", shown(9_952_000));
        assert!(shown(10_180_000).contains(">in 3 min<"), "{}", shown(10_180_000));
    }
}
