//! Which differences are looked at: by labels, and without those that rules ignore.

use super::{Ignore, Item, Report};

/// Labels that an object must have, as kubectl's `-l`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Demand>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Demand {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    HasNot(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no selector: write NAME=VALUE, NAME!=VALUE, NAME or !NAME, with commas between")]
pub struct InvalidSelector(String);

impl Selector {
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let invalid = || InvalidSelector(text.to_owned());
        let demand = |part: &str| {
            let part = part.trim();
            let one = match (part.split_once("!="), part.split_once('=')) {
                (Some((name, value)), _) => Demand::IsNot(name.trim().to_owned(), value.trim().to_owned()),
                (None, Some((name, value))) => {
                    let value = value.strip_prefix('=').unwrap_or(value);
                    Demand::Is(name.trim().to_owned(), value.trim().to_owned())
                }
                (None, None) => match part.strip_prefix('!') {
                    Some(name) => Demand::HasNot(name.trim().to_owned()),
                    None => Demand::Has(part.to_owned()),
                },
            };
            let (Demand::Is(name, _) | Demand::IsNot(name, _) | Demand::Has(name) | Demand::HasNot(name)) =
                &one;
            if name.is_empty() || name.contains(char::is_whitespace) { Err(invalid()) } else { Ok(one) }
        };
        text.split(',').map(demand).collect::<Result<_, _>>().map(Self)
    }

    fn admits(&self, item: &Item) -> bool {
        self.0.iter().all(|demand| match demand {
            Demand::Is(name, value) => item.labels.get(name) == Some(value),
            Demand::IsNot(name, value) => item.labels.get(name) != Some(value),
            Demand::Has(name) => item.labels.contains_key(name),
            Demand::HasNot(name) => !item.labels.contains_key(name),
        })
    }
}

/// Takes away what the selector does not admit. Applications stay, and so do errors.
pub fn keep_objects(report: &mut Report, selector: &Selector) {
    for app in &mut report.apps {
        app.items.retain(|it| selector.admits(it));
        keep_diffs(app, |_| true);
    }
}

/// Marks what does not count. The diff of an object of which nothing counts is taken away.
pub fn ignore(report: &mut Report, rules: &Ignore) {
    for app in &mut report.apps {
        for item in &mut app.items {
            item.ignored = rules.rule_for(&app.name, item).map(str::to_owned);
        }
        keep_diffs(app, |it| it.ignored.is_none());
    }
}

fn keep_diffs(app: &mut super::App, counts: impl Fn(&Item) -> bool) {
    let items = &app.items;
    app.diffs
        .retain(|diff| items.iter().any(|it| it.kind == diff.kind && it.name == diff.name && counts(it)));
}
