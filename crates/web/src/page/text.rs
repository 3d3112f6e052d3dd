//! Texts and times on the page. Templates escape markup; this file removes characters that are no text.

use std::{
    fmt::{Display, Write},
    time::Duration,
};

use driftless_model::{Timestamp, is_unprintable};
use maud::{Markup, Render, html};

/// A text from outside, such as a commit subject or a log line.
///
/// Control characters (those of terminal colours, for example) and the marks that change the direction of writing
/// become U+FFFD: the first may not be in HTML, the second make a text read as another one.
pub(super) struct Text<T>(pub(super) T);

impl<T: Display> Render for Text<T> {
    fn render_to(&self, buffer: &mut String) {
        let mut text = String::new();
        // Writing to a string cannot fail, and a type whose `Display` does has nothing to show.
        if write!(text, "{}", self.0).is_ok() {
            text.chars().map(visible).collect::<String>().render_to(buffer);
        }
    }
}

/// The longest value that is shown whole, in characters, and the part of a longer one.
const LONGEST_VALUE: usize = 200;
const START_OF_VALUE: usize = 60;

/// A value from outside, which may be as long as a whole file: folded if it is long.
pub(super) struct Folded<'a>(pub(super) &'a str);

impl Render for Folded<'_> {
    fn render_to(&self, buffer: &mut String) {
        let Self(text) = self;
        if text.chars().nth(LONGEST_VALUE).is_none() {
            return Text(text).render_to(buffer);
        }
        let start: String = text.chars().take(START_OF_VALUE).collect();
        html! { details { summary { (Text(start)) "…" } (Text(text)) } }.render_to(buffer);
    }
}

fn visible(letter: char) -> char {
    if is_unprintable(letter) && letter != '\n' && letter != '\t' { '\u{fffd}' } else { letter }
}

/// Instead of the present time in a part that is sent while the page is open: the script writes the relative times, so
/// that a part stays equal while nothing changes.
pub(super) const LIVE: Timestamp = Timestamp(0);

/// A time relative to now, such as `12 s ago` or `in 3 min`; its title is the exact time.
#[derive(Clone, Copy)]
pub(super) struct RelativeTime {
    pub(super) at: Timestamp,
    pub(super) now: Timestamp,
}

impl Render for RelativeTime {
    fn render(&self) -> Markup {
        let Self { at, now } = self;
        html! {
            time datetime=(Text(at)) title=(Text(at)) {
                @if *now == LIVE { (Text(at)) }
                @else if at > now { "in " (rough(at.since(*now))) } @else { (rough(now.since(*at))) " ago" }
            }
        }
    }
}

/// When something will be done: `in 18 s`, or `now` once that time has come.
pub(super) struct Deadline {
    pub(super) at: Timestamp,
    pub(super) now: Timestamp,
}

impl Render for Deadline {
    fn render(&self) -> Markup {
        let Self { at, now } = *self;
        html! {
            time datetime=(Text(at)) title=(Text(at)) data-until {
                @if now == LIVE { (Text(at)) }
                @else if at > now { "in " (rough(at.since(now))) }
                @else { "now" }
            }
        }
    }
}

/// The duration of something: `12 s`, `5 min`.
pub(super) fn took(span: Duration) -> String {
    rough(span)
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
    fn text_is_never_markup() {
        let text = Text("<script>alert(\"1\" & '2')</script>\u{1b}[31m").render().into_string();
        assert_eq!(text, "&lt;script&gt;alert(&quot;1&quot; &amp; '2')&lt;/script&gt;\u{fffd}[31m");
    }

    #[test]
    fn long_value_is_folded() {
        assert_eq!(Folded("a<b").render().into_string(), "a&lt;b");
        let long = "é".repeat(LONGEST_VALUE + 1);
        let folded = Folded(&long).render().into_string();
        let start = "é".repeat(START_OF_VALUE);
        assert_eq!(folded, format!("<details><summary>{start}…</summary>{long}</details>"));
    }

    #[test]
    fn direction_marks_are_replaced() {
        assert_eq!(Text("a\u{202e}b\u{2066}c").render().into_string(), "a\u{fffd}b\u{fffd}c");
    }

    #[test]
    fn times_are_shown_relative_to_now() {
        let now = Timestamp(10_000_000);
        let shown = |at| RelativeTime { at: Timestamp(at), now }.render().into_string();
        assert!(shown(9_952_000).contains(">48 s ago<"), "{}", shown(9_952_000));
        assert!(shown(10_180_000).contains(">in 3 min<"), "{}", shown(10_180_000));
    }
}
