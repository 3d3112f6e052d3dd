//! Actions on the page. Each one is a page of its own that says what will happen and asks, and a form that does it; so
//! everything works by keyboard and without JavaScript.

use axum::{
    body::Body,
    extract::{Extension, Path, State},
    response::{IntoResponse, Response},
};
use driftless_agent::{Against, Answer, Promotion, RequestKind, Rollback, Supposed};
use driftless_model::{
    AppName, Application, ConditionType, HealthStatus, Kind, Removal, Revision, Until, WaitReason,
    WaitStatus, WorkloadName, is_helper_image, older_success,
};
use driftless_store::Store;
use http::{StatusCode, header};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    compare::{diff_markup, plan_markup},
    failure::PageError,
    layout::{Page, respond},
    login::form_fields,
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

/// An action on an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Sync,
    Rollback,
    Resume,
    Suspend,
    Restart,
    Scale,
    ResetScale,
    Heal,
    UpdateImages,
    Adopt,
    Prune,
    AcceptRewrite,
    Retry,
    Promote,
    Abort,
    Remove,
    Forget,
}

impl Action {
    const ALL: [Self; 17] = [
        Self::Sync,
        Self::Rollback,
        Self::Resume,
        Self::Suspend,
        Self::Restart,
        Self::Scale,
        Self::ResetScale,
        Self::Heal,
        Self::UpdateImages,
        Self::Adopt,
        Self::Prune,
        Self::AcceptRewrite,
        Self::Retry,
        Self::Promote,
        Self::Abort,
        Self::Remove,
        Self::Forget,
    ];

    /// The word in the URL.
    fn word(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Rollback => "rollback",
            Self::Resume => "resume",
            Self::Suspend => "suspend",
            Self::Restart => "restart",
            Self::Scale => "scale",
            Self::ResetScale => "reset-scale",
            Self::Heal => "heal",
            Self::UpdateImages => "update-images",
            Self::Adopt => "adopt",
            Self::Prune => "prune",
            Self::AcceptRewrite => "accept-rewrite",
            Self::Retry => "retry",
            Self::Promote => "promote",
            Self::Abort => "abort",
            Self::Remove => "remove",
            Self::Forget => "forget",
        }
    }

    /// The words on the button.
    fn label(self) -> &'static str {
        match self {
            Self::Sync => "Sync",
            Self::Rollback => "Roll back",
            Self::Resume => "Resume",
            Self::Suspend => "Suspend",
            Self::Restart => "Restart",
            Self::Scale => "Scale",
            Self::ResetScale => "Reset scale",
            Self::Heal => "Heal once",
            Self::UpdateImages => "Update images",
            Self::Adopt => "Adopt",
            Self::Prune => "Confirm prune",
            Self::AcceptRewrite => "Accept rewritten history",
            Self::Retry => "Retry",
            Self::Promote => "Promote",
            Self::Abort => "Abort canary",
            Self::Remove => "Remove",
            Self::Forget => "Forget",
        }
    }

    /// Whether it is an action on one workload. Then its link is in the row of the workload, and it has no key.
    fn is_of_workload(self) -> bool {
        matches!(self, Self::Restart | Self::Scale | Self::ResetScale)
    }

    /// Whether it changes what runs now, so that it is refused for a suspended application.
    fn changes_what_runs(self) -> bool {
        matches!(
            self,
            Self::Restart
                | Self::Scale
                | Self::Heal
                | Self::UpdateImages
                | Self::Prune
                | Self::Promote
                | Self::Abort
        )
    }

    /// The key that opens it. Empty: none.
    fn key(self) -> &'static str {
        match self {
            Self::Sync => "s",
            Self::Rollback => "b",
            Self::Resume => "r",
            Self::Suspend => "u",
            Self::Restart | Self::Scale | Self::ResetScale => "",
            Self::Heal => "h",
            Self::UpdateImages => "m",
            Self::Adopt => "i",
            Self::Prune => "c",
            Self::AcceptRewrite => "w",
            Self::Retry => "e",
            Self::Promote => "v",
            Self::Abort => "q",
            Self::Remove => "x",
            Self::Forget => "g",
        }
    }

    /// The consequences, in words.
    fn consequence(self) -> &'static str {
        match self {
            Self::Sync => {
                "The agent fetches from Git now, looks at Docker now, and ends all pauses after failures. Below is what it \
                 would do with the newest commit that it has read."
            }
            Self::Rollback => {
                "The agent makes the application equal to an older revision and pins it there: new commits are not applied \
                 until the pin ends. Volumes and their data are not changed."
            }
            Self::Resume => {
                "The pin or the suspension ends, and the agent follows Git again. Below is what it would do next."
            }
            Self::Suspend => {
                "The agent observes and reports, and changes nothing, until somebody resumes the application. What runs \
                 keeps running."
            }
            Self::Restart => {
                "Every instance of the workload that exists now is replaced, as its update strategy allows. With one \
                 instance this may be a short outage."
            }
            Self::Scale => {
                "The agent runs another number of instances of the workload than Git says, until a time. It is neither drift \
                 nor a revision, and holds for commits that are applied meanwhile."
            }
            Self::ResetScale => "The agent runs the number of instances that Git says again.",
            Self::Heal => {
                "Self-heal is off. The agent undoes the drift once; later changes are reported again."
            }
            Self::UpdateImages => {
                "The agent deploys the newer images that the registry has, as a revision. It keeps them until Git names \
                 another reference, or the registry has newer ones and you ask again."
            }
            Self::Adopt => {
                "The agent takes over the containers, networks and volumes that Docker Compose created, or the services \
                 of `docker stack deploy`. Those that are as in Git keep running; others are replaced."
            }
            Self::Prune => {
                "The newest commit drops many workloads at once, so the agent has kept them. Confirming removes their \
                 containers and networks. Volumes are kept."
            }
            Self::AcceptRewrite => {
                "The history of the followed branch was rewritten, and the agent has rejected it. Accepting applies the \
                 rewritten commit."
            }
            Self::Promote => {
                "The pause of the canary ends: its next step begins, or after the last step all instances are replaced."
            }
            Self::Abort => {
                "The application goes back to the last revision that succeeded. The commit is skipped until somebody tries it \
                 again, or the next commit."
            }
            Self::Retry => {
                "If the newest commit has failed, the agent tries it once more, from the beginning. If not, it starts the Jobs, \
                 hooks and containers again that failed for good."
            }
            Self::Remove => {
                "Git does not have the application any more. The agent removes its containers and networks, and on \
                 request its volumes with all their data."
            }
            Self::Forget => {
                "Git does not have the application any more. The agent stops managing it: its containers, networks and \
                 volumes stay as they are, and nobody looks after them."
            }
        }
    }

    /// The sentence after it was accepted.
    fn done(self) -> &'static str {
        match self {
            Self::Sync => "The sync was accepted; the rounds that follow are shown here.",
            Self::Rollback => "The rollback was accepted; the application is pinned.",
            Self::Resume => "The application follows Git again.",
            Self::Suspend => "The application is suspended.",
            Self::Restart => "The restart was accepted.",
            Self::Scale => "The workload is scaled until the time that you gave.",
            Self::ResetScale => "The number of instances in Git counts again.",
            Self::Heal => "The drift is undone once.",
            Self::UpdateImages => "The newer images are being deployed.",
            Self::Adopt => "The objects that it found running were adopted.",
            Self::Prune => "The removal was confirmed.",
            Self::AcceptRewrite => "The rewritten history was accepted.",
            Self::Retry => "What failed is tried once more.",
            Self::Promote => "The canary was promoted.",
            Self::Abort => "The application goes back to the last revision that succeeded.",
            Self::Remove => "The removal was accepted.",
            Self::Forget => "The application is not managed any more.",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }
}

/// The sentence about an action that was just accepted.
pub(super) fn done_text(word: &str) -> Option<&'static str> {
    Action::parse(word).map(Action::done)
}

/// Links to what can be read and done about an application. Without permission there are only those that read.
pub(super) fn action_bar(application: &Application, revisions: &[Revision], may_act: bool) -> Markup {
    let name = &application.name;
    html! {
        nav.actions aria-label="Actions" {
            a.button href={ (Text(name)) "/plan" } data-key="p" data-name="plan" { "Plan" }
            a.button href={ (Text(name)) "/diff" } data-key="d" data-name="diff" { "Diff" }
            @if may_act {
                @for action in Action::ALL.into_iter().filter(|action| is_offered(*action, application, revisions)) {
                    a.button href={ (Text(name)) "/" (action.word()) } data-key=(action.key()) data-name=(action.label()) {
                        (action.label())
                    }
                }
            }
        }
    }
}

/// Whether an action makes sense for an application in its present state.
fn is_offered(action: Action, application: &Application, revisions: &[Revision]) -> bool {
    let status = &application.status;
    let is_suspended = application.spec.policy.suspended;
    if is_suspended && action.changes_what_runs() {
        return false;
    }
    let waits_for = |reason: WaitReason| status.waits.iter().any(|wait| wait.is(reason));
    let has_left_git = application.has_left_git();
    let has_failed = status.problem(ConditionType::CommitFailed).is_some();
    match action {
        Action::Sync => true,
        Action::Rollback => wanted(revisions, "").is_some(),
        Action::Heal => !application.spec.policy.self_heal && !status.drift.is_empty(),
        Action::UpdateImages => status.images.iter().any(|image| image.available.is_some()),
        Action::Resume => status.pin.is_some() || is_suspended && !has_left_git,
        Action::Suspend => !is_suspended,
        Action::Adopt => waits_for(WaitReason::NotAdopted),
        Action::Prune => waits_for(WaitReason::PruneHeld),
        Action::AcceptRewrite => rejected_rewrite(application).is_some(),
        Action::Retry => {
            has_failed || waits_for(WaitReason::OwnUpdateFailed) || has_ended_failed(application)
        }
        Action::Promote => waits_for(WaitReason::Canary),
        Action::Abort => status.workloads.values().any(|workload| workload.canary.is_some()),
        Action::Remove | Action::Forget => has_left_git,
        Action::Restart | Action::Scale | Action::ResetScale => false,
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
    let is_offered = |action: &Action| match action {
        _ if is_suspended && action.changes_what_runs() => false,
        Action::Restart => status.health != HealthStatus::Suspended,
        // A pod of a StatefulSet has an object of another name.
        Action::Scale => {
            let object = &status.spec.object;
            !matches!(object.kind, Kind::DaemonSet | Kind::Pod | Kind::StatefulSet)
        }
        Action::ResetScale => is_scaled(application, workload),
        _ => false,
    };
    let is_run = status.cron.is_some() || status.job.is_some();
    // A proxy cannot be scaled, and its restart cuts connections.
    let is_proxy = is_helper_image(&status.image);
    html! {
        @for action in Action::ALL.iter().filter(|action| !is_run && !is_proxy && is_offered(action)) {
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
    let Some(action) = Action::parse(&word) else { return Err(frame(Error::NoSuchRoute(path.clone()))) };
    let application = shared.handle.application(&name).map_err(|error| frame(error.into()))?;
    if !caller.may_act(&name, Some(&application.spec.repository)) {
        return Err(frame(Error::Forbidden(format!("{} may not act on {name}", caller.actor))));
    }
    let foreseen = foresee(&shared, &caller, action, &application, &query).await.map_err(frame)?;
    let page = Page::new(&caller, &shared, &path).title(&format!("{} {name}", action.label()));
    let title = match action {
        Action::Restart | Action::Scale => format!("{} {} of {name}?", action.label(), query.workload),
        Action::ResetScale => format!("End the scaling of {} of {name}?", query.workload),
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
    action: Action,
    application: &Application,
    query: &ActionQuery,
    bound_to: Option<&(&'static str, String)>,
) -> Markup {
    let name = &application.name;
    html! {
        form.confirm method="post" action=(action.word()) {
            @if let Some((field, value)) = bound_to { input type="hidden" name=(field) value=(Text(value)); }
            @if action.is_of_workload() { input type="hidden" name="workload" value=(Text(&query.workload)); }
            @match action {
                Action::Scale => {
                    @let status = application.status.workloads.get(&WorkloadName(query.workload.clone()));
                    (scale_fields(status.map_or(1, |workload| workload.replicas)))
                }
                Action::Rollback => (rollback_fields()),
                Action::Remove => {
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
    action: Action,
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
        Action::Sync | Action::Heal | Action::Prune | Action::Adopt | Action::Resume => {
            let supposed = match action {
                Action::Prune => Some(Supposed::Prune),
                Action::Resume => Some(Supposed::Resume),
                Action::Heal => Some(Supposed::Heal),
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
        Action::UpdateImages => {
            let newer = application.status.images.iter().filter_map(|image| {
                let available = image.available.as_ref()?;
                Some(format!("{} → {}", image.resolved.as_ref().unwrap_or(&image.image), available.image))
            });
            html! { ul { @for line in newer { li.mono { (Text(line)) } } } }
        }
        Action::Rollback => return rollback_preview(shared, caller, application, &query.to).await,
        Action::Restart | Action::Scale | Action::ResetScale => {
            let workload = WorkloadName(query.workload.clone());
            let Some(status) = application.status.workloads.get(&workload) else {
                let why = format!("{name} has no workload `{workload}`; its page lists them.");
                return Ok(Foreseen::Impossible(why));
            };
            if action == Action::ResetScale && !is_scaled(application, &workload) {
                let why = format!("{workload} of {name} is not scaled; Git says its number of instances.");
                return Ok(Foreseen::Impossible(why));
            }
            let names: Vec<&str> = status.instances.iter().map(|it| it.name.as_str()).collect();
            let word = if action == Action::Restart { "Replaced: " } else { "Running now: " };
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            html! {
                p { (word) span.mono { (Text(names)) } }
                @for wait in scales(application, &workload) {
                    p.note { (Text(&wait.message)) }
                }
            }
        }
        Action::AcceptRewrite => {
            let Some(sentence) = rejected_rewrite(application) else {
                return Ok(Foreseen::Impossible(format!("{name} has no rewritten history to accept.")));
            };
            let consequences = html! { p.note { (Text(sentence)) } };
            let bound_to = Some(("seen", sentence.to_owned()));
            return Ok(Foreseen::Possible(Preview { consequences, bound_to }));
        }
        Action::Promote => canaries(application),
        Action::Suspend | Action::Retry | Action::Abort | Action::Remove | Action::Forget => {
            Markup::default()
        }
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
    let revisions = read(&shared.store, move |store: &Store| store.revisions(&app)).await?;
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
        p {
            "To revision " b { "#" (revision.number) } ": " code { (Text(revision.commit.short())) } " "
            (Text(&revision.commit.subject))
        }
        @match &answer {
            Ok((Answer::Drift(inspection), _)) => (diff_markup(inspection, &format!("Revision {}", revision.number))),
            Ok(_) => {}
            Err(error) => (unknown(error)),
        }
    };
    let bound_to = Some(("to", revision.number.to_string()));
    Ok(Foreseen::Possible(Preview { consequences, bound_to }))
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
    let Some(action) = Action::parse(&word) else { return Err(frame(Error::NoSuchRoute(path.clone()))) };
    let body = read_body(body).await.map_err(frame)?;
    let (kind, what) = kind_of(action, &form_fields(&body), &shared).map_err(frame)?;
    note.set(&what);
    request(&shared, &caller, name.clone(), kind).await.map_err(frame)?;
    // Nothing is left of it that a page could show.
    let place = match action {
        Action::Forget => "../../".to_owned(),
        _ => format!("../{name}?did={}", action.word()),
    };
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response())
}

/// The request of a form, and what the audit says about it.
fn kind_of(
    action: Action,
    fields: &std::collections::BTreeMap<String, String>,
    shared: &Shared,
) -> Result<(RequestKind, String), Error> {
    let field =
        |name: &str| fields.get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let needed =
        |name: &str| field(name).ok_or_else(|| Error::Malformed(format!("the form has no `{name}`")));
    let simple = |kind: RequestKind| (kind, String::new());
    Ok(match action {
        Action::Sync => simple(RequestKind::Sync),
        Action::Resume => simple(RequestKind::Resume),
        Action::Suspend => simple(RequestKind::Suspend),
        Action::Heal => simple(RequestKind::Heal),
        Action::UpdateImages => simple(RequestKind::UpdateImages),
        Action::Adopt => simple(RequestKind::Adopt),
        Action::Prune => simple(RequestKind::Prune),
        Action::AcceptRewrite => simple(RequestKind::AcceptRewrite(Some(needed("seen")?))),
        Action::Retry => simple(RequestKind::Retry),
        Action::Promote => simple(RequestKind::Promote(Promotion::default())),
        Action::Abort => simple(RequestKind::Abort),
        Action::Restart => {
            let workload = needed("workload")?;
            (RequestKind::Restart(WorkloadName(workload.clone())), workload)
        }
        Action::Scale => {
            let (workload, replicas) = (needed("workload")?, needed("replicas")?);
            let replicas = replicas
                .parse()
                .map_err(|_| Error::Malformed(format!("`{replicas}` is no number of instances")))?;
            ScaleBody { replicas, until: needed("until")? }.request(&workload, shared.clock.now())?
        }
        Action::ResetScale => {
            let workload = needed("workload")?;
            (RequestKind::ResetScale(WorkloadName(workload.clone())), workload)
        }
        Action::Remove if field("volumes").is_some() => {
            (RequestKind::Remove(Removal::WithVolumes), "with volumes".to_owned())
        }
        Action::Remove => simple(RequestKind::Remove(Removal::KeepVolumes)),
        Action::Forget => simple(RequestKind::Forget),
        Action::Rollback => {
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
        let words: std::collections::BTreeSet<_> = Action::ALL.iter().map(|action| action.word()).collect();
        assert_eq!(words.len(), Action::ALL.len());
        let shown = Action::ALL.iter().filter(|action| !action.is_of_workload());
        let mut keys: Vec<_> = shown.map(|action| action.key()).collect();
        keys.extend(["p", "d", "o", "a", "l", "j", "k", "/", "?"]);
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert!(done_text("rollback").is_some() && done_text("<script>").is_none());
    }
}
