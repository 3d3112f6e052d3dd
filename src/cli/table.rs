//! Aligned columns. The last column is not padded. Text is cut only by [`Table::fit`].

use super::screen::{Colours, Paint};

/// One cell: its text, and its colour if it has one.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    paint: Option<Paint>,
}

#[derive(Debug)]
pub(super) struct Table {
    indent: usize,
    /// Number of spaces between two columns.
    gap: usize,
    head: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Cell {
    pub(super) fn painted(paint: Paint, text: impl Into<String>) -> Self {
        Self { text: one_line(&text.into()), paint: Some(paint) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: one_line(&text.into()), paint: None }
    }
}

impl Table {
    pub(super) fn new(indent: usize, head: &[&str]) -> Self {
        Self { indent, gap: 2, head: head.iter().map(|it| (*it).to_owned()).collect(), rows: Vec::new() }
    }

    /// Sets the number of spaces between two columns.
    pub(super) fn spaced(self, gap: usize) -> Self {
        Self { gap, ..self }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Cuts the first and the last column so that no line is longer than `limit` columns.
    pub(super) fn fit(&mut self, limit: usize) {
        const SHORTEST_FIRST: usize = 12;
        const LEAST_FOR_LAST: usize = 16;
        let widths = self.widths();
        let Some((last, fixed)) = widths.split_last() else { return };
        let taken: usize = self.indent + fixed.iter().map(|width| width + self.gap).sum::<usize>();
        let needed = (*last).min(LEAST_FOR_LAST);
        let excess = (taken + needed).saturating_sub(limit);
        let first = fixed.first().copied().unwrap_or_default();
        let first_limit = first.saturating_sub(excess).max(first.min(SHORTEST_FIRST));
        let last_limit = limit.saturating_sub(taken - (first - first_limit));
        let cut_row = |row: &mut Vec<Cell>| {
            if let Some(cell) = row.first_mut() {
                cell.text = cut(&cell.text, first_limit);
            }
            if let Some(cell) = row.get_mut(widths.len() - 1) {
                cell.text = cut(&cell.text, last_limit);
            }
        };
        self.rows.iter_mut().for_each(cut_row);
    }

    /// The width of each column.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|head| width(head)).collect();
        for row in &self.rows {
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = (*wide).max(width(&cell.text));
            }
        }
        widths
    }

    pub(super) fn render(&self, colours: Colours) -> String {
        let widths = self.widths();
        let head = self.head.iter().map(|it| Cell::painted(Paint::Soft, it.clone())).collect();
        let mut out = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = " ".repeat(self.indent);
            let mut gap = 0;
            for (wide, cell) in widths.iter().zip(row) {
                // Padding is written before the next text, so that no line ends in spaces.
                if !cell.text.is_empty() {
                    line.push_str(&" ".repeat(gap));
                    gap = 0;
                    line.push_str(&match cell.paint {
                        Some(paint) => colours.paint(paint, &cell.text),
                        None => cell.text.clone(),
                    });
                }
                gap += wide.saturating_sub(width(&cell.text)) + self.gap;
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// A cell has one line: line breaks become spaces, and control characters are escaped.
fn one_line(text: &str) -> String {
    super::screen::plain(text).replace(['\n', '\t'], " ")
}

/// The first `limit` columns of a text, with `…` in place of the rest.
fn cut(text: &str, limit: usize) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(std::iter::once('…')).take(limit).collect()
}

/// Width in columns; wide characters count as one.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_blanks() {
        let mut table = Table::new(2, &["NAME", "STATE", "MESSAGE"]);
        table.row(["a".into(), Cell::painted(Paint::Good, "Healthy"), "".into()]);
        table.row(["a-longer-name".into(), "".into(), "two\nlines\u{1b}[31m".into()]);
        insta::assert_snapshot!(table.render(Colours::Off), @r"
          NAME           STATE    MESSAGE
          a              Healthy
          a-longer-name           two lines�[31m
        ");
    }
}
