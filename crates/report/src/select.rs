//! Selects differences: by labels, and without those that rules ignore.

use crate::{
    ignore::Ignore,
    report::{App, Item, Report},
};

/// A label selector with the syntax of kubectl's `-l`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    HasNot(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a selector: write NAME=VALUE, NAME!=VALUE, NAME or !NAME, with commas between")]
pub struct InvalidSelector(String);

impl Selector {
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let invalid = || InvalidSelector(text.to_owned());
        let demand = |part: &str| {
            let part = part.trim();
            let one = match (part.split_once("!="), part.split_once('=')) {
                (Some((name, value)), _) => {
                    Requirement::IsNot(name.trim().to_owned(), value.trim().to_owned())
                }
                (None, Some((name, value))) => {
                    let value = value.strip_prefix('=').unwrap_or(value);
                    Requirement::Is(name.trim().to_owned(), value.trim().to_owned())
                }
                (None, None) => match part.strip_prefix('!') {
                    Some(name) => Requirement::HasNot(name.trim().to_owned()),
                    None => Requirement::Has(part.to_owned()),
                },
            };
            let (Requirement::Is(name, _)
            | Requirement::IsNot(name, _)
            | Requirement::Has(name)
            | Requirement::HasNot(name)) = &one;
            if name.is_empty() || name.contains(char::is_whitespace) { Err(invalid()) } else { Ok(one) }
        };
        text.split(',').map(demand).collect::<Result<_, _>>().map(Self)
    }

    fn matches(&self, item: &Item) -> bool {
        self.0.iter().all(|demand| match demand {
            Requirement::Is(name, value) => item.labels.get(name) == Some(value),
            Requirement::IsNot(name, value) => item.labels.get(name) != Some(value),
            Requirement::Has(name) => item.labels.contains_key(name),
            Requirement::HasNot(name) => !item.labels.contains_key(name),
        })
    }
}

/// Removes the differences of objects that the selector does not match. Applications and errors stay.
pub fn keep_objects(report: &mut Report, selector: &Selector) {
    for app in &mut report.apps {
        app.items.retain(|it| selector.matches(it));
        keep_diffs(app, |_| true);
    }
}

/// Marks ignored differences besides those that the manifest ignores, and removes the diff of an object whose differences are
/// all ignored.
pub fn ignore(report: &mut Report, rules: &Ignore) {
    for app in &mut report.apps {
        for item in &mut app.items {
            if item.ignored.is_none() {
                item.ignored = rules.rule_for(&app.name, item).map(str::to_owned);
            }
        }
        keep_diffs(app, |it| it.ignored.is_none());
    }
}

fn keep_diffs(app: &mut App, counts: impl Fn(&Item) -> bool) {
    let items = &app.items;
    app.diffs
        .retain(|diff| items.iter().any(|it| it.kind == diff.kind && it.name == diff.name && counts(it)));
}
