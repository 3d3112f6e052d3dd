//! Questions about an application that the agent answers on request: the plan that would run now, and the diff.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use driftless_agent::{Against, Answer, DryRun, Inspection, RequestKind};
use driftless_model::ApplicationStatus;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    failure::PageError,
    layout::{Page, respond},
    parameters::PageParameters,
    text::{Folded, Text},
};
use crate::{
    access::Caller,
    api::{Name, request},
    shared::Shared,
};

/// The errors that are shown; the others are folded.
const OPEN_ERRORS: usize = 5;

/// A diff with more lines is folded.
const MOST_OPEN_LINES: usize = 40;

/// The longest diff on a page, in bytes.
const LONGEST_DIFF: usize = 200_000;

/// The query of a diff's page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DiffQuery {
    /// `pin` (the default), `head`, a revision or a commit.
    against: String,
}

/// The page of the plan.
pub(crate) async fn plan(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, PageError> {
    let path = format!("/applications/{name}/plan");
    let answer = request(&shared, &caller, name.clone(), RequestKind::Plan).await;
    let (answer, _) = answer.map_err(|error| PageError::new(&caller, &shared, &path, error))?;
    let page = Page::new(&caller, &shared, &path).title(&format!("Plan of {name}"));
    let body = html! {
        p.crumbs { a href="../../" { "Applications" } " / " a href={ "../" (Text(&name)) } data-key="Escape" data-name="back" { (Text(&name)) } }
        h1 { "Plan of " (Text(&name)) }
        p.lead { "What the agent would do now. Nothing is changed by looking." }
        @if let Answer::Plan(plan) = &answer { (plan_markup(plan)) }
    };
    Ok(respond(&page, &body).into_response())
}

/// The page of the diff.
pub(crate) async fn diff(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
    PageParameters(query): PageParameters<DiffQuery>,
) -> Result<Response, PageError> {
    let path = format!("/applications/{name}/diff");
    let against = if query.against.is_empty() { Against::Pin } else { Against::parse(&query.against) };
    let answer = request(&shared, &caller, name.clone(), RequestKind::Drift(against)).await;
    let (answer, _) = answer.map_err(|error| PageError::new(&caller, &shared, &path, error))?;
    let page = Page::new(&caller, &shared, &path).title(&format!("Diff of {name}"));
    let applications = shared.handle.applications();
    let wanted = match query.against.as_str() {
        "" | "pin" => {
            applications.get(&name).map_or(GIT_SAYS.to_owned(), |found| wanted_heading(&found.status))
        }
        "head" => GIT_SAYS.to_owned(),
        number if number.parse::<u64>().is_ok() => format!("Revision {number}"),
        commit => format!("Commit {commit}"),
    };
    let body = html! {
        p.crumbs { a href="../../" { "Applications" } " / " a href={ "../" (Text(&name)) } data-key="Escape" data-name="back" { (Text(&name)) } }
        h1 { "Diff of " (Text(&name)) }
        p.lead {
            "What runs, against "
            @match query.against.as_str() {
                "" | "pin" => "what it should be",
                "head" => "the newest commit",
                other => { (Text(other)) }
            }
            ". " a href="?against=pin" { "target" } " · " a href="?against=head" { "newest commit" }
        }
        @if let Answer::Drift(inspection) = &answer { (diff_markup(inspection, &wanted)) }
    };
    Ok(respond(&page, &body).into_response())
}

/// The heading of desired values, which are Git's.
const GIT_SAYS: &str = "Git says";

/// The heading of desired values: they are Git's, unless the application is pinned.
pub(super) fn wanted_heading(status: &ApplicationStatus) -> String {
    status.pin.as_ref().map_or(GIT_SAYS.to_owned(), |pin| format!("Revision {}", pin.revision))
}

/// The steps of a plan.
pub(super) fn plan_markup(plan: &DryRun) -> Markup {
    let DryRun { suspended, way_out, rounds, adoption, adoption_obstacles, waits } = plan;
    html! {
        @if *suspended {
            p.note.warn {
                @match way_out {
                    Some(sentence) => (Text(sentence)),
                    None => "The application is suspended: this follows after it is resumed.",
                }
            }
        }
        @if !adoption.is_empty() {
            h2 { "Adopted first" }
            ul { @for line in adoption { li { (Text(line)) } } }
        }
        @for obstacle in adoption_obstacles { p.note.warn { "Not adopted: " (Text(obstacle)) } }
        @if rounds.is_empty() && adoption.is_empty() {
            @if waits.is_empty() && adoption_obstacles.is_empty() {
                p.note.good { "Nothing to do: everything is as Git says." }
            } @else {
                p.note.warn { "Nothing is done now." }
            }
        }
        @if !rounds.is_empty() {
            h2 { "Steps" }
            ol.steps {
                @for round in rounds {
                    li { ul { @for step in round { li { (Text(step)) } } } }
                }
            }
        }
        @if !waits.is_empty() {
            h2 { "Why something is not done" }
            ul { @for wait in waits { li { (Text(wait)) } } }
        }
    }
}

/// The differences field by field, and as a unified diff of each object. `wanted` is the heading of the desired values.
pub(super) fn diff_markup(inspection: &Inspection, wanted: &str) -> Markup {
    let app = &inspection.app;
    html! {
        @if let Some(error) = &app.error { (error_lines(error)) }
        @if let Some(note) = &app.note { p.note.warn { (Text(note)) } }
        @if app.diffs.is_empty() && app.items.is_empty() && app.error.is_none() {
            p.note.good { "No differences." }
        }
        @if !app.items.is_empty() {
            div.scroll tabindex="0" {
                table.stack {
                    thead {
                        tr {
                            th scope="col" { "Object" }
                            th scope="col" { "Field" }
                            th scope="col" { (Text(wanted)) }
                            th scope="col" { "Runs" }
                        }
                    }
                    tbody {
                        @for item in &app.items {
                            tr {
                                td { (Text(&item.kind)) " " span.mono { (Text(&item.name)) } }
                                // The object as a whole has no values that differ.
                                td.mono { @if item.path.is_empty() { (item.change.as_str()) } @else { (Text(&item.path)) } }
                                td.mono data-label=(Text(wanted)) { (Folded(&item.want)) }
                                td.mono data-label="runs" { (Folded(&item.got)) }
                            }
                        }
                    }
                }
            }
        }
        @for object in &app.diffs {
            @let count = object.text.lines().count();
            details open[count <= MOST_OPEN_LINES] {
                summary {
                    (Text(&object.kind)) " " span.mono { (Text(&object.name)) }
                    @if count > MOST_OPEN_LINES { span.soft { ", " (count) " lines" } }
                }
                pre.diff tabindex="0" aria-label={ "Diff of " (Text(&object.name)) } { (lines(&object.text)) }
            }
        }
        @if !inspection.unmanaged.is_empty() {
            p.soft { "On the host and in no application: " (Text(inspection.unmanaged.iter().map(String::as_str).collect::<Vec<_>>().join(", "))) }
        }
    }
}

/// Why there is nothing to compare with: an error in each line.
fn error_lines(errors: &str) -> Markup {
    let lines: Vec<&str> = errors.lines().collect();
    let (open, folded) = lines.split_at(lines.len().min(OPEN_ERRORS));
    html! {
        div.note.bad {
            @for line in open { p { (Text(line)) } }
            @if !folded.is_empty() {
                details {
                    summary { (folded.len()) " more" }
                    @for line in folded { p { (Text(line)) } }
                }
            }
        }
    }
}

/// A unified diff, with each line in the colour of its sign.
fn lines(text: &str) -> Markup {
    let mut end = text.len().min(LONGEST_DIFF);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (shown, rest) = text.split_at(end);
    html! {
        @for line in shown.lines() {
            @match line.as_bytes().first() {
                Some(b'+') => ins { (Text(line)) "\n" },
                Some(b'-') => del { (Text(line)) "\n" },
                Some(b'@') => span.soft { (Text(line)) "\n" },
                _ => { (Text(line)) "\n" }
            }
        }
        @if !rest.is_empty() { "… " (rest.len()) " more bytes; `driftless diff` prints all\n" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_errors_have_lines_of_their_own_and_are_folded() {
        let errors: Vec<String> = (1..=40).map(|number| format!("error {number}")).collect();
        let shown = error_lines(&errors.join("\n")).into_string();
        let folded = "<p>error 5</p><details><summary>35 more</summary><p>error 6</p>";
        assert!(shown.contains(folded), "{shown}");
        assert!(!error_lines("one error").into_string().contains("<details>"));
    }
}
