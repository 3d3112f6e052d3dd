//! Lines that are longer than the terminal, folded between words.

/// Spaces before the rest of a folded line, more than before the line itself.
const HANGING: usize = 4;

/// No line is folded to less than this, so that a very narrow terminal still shows words.
const SHORTEST: usize = 20;

/// Folds lines longer than `width` columns between words; the rest is indented. Only a word longer than a line is broken.
pub(super) fn fold(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        if columns(line) <= width {
            out.push_str(line);
        } else {
            let indent = line.len() - line.trim_start_matches(' ').len();
            let indent = if indent + HANGING + SHORTEST > width { 0 } else { indent };
            out.push_str(&" ".repeat(indent));
            let next = " ".repeat(indent + HANGING);
            let room = width.max(SHORTEST).saturating_sub(indent + HANGING);
            let lines = words(line.trim_start_matches(' '), room + HANGING, room);
            let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
            out.push_str(&lines.join(&format!("\n{next}")));
        }
        out.push_str(end);
    }
    out
}

/// Folds the comments of a diff, which are the lines that begin with `# `. The rest of a comment is one, too. All other lines are
/// content.
pub(super) fn fold_comments(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let comment = line.strip_prefix("# ").filter(|_| columns(line.trim_end_matches('\n')) > width);
        let Some(comment) = comment else {
            out.push_str(line);
            continue;
        };
        let (comment, end) = comment.strip_suffix('\n').map_or((comment, ""), |comment| (comment, "\n"));
        let room = width.max(SHORTEST).saturating_sub("# ".len() + HANGING);
        let next = format!("\n# {}", " ".repeat(HANGING));
        out.push_str("# ");
        out.push_str(&words(comment, room + HANGING, room).join(&next));
        out.push_str(end);
    }
    out
}

/// A text in lines of at most `first` and then `room` columns.
pub(super) fn words(text: &str, first: usize, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut left = first;
    for word in text.split(' ') {
        let is_start = lines.last().is_some_and(String::is_empty);
        let needed = columns(word) + usize::from(!is_start);
        if needed <= left {
            push(&mut lines, if is_start { "" } else { " " });
            push(&mut lines, word);
            left -= needed;
            continue;
        }
        if !is_start {
            lines.push(String::new());
            left = room;
        }
        for (letter, width) in letters(word) {
            if width > left {
                lines.push(String::new());
                left = room;
            }
            push(&mut lines, letter);
            left -= width.min(left);
        }
    }
    lines
}

fn push(lines: &mut [String], text: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(text);
    }
}

/// Columns of a line on a terminal, without its colours. Wide characters count as one.
pub(super) fn columns(line: &str) -> usize {
    letters(line).map(|(_, width)| width).sum()
}

/// The characters of a line with their columns. A colour, `ESC [ … m`, is one without columns.
fn letters(line: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let colour =
            rest.strip_prefix("\x1b[").and_then(|after| after.find('m')).map(|end| end + "\x1b[m".len());
        let (letter, after) = rest.split_at(colour.unwrap_or(first.len_utf8()));
        rest = after;
        Some((letter, usize::from(colour.is_none())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_a_diff_are_folded_as_comments() {
        let diff = "# shop: note: the agent has other directories\n+++ a name that is longer than the line\n";
        let folded =
            "# shop: note: the agent has\n#     other directories\n+++ a name that is longer than the line\n";
        assert_eq!(fold_comments(diff, 30), folded);
        assert_eq!(fold_comments(diff, 60), diff);
    }

    #[test]
    fn long_lines_are_folded_between_words() {
        let text = "short\n  web is not ready: GET /healthz answers 503\n";
        assert_eq!(fold(text, 30), "short\n  web is not ready: GET\n      /healthz answers 503\n");
        assert_eq!(fold(text, 80), text);
        let long = format!("image {}", "x".repeat(40));
        let folded = fold(&long, 24);
        assert_eq!(folded, format!("image\n    {}\n    {}", "x".repeat(20), "x".repeat(20)));
        assert_eq!(fold(&" ".repeat(100), 30).trim(), "");
    }

    #[test]
    fn colours_take_no_columns() {
        let line = "\x1b[31mred\x1b[0m words that go on and on";
        assert_eq!(columns(line), 27);
        assert_eq!(fold(line, 27), line);
        assert_eq!(fold(line, 26), "\x1b[31mred\x1b[0m words that go on and\n    on");
    }
}
