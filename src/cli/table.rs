//! Aligned columns. The last column is not padded. Text is cut only by [`Table::fit`], and folded only by [`Table::fold`].

use super::{
    fold::words,
    screen::{Colours, Paint},
};

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
    /// The width at which the last column is folded.
    folded_at: Option<usize>,
}

/// Columns wider than this may be cut.
const SHORTEST: usize = 12;

/// The room that other columns leave for the last one.
const LEAST_FOR_LAST: usize = 16;

/// A last column that is folded begins on a line of its own if it has less room than this.
const LEAST_TO_FOLD: usize = 24;

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
        Self {
            indent,
            gap: 2,
            head: head.iter().map(|it| (*it).to_owned()).collect(),
            rows: Vec::new(),
            folded_at: None,
        }
    }

    /// Sets the number of spaces between two columns.
    pub(super) fn spaced(self, gap: usize) -> Self {
        Self { gap, ..self }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Cuts the last column, and the widest of the others, so that no line is longer than `limit` columns.
    pub(super) fn fit(&mut self, limit: usize) {
        let mut widths = self.widths();
        let Some(last) = widths.pop() else { return };
        let needed = last.min(LEAST_FOR_LAST);
        while self.start_of_last(&widths) + needed > limit {
            let Some(widest) = widths.iter_mut().max().filter(|width| **width > SHORTEST) else { break };
            *widest -= 1;
        }
        widths.push(limit.saturating_sub(self.start_of_last(&widths)));
        for row in &mut self.rows {
            for (cell, width) in row.iter_mut().zip(&widths) {
                cell.text = cut(&cell.text, *width);
            }
        }
    }

    /// Folds the last column between words, so that lines are not longer than `limit` columns.
    pub(super) fn fold(&mut self, limit: usize) {
        self.folded_at = Some(limit);
    }

    /// Whether no line is longer than `limit` columns.
    pub(super) fn fits(&self, limit: usize) -> bool {
        let mut widths = self.widths();
        let last = widths.pop().unwrap_or_default();
        self.start_of_last(&widths) + last <= limit
    }

    /// The column at which the last cell of a row begins.
    fn start_of_last(&self, fixed: &[usize]) -> usize {
        self.indent + fixed.iter().map(|width| width + self.gap).sum::<usize>()
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
            for (column, (wide, cell)) in widths.iter().zip(row).enumerate() {
                // Padding is written before the next text, so that no line ends in spaces.
                if !cell.text.is_empty() {
                    let is_last = column + 1 == widths.len();
                    let (lines, indent) =
                        if is_last { self.folded(cell, &widths) } else { (vec![cell.text.clone()], 0) };
                    line.push_str(&" ".repeat(gap));
                    gap = 0;
                    for (index, text) in lines.iter().enumerate() {
                        if index > 0 {
                            line.truncate(line.trim_end().len());
                            line.push('\n');
                            line.push_str(&" ".repeat(indent));
                        }
                        line.push_str(
                            &cell.paint.map_or_else(|| text.clone(), |paint| colours.paint(paint, text)),
                        );
                    }
                }
                gap += wide.saturating_sub(width(&cell.text)) + self.gap;
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// The lines of a last cell, and the column at which those after the first begin. Where there is little room, the first
    /// is empty.
    fn folded(&self, cell: &Cell, widths: &[usize]) -> (Vec<String>, usize) {
        const INDENT: usize = 4;
        let start = self.start_of_last(widths.split_last().map_or(&[], |(_, fixed)| fixed));
        let limit = self.folded_at.unwrap_or(usize::MAX);
        let room = limit.saturating_sub(start);
        if width(&cell.text) <= room {
            return (vec![cell.text.clone()], start);
        }
        let longest = cell.text.split(' ').map(width).max().unwrap_or_default();
        if room >= LEAST_TO_FOLD.max(longest) {
            return (words(&cell.text, room, room), start);
        }
        let indent = self.indent + INDENT;
        let room = limit.saturating_sub(indent).max(LEAST_TO_FOLD);
        (std::iter::once(String::new()).chain(words(&cell.text, room, room)).collect(), indent)
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
    fn last_column_is_folded_or_gets_lines_of_its_own() {
        let mut table = Table::new(0, &["NAME", "WHY"]);
        table.row(["web".into(), "not ready: GET /healthz answers 503 in time".into()]);
        table.row(["db".into(), "registry.example.com/library/postgres:17 is missing".into()]);
        table.fold(44);
        insta::assert_snapshot!(table.render(Colours::Off), @r"
        NAME  WHY
        web   not ready: GET /healthz answers 503 in
              time
        db
            registry.example.com/library/postgres:17
            is missing
        ");
    }

    #[test]
    fn widest_columns_are_cut_first() {
        let mut table = Table::new(0, &["HOST", "APPLICATION", "REASON"]);
        let row = ["nas-in-the-cellar", "a-very-long-application-name", "it does not answer any request"];
        table.row(row.map(Cell::from));
        table.fit(50);
        let text = table.render(Colours::Off);
        assert!(
            text.lines().all(|line| width(line) <= 50)
                && text.contains("nas-in-the-cel…  a-very-long-ap…  it"),
            "{text}"
        );
    }

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
