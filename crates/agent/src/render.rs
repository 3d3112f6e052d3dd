//! Renders the applications of one accepted commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_config as config;
use driftless_config::AtCommit;
use driftless_files::{AppSpec, Files, HostFile, Recorder};
use driftless_git::Checkout;
use driftless_manifest as manifest;
use driftless_manifest::{Configured, Discovery};
use driftless_model::{
    AdmissionPolicy, AppName, Finding, HostIdentity, IgnoredDifferences, Location, ObjectsOfOthers, Policy,
    Stack, StackHashes, WorkloadName,
};

use crate::{
    absence::changed_host,
    commits::trust::RejectedCommit,
    desired::Rendered,
    host_values::{ReadValues, Sharing, own_paths},
};

/// A commit that its repository accepts.
pub(crate) struct AcceptedCommit {
    pub(crate) checkout: Checkout,
    /// The signer, if a signature is required.
    pub(crate) signer: Option<String>,
    /// The applications that reject it.
    pub(crate) rejected: BTreeMap<AppName, RejectedCommit>,
    /// The last commit that each of these accepted, if there is one.
    pub(crate) last_accepted: BTreeMap<AppName, Checkout>,
    /// The deployed applications that were last applied while the host had another name or other labels.
    pub(crate) former_hosts: BTreeMap<AppName, HostIdentity>,
    /// The variables that lie on the host.
    pub(crate) values: Arc<ReadValues>,
    /// The applications of the commit before.
    pub(crate) before: BTreeMap<AppName, Arc<Rendered>>,
}

/// The applications of one commit.
pub(crate) struct RenderedCommit {
    pub(crate) applications: BTreeMap<AppName, Arc<Rendered>>,
    /// The applications that reject the commit and had left with the last commit that they accepted, with the settings of
    /// the repository at that one.
    pub(crate) withdrawn: BTreeMap<AppName, Arc<config::Repository>>,
    /// About the repository as a whole.
    pub(crate) findings: Vec<Finding>,
    /// The searched folder, if the only finding is that it has no application or does not exist.
    pub(crate) empty_folder: Option<String>,
    /// See [`Discovery::unread_files`].
    pub(crate) unread_files: Vec<Finding>,
    /// See [`Discovery::unsearched`].
    pub(crate) unsearched: Vec<String>,
    /// Why applications that the commit does not have may be missing by mistake.
    pub(crate) doubts: BTreeMap<AppName, String>,
    /// The settings of the repository at the commit. `None`: its `driftless.yaml` has mistakes.
    pub(crate) settings: Option<Arc<config::Repository>>,
}

/// One application to render, at the commit that counts for it.
struct AppAtCommit<'a> {
    spec: AppSpec,
    /// The settings of the repository at the commit.
    settings: Arc<config::Repository>,
    checkout: &'a Checkout,
    /// The followed reference as statuses show it.
    reference: String,
    signer: Option<String>,
    /// A newer commit that it rejects.
    rejected: Option<&'a RejectedCommit>,
}

/// The applications that reject a commit.
#[derive(Default)]
struct Rejecting<'a> {
    /// Those that their last accepted commit has.
    chosen: Vec<AppAtCommit<'a>>,
    /// Those of which nothing is rendered again: their last accepted commit cannot be read, or they have none.
    applications: BTreeMap<AppName, Arc<Rendered>>,
    /// See [`RenderedCommit::withdrawn`].
    withdrawn: BTreeMap<AppName, Arc<config::Repository>>,
    findings: Vec<Finding>,
}

/// Finds and renders all applications of a commit. Those that reject it are those of the last commit that they accepted.
/// `host` are the settings of the repository in the configuration of the host.
pub(crate) fn render_all(host: &config::Repository, accepted: &AcceptedCommit) -> RenderedCommit {
    let checkout = &accepted.checkout;
    let (settings, discovery) = match discover_at(host, checkout.files.as_ref()) {
        Ok((repository, discovery)) => (Some(Arc::new(repository)), discovery),
        // The list of applications is not known, so all that do not reject the commit stay as they are.
        Err(findings) => (None, Discovery { findings, ..Discovery::default() }),
    };
    let Discovery { apps, mut findings, empty_folder, unread_files, unsearched, too_deep } = discovery;
    let (of_rejecting, of_others): (Vec<AppSpec>, Vec<AppSpec>) =
        apps.into_iter().partition(|spec| accepted.rejected.contains_key(&spec.name));
    let rejecting = keep_accepted(host, accepted, &of_rejecting);
    let Rejecting { mut chosen, mut applications, withdrawn, findings: of_rejected } = rejecting;
    if let Some(settings) = &settings {
        let reference = reference_text(&settings.reference, checkout.tag.as_deref());
        chosen.extend(of_others.into_iter().map(|spec| AppAtCommit {
            spec,
            settings: Arc::clone(settings),
            checkout,
            reference: reference.clone(),
            signer: accepted.signer.clone(),
            rejected: None,
        }));
        findings.extend(settings.settings_above(checkout.files.as_ref()));
    }
    findings.extend(of_rejected);
    let sharing = Sharing::of(chosen.iter().map(|app| &app.spec));
    applications.extend(manifest::on_all_cores(chosen, |app| render_or_keep(app, sharing, accepted)));
    report_idle_settings(&mut applications);
    let empty_folder = empty_folder.filter(|_| applications.is_empty());
    let mut doubts = found_too_deep(&too_deep);
    doubts.extend(kept_by_former_host(host, accepted, &applications));
    RenderedCommit {
        applications,
        withdrawn,
        findings,
        empty_folder,
        unread_files,
        unsearched,
        doubts,
        settings,
    }
}

/// The applications that folders below the search depth would be, with the reason why they are not found.
fn found_too_deep(folders: &[String]) -> BTreeMap<AppName, String> {
    let doubt = |folder: &String| {
        let name = AppName::normalise(folder.rsplit('/').next().unwrap_or(folder))?;
        let why = format!(
            "`{folder}` may be the application, but lies too deep to be read: name it in `applications`, or set `path` to a folder \
             that is nearer to it"
        );
        Some((name, why))
    };
    folders.iter().filter_map(doubt).collect()
}

/// The deployed applications that only a changed name or changed labels of the host take away: as it was before, it would have them. No
/// commit says so, and a hostname changes by accident.
fn kept_by_former_host(
    host: &config::Repository,
    accepted: &AcceptedCommit,
    present: &BTreeMap<AppName, Arc<Rendered>>,
) -> BTreeMap<AppName, String> {
    let mut found = BTreeMap::new();
    let mut kept = BTreeMap::new();
    for (app, former) in accepted.former_hosts.iter().filter(|(app, _)| !present.contains_key(*app)) {
        let checkout = accepted.last_accepted.get(app).unwrap_or(&accepted.checkout);
        let discovery = found
            .entry((former, &checkout.commit.id))
            .or_insert_with(|| discover_at(&host.for_host(former), checkout.files.as_ref()).ok());
        let has_application = discovery.as_ref().is_none_or(|(_, discovery)| {
            let has_errors = discovery.findings.iter().any(Finding::is_error);
            // With an error, the list may be incomplete.
            let is_incomplete = has_errors && discovery.empty_folder.is_none();
            is_incomplete || discovery.apps.iter().any(|spec| spec.name == *app)
        });
        if has_application {
            kept.insert(app.clone(), changed_host(former, &host.host));
        }
    }
    kept
}

/// The applications that reject a commit: each stays at the last commit that it accepted. `newest` are those of them that the
/// rejected commit has.
fn keep_accepted<'a>(
    host: &config::Repository,
    accepted: &'a AcceptedCommit,
    newest: &[AppSpec],
) -> Rejecting<'a> {
    // Several applications may have accepted the same commit.
    let mut found = BTreeMap::new();
    for checkout in accepted.last_accepted.values() {
        found.entry(&checkout.commit.id).or_insert_with(|| {
            let (settings, discovery) = discover_at(host, checkout.files.as_ref()).ok()?;
            Some((Arc::new(settings), discovery))
        });
    }
    let mut kept = Rejecting::default();
    for (name, rejected) in &accepted.rejected {
        let before = accepted.before.get(name).filter(|rendered| rendered.is_accepted());
        let in_newest = newest.iter().find(|spec| spec.name == *name);
        let last = accepted.last_accepted.get(name);
        let at_last = last.and_then(|checkout| Some((checkout, found.get(&checkout.commit.id)?.as_ref()?)));
        if let Some((checkout, (settings, discovery))) = at_last {
            if let Some(spec) = discovery.apps.iter().find(|spec| spec.name == *name) {
                let same = before.filter(|before| before.commit == checkout.commit);
                let reference = || reference_text(&settings.reference, None);
                kept.chosen.push(AppAtCommit {
                    spec: spec.clone(),
                    settings: Arc::clone(settings),
                    checkout,
                    reference: same.map_or_else(reference, |before| before.reference.clone()),
                    signer: same.and_then(|before| before.signer.clone()),
                    rejected: Some(rejected),
                });
                continue;
            }
            let may_hide = |unread: &Finding| {
                before.is_some_and(|before| manifest::may_hide(&unread.location.file, &before.spec.path))
            };
            // With an error, the list may be incomplete.
            if !discovery.findings.iter().any(Finding::is_error)
                && !discovery.unread_files.iter().any(may_hide)
            {
                let place = |spec: &AppSpec| Location::file(&spec.path);
                kept.findings
                    .extend(in_newest.map(|spec| Finding::warning(place(spec), "", rejected.sentence())));
                kept.withdrawn.insert(name.clone(), Arc::clone(settings));
                continue;
            }
        }
        let rendered = match (before, in_newest) {
            (Some(before), _) => {
                Rendered { rejected: Some(Arc::new(rejected.clone())), ..Rendered::clone(before) }
            }
            (None, Some(spec)) if last.is_none() => unaccepted(host, spec.clone(), rejected),
            // It is undecided, and stays as it is.
            (None, _) => continue,
        };
        kept.applications.insert(name.clone(), Arc::new(rendered));
    }
    kept
}

/// Renders an application, unless no file has changed that it was rendered from before.
fn render_or_keep(
    mut app: AppAtCommit<'_>,
    sharing: Sharing,
    accepted: &AcceptedCommit,
) -> (AppName, Arc<Rendered>) {
    accepted.values.give(&app.settings, sharing, &mut app.spec);
    app.spec.engine = app.settings.policy_of(&app.spec.name).engine;
    let name = app.spec.name.clone();
    let rendered = match accepted.before.get(&name).filter(|before| is_unchanged(before, &app)) {
        Some(before) => Rendered {
            commit: app.checkout.commit.clone(),
            reference: app.reference,
            signer: app.signer,
            rejected: app.rejected.cloned().map(Arc::new),
            policy: policy_of(&app.settings, &name),
            settings: Some(app.settings),
            ..Rendered::clone(before)
        },
        None => render(app),
    };
    (name, Arc::new(rendered))
}

/// Reports rules of `ignoreDifferences` whose workload no application has that they are for, and files of the host that no manifest
/// refers to.
fn report_idle_settings(applications: &mut BTreeMap<AppName, Arc<Rendered>>) {
    let all: Vec<Arc<Rendered>> = applications.values().cloned().collect();
    let mut unread = unread_host_files(&all);
    let is_known = |rule: &IgnoredDifferences, name: &WorkloadName| {
        let is_rule = |other: &IgnoredDifferences| other == rule && other.place == rule.place;
        let mut meant = all.iter().filter(|rendered| rendered.policy.ignore_differences.iter().any(is_rule));
        // Without a stack its workloads are not known.
        meant.any(|rendered| rendered.stack.as_ref().is_none_or(|stack| stack.workloads.contains_key(name)))
    };
    for rendered in applications.values_mut() {
        let finding = |rule: &IgnoredDifferences| {
            let (place, name) =
                (rule.place.clone()?, rule.workload.as_ref().filter(|name| !is_known(rule, name))?);
            let message =
                format!("no application has a workload `{name}` that this rule is for, so it has no effect");
            let help = "correct the name of the workload, or remove the rule";
            Some(Finding::warning(place, "ignoreDifferences", message).help(help))
        };
        let mut found: Vec<Finding> = rendered.policy.ignore_differences.iter().filter_map(finding).collect();
        found.extend(unread.remove(&rendered.spec.name).unwrap_or_default());
        if found != rendered.rule_findings {
            Arc::make_mut(rendered).rule_findings = found;
        }
    }
}

/// Warnings about files of the host that no manifest refers to, as after the rename of a folder: each one with the first application that
/// has the source.
fn unread_host_files(all: &[Arc<Rendered>]) -> BTreeMap<AppName, Vec<Finding>> {
    let mut found: BTreeMap<AppName, Vec<Finding>> = BTreeMap::new();
    // One that could not be rendered may refer to any of them.
    if all.iter().any(|rendered| rendered.stack.is_none()) {
        return found;
    }
    let read: BTreeSet<&String> = all.iter().flat_map(|rendered| &rendered.host_files).collect();
    let mut reported = BTreeSet::new();
    for rendered in all {
        let own = rendered.settings.as_ref().map(|settings| own_paths(settings)).unwrap_or_default();
        for HostFile { path, source, .. } in &rendered.spec.host_files {
            if read.contains(path) || !own.contains(path) || !reported.insert(path) {
                continue;
            }
            let message = format!("no manifest reads this file, for which the host has {source}");
            let finding = Finding::warning(Location::file(path), "valuesFrom", message).help(
                "correct the `path` of the source, as after the rename of a folder, or remove the source, unless only services of inactive profiles have it",
            );
            found.entry(rendered.spec.name.clone()).or_default().push(finding);
        }
    }
    found
}

/// The settings of a repository at a commit, and the applications that they and the files have for its host.
///
/// # Errors
/// All mistakes of `driftless.yaml`. Which applications exist is then not known.
pub fn discover_at(
    settings: &config::Repository,
    files: &dyn Files,
) -> Result<(config::Repository, Discovery), Vec<Finding>> {
    let AtCommit { repository, discover, hosts: _, findings } = settings.at_commit(files)?;
    let configured: Vec<Configured> = repository.applications.iter().map(configured).collect();
    let mut discovery = if discover || !configured.is_empty() {
        let (path, name) = (&repository.path, &repository.name);
        manifest::discover_for(&repository.host, files, path, name, &configured)
    } else {
        // The removal of all applications may be a mistake, as with an empty folder.
        Discovery { empty_folder: Some(repository.path.clone()), ..Discovery::default() }
    };
    discovery.findings.extend(findings);
    for app in &mut discovery.apps {
        app.engine = repository.policy_of(&app.name).engine;
    }
    Ok((repository, discovery))
}

/// The applications that the settings of a repository at a commit have for other hosts. Each is searched by itself, because different
/// hosts may have different ones of one name.
pub fn discover_elsewhere(settings: &config::Repository, files: &dyn Files) -> Discovery {
    let mut all = Discovery::default();
    for application in &settings.elsewhere {
        let config::Repository { host, path, name, .. } = settings;
        let found = manifest::discover_for(host, files, path, name, &[configured(application)]);
        let engine = application.policy.engine;
        all.apps.extend(found.apps.into_iter().map(|app| AppSpec { engine, ..app }));
        all.findings.extend(found.findings);
    }
    all
}

fn configured(settings: &config::ApplicationSettings) -> Configured {
    Configured {
        name: settings.app_name(),
        path: settings.path.clone(),
        variables: settings.variables.clone(),
        profiles: settings.profiles.clone(),
        files: settings.files.clone(),
        env_files: settings.env_files.clone(),
        place: settings.place().cloned(),
    }
}

fn render(app: AppAtCommit<'_>) -> Rendered {
    let AppAtCommit { spec, settings, checkout, reference, signer, rejected } = app;
    let recorder = Recorder::new(checkout.files.as_ref());
    let mut rendered = manifest::render(&recorder, &spec);
    let admission = admission_of(&settings, &spec.name).clone();
    manifest::admission::enforce(&recorder, &admission, &mut rendered);
    let reads = recorder.finish();
    rendered.findings.extend(reads.collisions().into_iter().map(|(path, other)| {
        let message = format!("differs from `{other}` in the case of its letters only");
        Finding::warning(Location::file(path), "", message)
            .help("rename one of them: a file system that ignores case keeps only one")
    }));
    let stack = rendered.stack.map(shrunk);
    Rendered {
        repository: settings.name.clone(),
        url: settings.url.to_string(),
        reference,
        policy: policy_of(&settings, &spec.name),
        admission: Arc::new(admission),
        commit: checkout.commit.clone(),
        hashes: stack.as_ref().map(|stack| Arc::new(StackHashes::of(stack))),
        stack: stack.map(Arc::new),
        findings: rendered.findings,
        rule_findings: Vec::new(),
        contents: Arc::new(rendered.contents),
        host_files: rendered.host_files,
        signer,
        rejected: rejected.cloned().map(Arc::new),
        reads: Arc::new(reads),
        settings: Some(settings),
        spec,
    }
}

/// Whether rendering again would give the same result: no file that it has read has changed.
fn is_unchanged(before: &Rendered, app: &AppAtCommit<'_>) -> bool {
    before.is_accepted()
        && before.spec == app.spec
        && *before.admission == *admission_of(&app.settings, &app.spec.name)
        && before.reads.hold_in(app.checkout.files.as_ref())
}

/// An application that has accepted no commit yet: the rejection is a finding. Its policy is that of the host's configuration
/// alone.
fn unaccepted(host: &config::Repository, mut spec: AppSpec, rejected: &RejectedCommit) -> Rendered {
    spec.engine = host.policy_of(&spec.name).engine;
    Rendered {
        repository: host.name.clone(),
        url: host.url.to_string(),
        reference: reference_text(&host.reference, None),
        policy: policy_of(host, &spec.name),
        admission: Arc::new(admission_of(host, &spec.name).clone()),
        commit: rejected.commit.clone(),
        stack: None,
        hashes: None,
        findings: vec![rejected.finding()],
        rule_findings: Vec::new(),
        contents: Arc::default(),
        host_files: BTreeSet::new(),
        signer: None,
        rejected: Some(Arc::new(rejected.clone())),
        reads: Arc::default(),
        settings: Some(Arc::new(host.clone())),
        spec,
    }
}

/// Releases spare capacity: a stack is kept for a long time.
fn shrunk(mut stack: Stack) -> Stack {
    for workload in stack.workloads.values_mut() {
        workload.container.host.trim();
        workload.parts.iter_mut().for_each(|part| part.container.host.trim());
    }
    // A map that was filled one by one has twice the room that it needs.
    Stack { workloads: stack.workloads.into_iter().collect(), ..stack }
}

/// The policy of an application, with the rules of its admission policy that hold while it is deployed.
fn policy_of(settings: &config::Repository, name: &AppName) -> Policy {
    let admission = admission_of(settings, name);
    let verify_images = admission.verify_images.clone().unwrap_or_default();
    let objects_of_others = if admission.allows_other_applications() {
        ObjectsOfOthers::Allowed
    } else {
        ObjectsOfOthers::Forbidden
    };
    Policy { verify_images, objects_of_others, ..settings.policy_of(name).clone() }
}

/// The rules of the application's own settings, else those of its repository.
fn admission_of<'a>(settings: &'a config::Repository, name: &AppName) -> &'a AdmissionPolicy {
    let is_of_application =
        |application: &&config::ApplicationSettings| application.app_name().as_ref() == Some(name);
    let own = settings.applications.iter().find(is_of_application);
    own.map_or(&settings.admission, |application| &application.admission)
}

/// The followed reference as statuses show it. `tag` is the tag that a version range has chosen.
pub(crate) fn reference_text(reference: &config::Reference, tag: Option<&str>) -> String {
    match reference {
        config::Reference::Head => "HEAD".into(),
        config::Reference::Branch(name) | config::Reference::Tag(name) => name.clone(),
        config::Reference::Semver(range) => match tag {
            Some(tag) => format!("{tag} ({range})"),
            None => range.to_string(),
        },
        config::Reference::Commit(id) => id.to_string(),
    }
}
