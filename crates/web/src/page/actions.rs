//! Actions on the page. Each one is a page of its own that says what will happen and asks, and a form that does it; so
//! everything works by keyboard and without JavaScript.

use axum::{
    body::Body,
    extract::{Extension, Path, State},
    response::{IntoResponse, Response},
};
use driftless_agent::{Against, Answer, Promotion, RequestKind, Rollback, Supposed};
use driftless_model::{
    AppName, Application, ConditionType, HealthStatus, Kind, Outcome, Removal, Revision, Until, WaitReason,
    WaitStatus, WorkloadName, is_helper_image, older_success,
};
use driftless_store as store;
use driftless_store::Store;
use http::{StatusCode, header};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    compare::{diff_markup, plan_markup},
    failure::PageError,
    layout::{Page, respond},
    login::form_fields,
    page_action::PageAction,
    parameters::PageParameters,
    text::Text,
};
use crate::{
    access::{Caller, Identity, audit::AuditNote},
    api::{detail, read_body, request},
    error::Error,
    shared::{Shared, read},
    until::parse_until,
    workloads::ScaleBody,
};

/// The sentence about an action that was just accepted.
pub(super) fn done_text(word: &str) -> Option<&'static str> {
    PageAction::parse(word).map(PageAction::done)
}

/// Links to what can be read and done about an application. Without permission there are only those that read.
pub(super) fn action_bar(application: &Application, revisions: &[Revision], may_act: bool) -> Markup {
    let name = &application.name;
    html! {
        nav.actions aria-label="Actions" {
            a.button href={ (Text(name)) "/plan" } data-key="p" data-name="plan" { "Plan" }
            a.button href={ (Text(name)) "/diff" } data-key="d" data-name="diff" { "Diff" }
            @if may_act {
                @for action in PageAction::ALL.iter().copied().filter(|action| is_offered(*action, application, revisions)) {
                    a.button href={ (Text(name)) "/" (action.word()) } data-key=(action.key()) data-name=(action.label()) {
                        (action.label())
                    }
                }
            }
        }
    }
}

/// Whether an action makes sense for an application in its present state.
fn is_offered(action: PageAction, application: &Application, revisions: &[Revision]) -> bool {
    let status = &application.status;
    let is_suspended = application.spec.policy.suspended;
    if is_suspended && action.changes_what_runs() {
        return false;
    }
    let waits_for = |reason: WaitReason| status.waits.iter().any(|wait| wait.is(reason));
    let has_left_git = application.has_left_git();
    let has_failed = status.problem(ConditionType::CommitFailed).is_some();
    match action {
        PageAction::Sync => true,
        PageAction::Rollback => wanted(revisions, "").is_some(),
        PageAction::Heal => !application.spec.policy.self_heal && !status.drift.is_empty(),
        PageAction::UpdateImages => status.images.iter().any(|image| image.available.is_some()),
        PageAction::Resume => status.pin.is_some() || is_suspended && !has_left_git,
        PageAction::Suspend => !is_suspended,
        PageAction::Adopt => waits_for(WaitReason::NotAdopted),
        PageAction::Prune => waits_for(WaitReason::PruneHeld),
        PageAction::AcceptRewrite => rejected_rewrite(application).is_some(),
        PageAction::Retry => {
            has_failed || waits_for(WaitReason::OwnUpdateFailed) || has_ended_failed(application)
        }
        PageAction::Promote => waits_for(WaitReason::Canary),
        PageAction::Abort => status.workloads.values().any(|workload| workload.canary.is_some()),
        PageAction::Remove | PageAction::Forget => has_left_git,
        PageAction::Restart | PageAction::Scale | PageAction::ResetScale => false,
    }
}

/// Whether a container, Job or hook has failed for good, which a retry starts again also if no commit has failed. While the application is
/// suspended that is refused, and a failed hook of a removal is tried again by the removal.
fn has_ended_failed(application: &Application) -> bool {
    let is_acted_on = !application.spec.policy.suspended && !application.has_left_git();
    let mut waits = application.status.waits.iter();
    is_acted_on && waits.any(|wait| wait.is(WaitReason::Failed) || wait.is(WaitReason::JobFailed))
}

/// The sentence about the rewritten history that the agent has rejected, if it has.
fn rejected_rewrite(application: &Application) -> Option<&str> {
    let rejected = application.status.problem(ConditionType::Trusted)?;
    (rejected.reason == "HistoryRewritten").then_some(rejected.message.as_str())
}

/// Links to what can be done about one workload.
pub(super) fn workload_actions(application: &Application, workload: &WorkloadName) -> Markup {
    let Some(status) = application.status.workloads.get(workload) else { return Markup::default() };
    let is_suspended = application.spec.policy.suspended;
    let is_offered = |action: &PageAction| match action {
        _ if is_suspended && action.changes_what_runs() => false,
        PageAction::Restart => status.health != HealthStatus::Suspended && !status.instances.is_empty(),
        // A pod of a StatefulSet has an object of another name.
        PageAction::Scale => {
            let object = &status.spec.object;
            !matches!(object.kind, Kind::DaemonSet | Kind::Pod | Kind::StatefulSet)
        }
        PageAction::ResetScale => is_scaled(application, workload),
        _ => false,
    };
    let is_run = status.cron.is_some() || status.job.is_some();
    // A proxy cannot be scaled, and its restart cuts connections.
    let is_proxy = is_helper_image(&status.image);
    html! {
        @for action in PageAction::ALL.iter().filter(|action| !is_run && !is_proxy && is_offered(action)) {
            a.button href={ (Text(&application.name)) "/" (action.word()) "?workload=" (Text(workload)) } {
                (action.label()) span.hidden { " " (Text(workload)) }
            }
            " "
        }
    }
}

/// The notes that a user has set the number of instances.
fn scales<'a>(
    application: &'a Application,
    workload: &'a WorkloadName,
) -> impl Iterator<Item = &'a WaitStatus> {
    let waits = application.status.waits.iter();
    waits.filter(move |wait| wait.is(WaitReason::Scaled) && wait.object == workload.as_str())
}

/// Whether a user has set the number of instances.
fn is_scaled(application: &Application, workload: &WorkloadName) -> bool {
    scales(application, workload).next().is_some()
}

/// The query of an action's page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ActionQuery {
    /// The workload, of an action on one.
    workload: String,
    /// The revision of a rollback.
    to: String,
}

/// The page that says what will happen, and asks.
pub(crate) async fn ask(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path((app, word)): Path<(String, String)>,
    PageParameters(query): PageParameters<ActionQuery>,
) -> Result<Response, PageError> {
    let name = AppName(app);
    let path = format!("/applications/{name}/{word}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let Some(action) = PageAction::parse(&word) else { return Err(frame(Error::NoSuchRoute(path.clone()))) };
    let application = shared.handle.application(&name).map_err(|error| frame(error.into()))?;
    if !caller.may_act(&name, Some(&application.spec.repository)) {
        return Err(frame(Error::Forbidden(format!("{} may not act on {name}", caller.actor))));
    }
    let foreseen = foresee(&shared, &caller, action, &application, &query).await.map_err(frame)?;
    let page = Page::new(&caller, &shared, &path).title(&format!("{} {name}", action.label()));
    let title = match action {
        PageAction::Restart | PageAction::Scale => {
            format!("{} {} of {name}?", action.label(), query.workload)
        }
        PageAction::ResetScale => format!("End the scaling of {} of {name}?", query.workload),
        _ => format!("{} {name}?", action.label()),
    };
    let body = html! {
        p.crumbs { a href="../../" { "Applications" } " / " a href={ "../" (Text(&name)) } { (Text(&name)) } }
        h1 { (Text(&title)) }
        p.lead { (action.consequence()) }
        @match &foreseen {
            Foreseen::Possible(preview) => {
                (preview.consequences)
                (confirmation(action, &application, &query, preview.bound_to.as_ref()))
            }
            Foreseen::Impossible(why) => {
                p.note.warn role="alert" { (Text(why)) }
                p { a.button href={ "../" (Text(&name)) } data-key="Escape" data-name="back" { "Back" } }
            }
        }
    };
    Ok(respond(&page, &body).into_response())
}

/// The form that performs an action, on that which the page shows.
fn confirmation(
    action: PageAction,
    application: &Application,
    query: &ActionQuery,
    bound_to: Option<&(&'static str, String)>,
) -> Markup {
    let name = &application.name;
    // The address of this page, so that a log-in between the question and the answer leads back to the same question.
    let asked = [("workload", &query.workload), ("to", &query.to)];
    let asked = asked.into_iter().filter(|(_, value)| !value.is_empty());
    let asked = form_urlencoded::Serializer::new(String::new()).extend_pairs(asked).finish();
    html! {
        form.confirm method="post" action={ (action.word()) @if !asked.is_empty() { "?" (asked) } } {
            @if let Some((field, value)) = bound_to { input type="hidden" name=(field) value=(Text(value)); }
            @if action.is_of_workload() { input type="hidden" name="workload" value=(Text(&query.workload)); }
            @match action {
                PageAction::Scale => {
                    @let status = application.status.workloads.get(&WorkloadName(query.workload.clone()));
                    (scale_fields(status.map_or(1, |workload| workload.replicas)))
                }
                PageAction::Rollback => (rollback_fields()),
                PageAction::Remove => {
                    label { input type="checkbox" name="volumes" value="yes"; " Remove its volumes too, with all their data" }
                }
                _ => {}
            }
            p {
                button.primary type="submit" { (action.label()) }
                " " a.button href={ "../" (Text(name)) } data-key="Escape" data-name="cancel" { "Cancel" }
            }
        }
    }
}

fn scale_fields(replicas: u32) -> Markup {
    html! {
        p {
            label for="replicas" { "Instances" }
            input #replicas name="replicas" type="number" min="0" required value=(replicas);
        }
        p {
            label for="until" { "Until" }
            select #until name="until" {
                option value="1h" { "one hour from now" }
                option value="8h" { "eight hours from now" }
                option value="1d" { "one day from now" }
                option value="7d" { "seven days from now" }
            }
        }
    }
}

fn rollback_fields() -> Markup {
    html! {
        p {
            label for="reason" { "Reason" }
            input #reason name="reason" maxlength="200" placeholder="shown to everybody while it is pinned";
        }
        p {
            label for="until" { "Until" }
            select #until name="until" {
                option value="manual" { "it is resumed" }
                option value="next-commit" { "the next commit" }
                option value="1h" { "one hour from now, and a new commit" }
                option value="1d" { "one day from now, and a new commit" }
            }
        }
    }
}

/// The consequences of an action, as far as they can be said before.
#[derive(Default)]
struct Preview {
    consequences: Markup,
    /// The field of the form that names what is shown, and its value: nothing else may be done meanwhile.
    bound_to: Option<(&'static str, String)>,
}

impl From<Markup> for Preview {
    fn from(consequences: Markup) -> Self {
        Self { consequences, bound_to: None }
    }
}

/// The outcome of looking ahead.
enum Foreseen {
    Possible(Preview),
    /// There is nothing to do it with: why.
    Impossible(String),
}

/// Looks ahead. A plan or diff that cannot be made now, such as without the engine, does not make the action impossible.
async fn foresee(
    shared: &Shared,
    caller: &Identity,
    action: PageAction,
    application: &Application,
    query: &ActionQuery,
) -> Result<Foreseen, Error> {
    let name = application.name.clone();
    if action.changes_what_runs() && application.spec.policy.suspended {
        return Ok(Foreseen::Impossible(format!(
            "{name} is suspended, so nothing is changed; resume it first."
        )));
    }
    let consequences = match action {
        PageAction::Sync | PageAction::Heal | PageAction::Prune | PageAction::Adopt | PageAction::Resume => {
            let supposed = match action {
                PageAction::Prune => Some(Supposed::Prune),
                PageAction::Resume => Some(Supposed::Resume),
                PageAction::Heal => Some(Supposed::Heal),
                _ => None,
            };
            let is_supposed = supposed.is_some();
            let kind = supposed.map_or(RequestKind::Plan, RequestKind::PlanAfter);
            match request(shared, caller, name, kind).await {
                Ok((Answer::Plan(plan), _)) => plan_markup(&plan),
                Ok(_) => Markup::default(),
                // The request itself would be refused too.
                Err(Error::Refused(why)) if is_supposed => return Ok(Foreseen::Impossible(why)),
                Err(error) => unknown(&error),
            }
        }
        PageAction::UpdateImages => {
            let newer = application.status.images.iter().filter_map(|image| {
                let available = image.available.as_ref()?;
                Some(format!("{} → {}", image.resolved.as_ref().unwrap_or(&image.image), available.image))
            });
            html! { ul { @for line in newer { li.mono { (Text(line)) } } } }
        }
        PageAction::Rollback => return rollback_preview(shared, caller, application, &query.to).await,
        PageAction::Restart | PageAction::Scale | PageAction::ResetScale => {
            let workload = WorkloadName(query.workload.clone());
            let Some(status) = application.status.workloads.get(&workload) else {
                let why = format!("{name} has no workload `{workload}`; its page lists them.");
                return Ok(Foreseen::Impossible(why));
            };
            if action == PageAction::ResetScale && !is_scaled(application, &workload) {
                let why = format!("{workload} of {name} is not scaled; Git says its number of instances.");
                return Ok(Foreseen::Impossible(why));
            }
            if action == PageAction::Restart && status.instances.is_empty() {
                let why = format!("{workload} of {name} has no container to restart.");
                return Ok(Foreseen::Impossible(why));
            }
            let names: Vec<&str> = status.instances.iter().map(|it| it.name.as_str()).collect();
            let word = if action == PageAction::Restart { "Replaced: " } else { "Running now: " };
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            html! {
                p { (word) span.mono { (Text(names)) } }
                @for wait in scales(application, &workload) {
                    p.note { (Text(&wait.message)) }
                }
            }
        }
        PageAction::AcceptRewrite => {
            let Some(sentence) = rejected_rewrite(application) else {
                return Ok(Foreseen::Impossible(format!("{name} has no rewritten history to accept.")));
            };
            let consequences = html! { p.note { (Text(sentence)) } };
            let bound_to = Some(("seen", sentence.to_owned()));
            return Ok(Foreseen::Possible(Preview { consequences, bound_to }));
        }
        PageAction::Promote => canaries(application),
        PageAction::Suspend
        | PageAction::Retry
        | PageAction::Abort
        | PageAction::Remove
        | PageAction::Forget => Markup::default(),
    };
    Ok(Foreseen::Possible(consequences.into()))
}

/// The note that the consequences cannot be said.
fn unknown(error: &Error) -> Markup {
    html! { p.note.bad role="alert" { (Text(error)) } }
}

/// The canaries of an application, each with its step.
fn canaries(application: &Application) -> Markup {
    let all = application.status.workloads.iter();
    let all = all.filter_map(|(name, workload)| Some((name, workload, workload.canary.as_ref()?)));
    html! {
        ul {
            @for (name, workload, canary) in all {
                li {
                    (Text(name)) ": step " (canary.step) " of " (canary.steps) ", " (canary.instances) " of " (workload.replicas)
                    " instances" @if !canary.paused { ", not available yet" }
                }
            }
        }
    }
}

/// The revision that a rollback goes to, and how what runs differs from it.
async fn rollback_preview(
    shared: &Shared,
    caller: &Identity,
    application: &Application,
    to: &str,
) -> Result<Foreseen, Error> {
    let name = application.name.clone();
    let app = name.clone();
    let (revisions, is_suspended) = read(&shared.store, move |store: &Store| {
        Ok::<_, store::Error>((store.revisions(&app)?, store.suspended(&app)?))
    })
    .await?;
    let Some(revision) = wanted(&revisions, to) else {
        return Ok(Foreseen::Impossible(match to {
            "" => format!(
                "{name} has no older revision that succeeded, so there is nothing to go back to. Each commit that is \
                 applied becomes a revision; the history on its page lists them."
            ),
            to => format!("{name} has no revision {to}; the history on its page lists them."),
        }));
    };
    if revision.is_removal() {
        return Ok(Foreseen::Impossible(format!(
            "Revision {} of {name} removed the application, so nothing goes back to it.",
            revision.number
        )));
    }
    let against = Against::Revision(revision.number.to_string());
    let answer = request(shared, caller, name, RequestKind::Drift(against)).await;
    let consequences = html! {
        @if is_suspended {
            p.note.warn {
                (Text(&application.name)) " is suspended, so nothing is changed yet. " b { "Resume" }
                " ends the suspension and this pin: roll back again right after it."
            }
        } @else if application.spec.policy.suspended {
            p.note.warn {
                (Text(&application.name)) " is suspended. If that is by its settings, nothing is changed until they say "
                code { "suspend: false" } "."
            }
        }
        p {
            "To revision " b { "#" (revision.number) } ": " code { (Text(revision.commit.short())) } " "
            (Text(&revision.commit.subject))
        }
        (outcome_warning(&revision.outcome))
        @match &answer {
            Ok((Answer::Drift(inspection), _)) => (diff_markup(inspection, &format!("Revision {}", revision.number))),
            Ok(_) => {}
            Err(error) => (unknown(error)),
        }
    };
    let bound_to = Some(("to", revision.number.to_string()));
    Ok(Foreseen::Possible(Preview { consequences, bound_to }))
}

/// The warning that a revision was not reached. Empty for one that succeeded.
fn outcome_warning(outcome: &Outcome) -> Markup {
    html! {
        @match outcome {
            Outcome::Succeeded => {}
            Outcome::InProgress => p.note.warn { "This revision is not reached yet." },
            Outcome::Superseded => p.note.warn { "This revision was never reached: a newer one came before." },
            Outcome::Failed { reason } => p.note.warn { "This revision failed: " (Text(reason)) },
        }
    }
}

/// The revision of this number. Without one, that of a rollback which names none.
fn wanted<'a>(revisions: &'a [Revision], to: &str) -> Option<&'a Revision> {
    if to.is_empty() {
        return older_success(revisions);
    }
    let number = to.parse::<u64>().ok()?;
    revisions.iter().find(|revision| revision.number == number)
}

/// Performs an action and leads back to the application.
pub(crate) async fn act(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path((app, word)): Path<(String, String)>,
    body: Body,
) -> Result<Response, PageError> {
    let name = AppName(app);
    let path = format!("/applications/{name}/{word}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let Some(action) = PageAction::parse(&word) else { return Err(frame(Error::NoSuchRoute(path.clone()))) };
    let body = read_body(body).await.map_err(frame)?;
    let (kind, what) = kind_of(action, &form_fields(&body), &shared).map_err(frame)?;
    note.set(&what);
    let (answer, _) = request(&shared, &caller, name.clone(), kind).await.map_err(frame)?;
    // Nothing is left of it that a page could show.
    let place = match action {
        PageAction::Forget => "../../".to_owned(),
        _ => format!("../{name}"),
    };
    if let Answer::Noted(note) | Answer::Pinned { note: Some(note), .. } = &answer {
        let page = Page::new(&caller, &shared, &path).title(&format!("{} {name}", action.label()));
        return Ok(respond(&page, &accepted_with(action, &name, note, &place)).into_response());
    }
    let place = if action == PageAction::Forget { place } else { format!("{place}?did={}", action.word()) };
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response())
}

/// The page after an action that was accepted with a note from the agent.
fn accepted_with(action: PageAction, name: &AppName, note: &str, place: &str) -> Markup {
    html! {
        p.crumbs { a href="../../" { "Applications" } }
        h1 { (action.label()) " " (Text(name)) }
        p.note.good { (action.done()) }
        p.note.warn role="alert" { (Text(note)) }
        p { a.button href=(Text(place)) data-key="Escape" data-name="back" { "Back" } }
    }
}

/// The request of a form, and what the audit says about it.
fn kind_of(
    action: PageAction,
    fields: &std::collections::BTreeMap<String, String>,
    shared: &Shared,
) -> Result<(RequestKind, String), Error> {
    let field =
        |name: &str| fields.get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let needed =
        |name: &str| field(name).ok_or_else(|| Error::Malformed(format!("the form has no `{name}`")));
    let simple = |kind: RequestKind| (kind, String::new());
    Ok(match action {
        PageAction::Sync => simple(RequestKind::Sync),
        PageAction::Resume => simple(RequestKind::Resume),
        PageAction::Suspend => simple(RequestKind::Suspend),
        PageAction::Heal => simple(RequestKind::Heal),
        PageAction::UpdateImages => simple(RequestKind::UpdateImages),
        PageAction::Adopt => simple(RequestKind::Adopt),
        PageAction::Prune => simple(RequestKind::Prune),
        PageAction::AcceptRewrite => simple(RequestKind::AcceptRewrite(Some(needed("seen")?))),
        PageAction::Retry => simple(RequestKind::Retry),
        PageAction::Promote => simple(RequestKind::Promote(Promotion::default())),
        PageAction::Abort => simple(RequestKind::Abort),
        PageAction::Restart => {
            let workload = needed("workload")?;
            (RequestKind::Restart(WorkloadName(workload.clone())), workload)
        }
        PageAction::Scale => {
            let (workload, replicas) = (needed("workload")?, needed("replicas")?);
            let replicas = replicas
                .parse()
                .map_err(|_| Error::Malformed(format!("`{replicas}` is no number of instances")))?;
            ScaleBody { replicas, until: needed("until")? }.request(&workload, shared.clock.now())?
        }
        PageAction::ResetScale => {
            let workload = needed("workload")?;
            (RequestKind::ResetScale(WorkloadName(workload.clone())), workload)
        }
        PageAction::Remove if field("volumes").is_some() => {
            (RequestKind::Remove(Removal::WithVolumes), "with volumes".to_owned())
        }
        PageAction::Remove => simple(RequestKind::Remove(Removal::KeepVolumes)),
        PageAction::Forget => simple(RequestKind::Forget),
        PageAction::Rollback => {
            let until = match field("until") {
                Some(text) => parse_until(&text, shared.clock.now())
                    .map_err(|error| Error::Malformed(error.to_string()))?,
                None => Until::Manual,
            };
            // The agent would choose again without one, and perhaps another than the page has shown.
            let to = needed("to")?;
            if to.parse::<u64>().is_err() {
                return Err(Error::Malformed(format!("`{to}` is no number of a revision")));
            }
            let rollback = Rollback { to: Some(to), reason: field("reason").unwrap_or_default(), until };
            let what = detail(&rollback);
            (RequestKind::Rollback(rollback), what)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_words_and_keys_of_their_own() {
        let words: std::collections::BTreeSet<_> =
            PageAction::ALL.iter().map(|action| action.word()).collect();
        assert_eq!(words.len(), PageAction::ALL.len());
        let shown = PageAction::ALL.iter().filter(|action| !action.is_of_workload());
        let mut keys: Vec<_> = shown.map(|action| action.key()).collect();
        keys.extend(["p", "d", "o", "a", "l", "j", "k", "/", "?"]);
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert!(done_text("rollback").is_some() && done_text("<script>").is_none());
    }
}
