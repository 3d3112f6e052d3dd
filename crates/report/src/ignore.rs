//! The file of ignored differences: `APP KIND/NAME [PATH]` per line, with `*` for any text.

use crate::report::Item;
use driftless_model::{AppName, matches_star};

/// The rules of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignore(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// File and line of the rule, shown as the reason.
    place: String,
    app: String,
    object: String,
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: `{text}` is not a rule: write APP KIND/NAME [PATH], each with `*` for any text")]
pub struct InvalidRule {
    file: String,
    line: usize,
    text: String,
}

impl Ignore {
    /// Reads a file. A `#` at the beginning of a word starts a comment.
    pub fn parse(file: &str, text: &str) -> Result<Self, InvalidRule> {
        let mut rules = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split_whitespace().take_while(|it| !it.starts_with('#')).collect();
            let (app, object, path) = match words.as_slice() {
                [] => continue,
                [app, object] => (*app, *object, "*"),
                [app, object, path] => (*app, *object, *path),
                _ => {
                    return Err(InvalidRule {
                        file: file.to_owned(),
                        line: number,
                        text: line.trim().to_owned(),
                    });
                }
            };
            if object != "*" && !object.contains('/') {
                return Err(InvalidRule {
                    file: file.to_owned(),
                    line: number,
                    text: line.trim().to_owned(),
                });
            }
            rules.push(Rule {
                place: format!("{file}:{number}"),
                app: app.to_owned(),
                object: object.to_owned(),
                path: path.to_owned(),
            });
        }
        Ok(Self(rules))
    }

    /// File and line of the first rule that matches a difference.
    pub(super) fn rule_for(&self, app: &AppName, item: &Item) -> Option<&str> {
        let object = format!("{}/{}", item.kind, item.name);
        let is_named = |it: &&Rule| {
            matches_star(&it.app, app.as_str())
                && matches_star(&it.object, &object)
                && matches_star(&it.path, &item.path)
        };
        self.0.iter().find(is_named).map(|it| it.place.as_str())
    }
}
