//! Builds a report from differences: one item per field, one diff per object, then the counts.

use std::collections::BTreeMap;

use crate::report::{APPLICATION, Action, App, Item, ObjectDiff, Report, Summary, Type};
use driftless_model::{AppName, Drift, DriftAction, EffectiveSetting, Location, Mask, Stack};
use driftless_plan::{Change, ObjectDifference, compare_live, compare_stacks, unified_diff};

/// The labels of the two sides in the first two lines of a diff.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// `live`, or the base's short id.
    pub from: &'a str,
    /// `git@0123456`, or the head's short id.
    pub to: &'a str,
}

/// Begin of a hidden value.
const HIDDEN: &str = Mask::HIDDEN;

/// An application without differences yet.
pub fn application(name: &AppName, path: &str) -> App {
    App {
        name: name.clone(),
        path: path.to_owned(),
        commit: None,
        sync_status: None,
        health: None,
        suspended: false,
        pinned: None,
        has_drift: false,
        error: None,
        known_error: None,
        note: None,
        hosts: Vec::new(),
        items: Vec::new(),
        diffs: Vec::new(),
    }
}

/// Adds the differences between Git and the running containers. `drifts` holds the planner's action for each.
pub fn of_live(
    app: &mut App,
    target: &driftless_plan::Target<'_>,
    observed: &driftless_model::Observed,
    record: &driftless_model::Record,
    drifts: &[Drift],
    context: Context<'_>,
) {
    let found = compare_live(target, observed, record);
    let is_left_alone = target.policy.suspended;
    for difference in &found {
        let types = [Type::Missing, Type::Extra];
        add(app, difference, types, context);
    }
    for item in &mut app.items {
        let told = drifts.iter().find(|it| it.object == item.name && is_same_field(&it.field, &item.path));
        item.first_seen = told.and_then(|it| it.at);
        item.action = Some(match told.map(|it| it.action) {
            Some(DriftAction::Heal) => Action::Heal,
            Some(DriftAction::BackOff) => Action::BackOff,
            Some(DriftAction::Report) => Action::Report,
            Some(DriftAction::Ineffective) => Action::Ineffective,
            None if is_left_alone => Action::Report,
            None => Action::Sync,
        });
    }
}

/// Whether the planner's name of a field covers `path`: it says `networks.x` for `networks.x.aliases`, and `state`
/// for a missing object.
fn is_same_field(told: &str, path: &str) -> bool {
    path.is_empty() || told == path || path.strip_prefix(told).is_some_and(|it| it.starts_with('.'))
}

/// Adds the differences between two rendered stacks.
pub fn of_stacks(app: &mut App, from: Option<&Stack>, to: Option<&Stack>, mask: &Mask, context: Context<'_>) {
    for difference in compare_stacks(from, to, mask) {
        let removed = if difference.kind == "volume" { Type::Kept } else { Type::Removed };
        add(app, &difference, [Type::Added, removed], context);
    }
}

/// Adds the change that the head of a preview can be rendered and the base cannot.
pub fn errors_mended(app: &mut App) {
    let item = of_application(app, "manifests", "without errors", "with errors", &Location::default());
    app.items.push(item);
}

/// Adds the removal of an application whose base cannot be rendered, so that no object shows it.
pub fn application_removed(app: &mut App) {
    let item = of_application(app, "", "", "", &Location::default());
    app.items.push(Item { change: Type::Removed, ..item });
}

/// Adds the settings of an application that are not the same in two commits, each with its place in the newer one.
pub fn of_settings(app: &mut App, from: &[EffectiveSetting], to: &[EffectiveSetting], context: Context<'_>) {
    let before: BTreeMap<&str, &EffectiveSetting> =
        from.iter().map(|setting| (setting.key.as_str(), setting)).collect();
    for setting in to {
        let Some(old) = before.get(setting.key.as_str()).filter(|old| old.value != setting.value) else {
            continue;
        };
        // A setting that the newer commit does not have any more has no line there.
        let file_before = || old.origin.as_ref().map(|place| Location::file(place.file.as_str()));
        let place = setting.origin.clone().or_else(file_before).unwrap_or_default();
        let path = format!("settings.{}", setting.key);
        let item = of_application(app, &path, &setting.value, &old.value, &place);
        app.items.push(item);
    }
    let lines = |settings: &[EffectiveSetting]| -> String {
        settings.iter().flat_map(|setting| [setting.key.as_str(), ": ", &setting.value, "\n"]).collect()
    };
    let label = |side: &str| format!("{side}/{}/application/{}", app.name, app.name);
    let text = unified_diff(&label(context.from), &lines(from), &label(context.to), &lines(to));
    if !text.is_empty() {
        app.diffs.push(ObjectDiff { kind: APPLICATION.to_owned(), name: app.name.to_string(), text });
    }
}

/// A change of an application as a whole.
fn of_application(app: &App, path: &str, want: &str, got: &str, place: &Location) -> Item {
    Item {
        kind: APPLICATION.to_owned(),
        name: app.name.to_string(),
        change: Type::Modified,
        path: path.to_owned(),
        want: want.to_owned(),
        got: got.to_owned(),
        masked: false,
        file: place.file.clone(),
        line: place.line,
        action: None,
        first_seen: None,
        ignored: None,
        labels: BTreeMap::new(),
    }
}

fn add(app: &mut App, difference: &ObjectDifference, [missing, extra]: [Type; 2], context: Context<'_>) {
    let ObjectDifference { kind, name, origin, labels, change, fields, ignored, want, found } = difference;
    let item = |change: Type, path: &str, want: &str, got: &str| Item {
        kind: (*kind).to_owned(),
        name: name.clone(),
        change,
        path: path.to_owned(),
        want: want.to_owned(),
        got: got.to_owned(),
        masked: want.contains(HIDDEN) || got.contains(HIDDEN),
        file: origin.file.clone(),
        line: origin.line,
        action: None,
        first_seen: None,
        ignored: None,
        labels: labels.clone(),
    };
    match change {
        Change::Missing => app.items.push(item(missing, "", "", "")),
        Change::Extra => app.items.push(item(extra, "", "", "")),
        Change::Modified => app.items.extend(fields.iter().map(|field| {
            let change = match field.field.as_str() {
                "image" | "TaskTemplate.ContainerSpec.Image" => Type::Image,
                "state" => Type::Stopped,
                _ => Type::Modified,
            };
            let ignored = ignored.get(&field.field).map(|rule| format!("ignoreDifferences: {rule}"));
            Item { ignored, ..item(change, &field.field, &field.want, &field.found) }
        })),
    }
    let label = |side: &str| format!("{side}/{}/{kind}/{name}", app.name);
    let (from, to) = match change {
        Change::Missing => ("/dev/null".to_owned(), label(context.to)),
        Change::Extra => (label(context.from), "/dev/null".to_owned()),
        Change::Modified => (label(context.from), label(context.to)),
    };
    let text = unified_diff(&from, found, &to, want);
    // An added or removed object is reported even if it has no fields to list.
    let text =
        if text.is_empty() && *change != Change::Modified { format!("--- {from}\n+++ {to}\n") } else { text };
    if !text.is_empty() {
        app.diffs.push(ObjectDiff { kind: (*kind).to_owned(), name: name.clone(), text });
    }
}

/// Sorts the report, numbers its hidden values and counts: the last step before it is written.
pub fn settle(report: &mut Report) {
    report.apps.sort_by(|a, b| a.name.cmp(&b.name));
    for errors in [&mut report.errors, &mut report.known_errors] {
        errors.sort();
        errors.dedup();
    }
    let mut hidden = Hidden::default();
    let mut summary = Summary { apps: report.apps.len(), ..Summary::default() };
    for app in &mut report.apps {
        app.items.sort_by(|a, b| (&a.kind, &a.name, &a.path).cmp(&(&b.kind, &b.name, &b.path)));
        app.diffs.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
        for item in &mut app.items {
            hidden.number(&mut item.got);
            hidden.number(&mut item.want);
            item.labels.values_mut().for_each(|it| hidden.number(it));
        }
        app.diffs.iter_mut().for_each(|it| hidden.number(&mut it.text));
        let has_drift = app.counted().next().is_some();
        app.has_drift = has_drift;
        summary.apps_with_drift += usize::from(app.has_drift);
        summary.apps_with_errors += usize::from(app.error.is_some());
        summary.apps_with_known_errors += usize::from(app.known_error.is_some());
        for item in &app.items {
            *match item.change {
                _ if item.ignored.is_some() => &mut summary.ignored,
                Type::Missing | Type::Added => &mut summary.missing,
                Type::Extra | Type::Removed => &mut summary.extra,
                Type::Modified | Type::Image | Type::Stopped => &mut summary.modified,
                Type::Kept => &mut summary.kept,
            } += 1;
        }
    }
    report.summary = summary;
}

/// Numbers hidden values in the order of their appearance.
///
/// A hidden value carries a digest made with a key of this run. A number tells less, and makes two reports of the
/// same differences equal.
#[derive(Default)]
struct Hidden(BTreeMap<String, usize>);

impl Hidden {
    /// As many digits as [`Mask::hide`] writes.
    const DIGITS: usize = 4;

    fn number(&mut self, text: &mut String) {
        if !text.contains(HIDDEN) {
            return;
        }
        let mut out = String::with_capacity(text.len());
        let mut parts = text.split(HIDDEN);
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let digits = part.get(..Self::DIGITS).filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
            let Some(digits) = digits else {
                out.push_str(HIDDEN);
                out.push_str(part);
                continue;
            };
            let next = self.0.len() + 1;
            let number = *self.0.entry(digits.to_owned()).or_insert(next);
            out.extend([HIDDEN, "#", &number.to_string()]);
            out.push_str(part.get(Self::DIGITS..).unwrap_or_default());
        }
        *text = out;
    }
}
