//! `driftless preview`: renders two commits and compares the results.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    context::{Context, ExitStatus},
    error::Error as CliError,
    hosts::HostArgs,
    policy_file::PolicyArgs,
    report::{
        damage::DamageRecorder,
        error::Error,
        options::{GitArgs, ReportArgs},
        output::{check, finish},
        repository::{
            Place, RenderedApp, RenderedFolder, RenderedHosts, Rendering, mistakes, new_errors, render,
        },
    },
};
use clap::Args;
use driftless_agent as controller;
use driftless_files::Files;
use driftless_model::{AdmissionPolicy, AppName, Finding, Mask};
use driftless_report as report;
use driftless_report::{Kind, Report};

/// Report what a change would do: render two commits of a repository and compare the results.
///
/// Needs no agent and no Docker and, for a clone on disk, no network and no credentials. The same two commits give
/// the same report everywhere. Compares the rendered applications, not the text of manifests: a change of comments
/// or of the order of keys is not a difference.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  no change
  1  changes
  2  error: wrong usage, no such commit, an application that cannot be
     rendered; takes precedence over changes. Errors that the base has too
     are listed apart and do not count, unless with --fail-on any: the
     changes of these applications are not known
     (--detailed-exitcode: 2 is changes and 1 is error)

Examples:
  driftless preview --base main
  driftless preview --base origin/main --head HEAD --merge-base -o markdown
  driftless preview --base v1.4 --head v1.5 --path sites -o diff ~/infra
  driftless preview --base main --all-hosts
  driftless preview --base main --variable shop:DB_PASSWORD=a
  driftless preview --base main --exit-zero \\
    -o github -o markdown=preview.md --post")]
pub(super) struct PreviewArgs {
    /// Folder in a clone of the repository, or its URL.
    #[arg(value_name = "DIR|URL", default_value = ".")]
    pub(super) repository: String,
    /// Old side of the comparison: a branch, tag or commit.
    #[arg(long, value_name = "REF")]
    pub(super) base: String,
    /// New side of the comparison: a branch, tag or commit.
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    pub(super) head: String,
    /// Compare with the merge base of --base and --head, so that newer commits of base do not count. Needs a clone
    /// with the history up to there.
    #[arg(long)]
    pub(super) merge_base: bool,
    #[command(flatten)]
    pub(super) hosts: HostArgs,
    #[command(flatten)]
    pub(super) policy: PolicyArgs,
    #[command(flatten)]
    pub(super) report: ReportArgs,
    #[command(flatten)]
    pub(super) git: GitArgs,
}

pub(super) async fn preview(args: &PreviewArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    check(&args.report)?;
    let timeout = args.report.timeout;
    let report = tokio::time::timeout(timeout, make(args, context)).await;
    let report = report.map_err(|_| Error::Timeout(timeout))??;
    finish(report, &args.report, context).await
}

async fn make(args: &PreviewArgs, context: &Context<'_>) -> Result<Report, CliError> {
    let policy = args.policy.read()?;
    let place = Place::open(&args.repository, &args.git)?;
    let (name, folder) = (place.name(), place.folder(args.report.path.as_deref()));
    let base = if args.merge_base { place.merge_base(&args.base, &args.head)? } else { args.base.clone() };
    let head = place.commit(&args.head, context).await?;
    let base = place.commit(&base, context).await?;
    let mut report = Report::new(Kind::Preview);
    (report.base, report.head) = (Some(base.commit.clone()), Some(head.commit.clone()));
    let selection = args.report.selection();
    let hosts = args.hosts.clone();
    let labels = (format!("git@{}", base.commit.short()), format!("git@{}", head.commit.short()));
    let rendered = tokio::task::spawn_blocking(move || {
        let [base_files, head_files] =
            [&base, &head].map(|checkout| DamageRecorder::new(checkout.files.as_ref()));
        let of = |files: &DamageRecorder<'_>,
                  rendered_hosts: RenderedHosts<'_>,
                  before: &Rendering,
                  policy: Option<&AdmissionPolicy>| {
            let source =
                RenderedFolder { files, folder: &folder, name: &name, hosts: rendered_hosts, given: &hosts };
            render(&source, policy, before)
        };
        let both = |rendered_hosts: RenderedHosts<'_>| {
            let before = of(&base_files, rendered_hosts, &Rendering::default(), None);
            // The base is what runs today; the policy is for what is to come.
            let after = of(&head_files, rendered_hosts, &before, policy.as_ref());
            (before, after)
        };
        let all = hosts.hosts([&base_files as &dyn Files, &head_files], &folder)?;
        let listed: Vec<_> =
            all.iter().map(|host| (host.name.clone(), both(RenderedHosts::One(host)))).collect();
        let mut unlisted = (Rendering::default(), Rendering::default());
        if hosts.host.is_none() {
            unlisted = both(RenderedHosts::Others(&all));
            let (before, after) = &mut unlisted;
            // A host that the head lists may have it.
            let is_listed = |app: &RenderedApp| listed.iter().any(|(_, (_, head))| head.has(&app.spec.name));
            before.applications.retain(|app| after.has_at(&app.spec) || !is_listed(app));
        }
        let sides = [("base", &base_files), ("head", &head_files)];
        let damage = sides.iter().find_map(|(side, files)| Some(format!("{side}: {}", files.damage()?)));
        Ok((listed, unlisted, damage))
    });
    let rendered = rendered.await.map_err(|error| Error::Broken(error.to_string()))?;
    let (listed, unlisted, damage) = rendered.map_err(CliError::Findings)?;
    if let Some(message) = damage {
        return Err(Error::Damaged { message, is_partial: place.is_partial_clone() }.into());
    }
    let is_one = listed.len() == 1;
    let moved = moved_applications(&listed);
    for (host, (before, after)) in listed {
        let mut of_host = Report::new(Kind::Preview);
        compare(&mut of_host, before, after, (&labels.0, &labels.1));
        add_host(&mut report, of_host, Some(&host).filter(|_| !is_one));
    }
    let mut of_others = Report::new(Kind::Preview);
    compare(&mut of_others, unlisted.0, unlisted.1, (&labels.0, &labels.1));
    for app in of_others.apps.iter_mut().filter(|app| is_shown(app)) {
        add_note(app, "on hosts that driftless.yaml does not list");
    }
    add_host(&mut report, of_others, None);
    for app in report.apps.iter_mut().filter(|app| is_shown(app)) {
        if let Some(note) = moved.get(&app.name) {
            add_note(app, note);
        }
    }
    name_hosts(&mut report);
    let names: Vec<String> = report.apps.iter().map(|it| it.name.to_string()).collect();
    selection.check(names.iter().map(String::as_str))?;
    report.apps.retain(|app| selection.names(app.name.as_str()));
    Ok(report)
}

/// A note about each application that some hosts lose and others get. Each host has its own agent, so none waits for another one.
fn moved_applications(listed: &[(String, (Rendering, Rendering))]) -> BTreeMap<AppName, String> {
    // With errors, an application that is not shown may be there.
    let known = listed.iter();
    let known = known.filter(|(_, (before, after))| before.errors.is_empty() && after.errors.is_empty());
    let known: Vec<_> = known.collect();
    let of_all =
        known.iter().flat_map(|(_, (before, after))| before.applications.iter().chain(&after.applications));
    let names: BTreeSet<&AppName> = of_all.map(|app| &app.spec.name).collect();
    let note = |app: &AppName| {
        let (mut losing, mut gaining) = (Vec::new(), Vec::new());
        for (host, (before, after)) in &known {
            match (before.has(app), after.has(app)) {
                (true, false) => losing.push(host.as_str()),
                (false, true) => gaining.push(host.as_str()),
                (true, true) | (false, false) => {}
            }
        }
        let is_moved = !losing.is_empty() && !gaining.is_empty();
        is_moved.then(|| {
            let (from, to) = (losing.join(", "), gaining.join(", "));
            format!(
                "it may begin on {to} before it ends on {from}, where its data stay: \
                 docs/rollouts.md#move-an-application-to-another-host"
            )
        })
    };
    names.into_iter().filter_map(|app| Some((app.clone(), note(app)?))).collect()
}

/// Adds the result of one host. An application that is the same on several hosts is in the report once.
fn add_host(report: &mut Report, of_host: Report, host: Option<&String>) {
    for (all, more) in
        [(&mut report.errors, of_host.errors), (&mut report.known_errors, of_host.known_errors)]
    {
        for error in more {
            if !all.contains(&error) {
                all.push(error);
            }
        }
    }
    for app in of_host.apps {
        let is_same =
            |known: &&mut report::App| report::App { hosts: Vec::new(), ..(**known).clone() } == app;
        match report.apps.iter_mut().find(is_same) {
            Some(known) => known.hosts.extend(host.cloned()),
            None => report.apps.push(report::App { hosts: host.cloned().into_iter().collect(), ..app }),
        }
    }
    report.apps.sort_by(|one, other| (&one.name, &one.hosts).cmp(&(&other.name, &other.hosts)));
}

/// Says in words on which hosts an application changes.
fn name_hosts(report: &mut Report) {
    for app in report.apps.iter_mut().filter(|app| !app.hosts.is_empty() && is_shown(app)) {
        let hosts = format!("on {}", app.hosts.join(", "));
        add_note(app, &hosts);
    }
}

fn is_shown(app: &report::App) -> bool {
    app.has_drift || app.error.is_some() || !app.items.is_empty()
}

/// Adds a note before the one that an application has.
fn add_note(app: &mut report::App, first: &str) {
    app.note = Some(app.note.take().map_or_else(|| first.to_owned(), |note| format!("{first}; {note}")));
}

/// The name of an application, and its folder where several have that name.
type Key = (AppName, Option<String>);

fn compare(report: &mut Report, before: Rendering, after: Rendering, (base, head): (&str, &str)) {
    let new = new_errors(&after.errors, &before.errors);
    report.errors.extend(new.iter().map(|error| format!("head: {error}")));
    let is_new = |error: &Finding| new.iter().any(|new| std::ptr::eq(*new, error));
    let known = after.errors.iter().filter(|error| !is_new(error)).map(|error| format!("head: {error}"));
    report.known_errors.extend(known);
    let only_on_base = new_errors(&before.errors, &after.errors);
    report.known_errors.extend(only_on_base.iter().map(|error| format!("base: {error}")));
    if let (Some(missing), Some(_)) = (&after.missing_folder, &before.missing_folder) {
        report.errors.push(format!("head: {missing}"));
    }
    // An application that the base does not show may be there.
    let is_base_unknown = before.applications.is_empty() && !before.errors.is_empty();
    // With these errors the agent removes nothing: an application that the head does not show may be there.
    let (is_head_unknown, has_new_errors) = (!after.errors.is_empty(), !new.is_empty());
    let why_unknown = |app: &RenderedApp| Some((app.spec.name.clone(), after.why_unknown(&app.spec)?));
    let unclear: BTreeMap<AppName, String> = before.applications.iter().filter_map(why_unknown).collect();
    let why_kept = |app: &RenderedApp| Some((app.spec.name.clone(), after.why_kept(&app.spec)?));
    let kept: BTreeMap<AppName, String> = before.applications.iter().filter_map(why_kept).collect();
    let repeated: BTreeSet<AppName> = [&before, &after].into_iter().flat_map(repeated_names).collect();
    let key = |app: RenderedApp| {
        let folder = Some(app.spec.path.clone()).filter(|_| repeated.contains(&app.spec.name));
        ((app.spec.name.clone(), folder), app)
    };
    let by_name =
        |side: Rendering| -> BTreeMap<Key, RenderedApp> { side.applications.into_iter().map(key).collect() };
    let (before, after) = (by_name(before), by_name(after));
    // Masked values are numbered at the end, so the key of the mask does not matter.
    let mask = Mask::new(controller::random_key());
    let context = report::Context { from: base, to: head };
    let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (from, to) = (before.get(key), after.get(key));
        let path = to.or(from).map(|it| it.spec.path.clone()).unwrap_or_default();
        let mut app = report::application(&key.0, &path);
        match (from, to, unclear.get(&key.0)) {
            (None, Some(to), _) if is_base_unknown && mistakes(&to.findings()).is_none() => {
                app.note = Some("the base cannot be rendered, so the changes are unknown".to_owned());
                report::errors_mended(&mut app);
            }
            (Some(_), None, _) if is_head_unknown => {
                let unknown = "the head has errors, so its changes are unknown".to_owned();
                let errors = if has_new_errors { &mut app.error } else { &mut app.known_error };
                *errors = Some(unknown);
            }
            (Some(_), None, Some(why)) => {
                app.error = Some(format!("the head cannot tell whether it has left: {why}"));
            }
            (Some(_), None, None) if kept.contains_key(&key.0) => app.note = kept.get(&key.0).cloned(),
            (from, to, _) => compare_application(&mut app, from, to, &mask, context),
        }
        report.apps.push(app);
    }
}

/// The names that several applications have. On hosts that are not listed they can, and their folders tell them apart.
fn repeated_names(rendering: &Rendering) -> BTreeSet<AppName> {
    let mut seen = BTreeSet::new();
    let names = rendering.applications.iter().map(|app| &app.spec.name);
    names.filter(|name| !seen.insert(*name)).cloned().collect()
}

/// Compares an application of the base with that of the head. Without one of them it is added or removed.
fn compare_application(
    app: &mut report::App,
    from: Option<&RenderedApp>,
    to: Option<&RenderedApp>,
    mask: &Mask,
    context: report::Context<'_>,
) {
    let [base_findings, head_findings] =
        [from, to].map(|side| side.map(RenderedApp::findings).unwrap_or_default());
    let base_errors = mistakes(&base_findings);
    if let Some(all) = mistakes(&head_findings) {
        app.error = mistakes(new_errors(&head_findings, &base_findings));
        app.known_error = base_errors.filter(|_| app.error.is_none()).map(|_| all);
        return;
    }
    if let Some((from, to)) = from.zip(to) {
        report::of_settings(app, &from.settings, &to.settings, context);
    }
    let [base, head] = [from, to].map(|side| side.and_then(|side| side.rendered.stack.as_ref()));
    if let Some(errors) = base_errors {
        if to.is_some() {
            report::errors_mended(app);
        }
        // Errors because of another application leave the base a stack.
        if base.is_none() {
            let errors = errors.replace('\n', "; ");
            let mut unknown = "changes";
            if to.is_none() {
                report::application_removed(app);
                unknown = "removed objects";
            }
            app.note = Some(format!("the base cannot be rendered, so the {unknown} are unknown: {errors}"));
            return;
        }
    }
    // The head's rendering reused the one of the base.
    if from.zip(to).is_some_and(|(from, to)| Arc::ptr_eq(&from.rendered, &to.rendered)) {
        return;
    }
    let mask = mask.with_stacks(base.into_iter().chain(head));
    report::of_stacks(app, base, head, &mask, context);
}
