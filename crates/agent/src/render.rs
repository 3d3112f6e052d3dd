//! Renders the applications of one accepted commit.

use std::{collections::BTreeMap, sync::Arc};

use driftless_config as config;
use driftless_config::AtCommit;
use driftless_files::{AppSpec, Files, Recorder};
use driftless_git::Checkout;
use driftless_manifest as manifest;
use driftless_manifest::{Configured, Discovery};
use driftless_model::{
    AdmissionPolicy, AppName, Finding, IgnoredDifferences, Location, ObjectsOfOthers, Policy, Stack,
    StackHashes, WorkloadName,
};

use crate::{desired::Rendered, host_values::ReadValues, trust::RejectedCommit};

/// A commit that its repository accepts.
pub(crate) struct AcceptedCommit {
    pub(crate) checkout: Checkout,
    /// The signer, if a signature is required.
    pub(crate) signer: Option<String>,
    /// The applications that reject it.
    pub(crate) rejected: BTreeMap<AppName, RejectedCommit>,
    /// The variables that lie on the host.
    pub(crate) values: Arc<ReadValues>,
    /// The applications of the commit before.
    pub(crate) before: BTreeMap<AppName, Arc<Rendered>>,
}

/// The applications of one commit.
pub(crate) struct RenderedCommit {
    pub(crate) applications: BTreeMap<AppName, Arc<Rendered>>,
    /// About the repository as a whole.
    pub(crate) findings: Vec<Finding>,
    /// The searched folder, if the only finding is that it has no application or does not exist.
    pub(crate) empty_folder: Option<String>,
    /// The settings of the repository at the commit. `None`: its `driftless.yaml` has mistakes.
    pub(crate) settings: Option<Arc<config::Repository>>,
}

/// Finds and renders all applications of a commit.
pub(crate) fn render_all(settings: &config::Repository, accepted: &AcceptedCommit) -> RenderedCommit {
    let files = accepted.checkout.files.as_ref();
    let (settings, discovery) = match discover_at(settings, files) {
        Ok((repository, discovery)) => (&Arc::new(repository), discovery),
        // The list of applications is not known, so all stay as they are.
        Err(findings) => {
            let applications = BTreeMap::new();
            return RenderedCommit { applications, findings, empty_folder: None, settings: None };
        }
    };
    let render_one = |mut spec: AppSpec| {
        accepted.values.give(settings, &mut spec);
        spec.engine = settings.policy_of(&spec.name).engine;
        let name = spec.name.clone();
        let before = accepted.before.get(&name);
        let rendered = match (accepted.rejected.get(&name), before) {
            (Some(rejected), before) => keep_before(settings, spec, rejected, before),
            (None, Some(before)) if is_unchanged(before, settings, &spec, files) => Rendered {
                commit: accepted.checkout.commit.clone(),
                reference: reference_text(&settings.reference, accepted.checkout.tag.as_deref()),
                signer: accepted.signer.clone(),
                rejected: None,
                policy: policy_of(settings, &name),
                settings: Some(Arc::clone(settings)),
                ..Rendered::clone(before)
            },
            (None, _) => render(settings, spec, accepted),
        };
        (name, Arc::new(rendered))
    };
    let mut applications: BTreeMap<_, _> =
        manifest::on_all_cores(discovery.apps, render_one).into_iter().collect();
    // An application that a rejected commit removes is kept.
    for (name, rejected) in &accepted.rejected {
        if let (None, Some(before)) = (applications.get(name), accepted.before.get(name)) {
            let kept = keep_before(settings, before.spec.clone(), rejected, Some(before));
            applications.insert(name.clone(), Arc::new(kept));
        }
    }
    report_idle_rules(&mut applications);
    let empty_folder = discovery.empty_folder.filter(|_| applications.is_empty());
    let mut findings = discovery.findings;
    findings.extend(settings.settings_above(files));
    RenderedCommit { applications, findings, empty_folder, settings: Some(Arc::clone(settings)) }
}

/// Reports rules of `ignoreDifferences` whose workload no application has that they are for.
fn report_idle_rules(applications: &mut BTreeMap<AppName, Arc<Rendered>>) {
    let all: Vec<Arc<Rendered>> = applications.values().cloned().collect();
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
        let found: Vec<Finding> = rendered.policy.ignore_differences.iter().filter_map(finding).collect();
        if found != rendered.rule_findings {
            Arc::make_mut(rendered).rule_findings = found;
        }
    }
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

fn render(settings: &Arc<config::Repository>, spec: AppSpec, accepted: &AcceptedCommit) -> Rendered {
    let recorder = Recorder::new(accepted.checkout.files.as_ref());
    let mut rendered = manifest::render(&recorder, &spec);
    let admission = admission_of(settings, &spec.name).clone();
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
        reference: reference_text(&settings.reference, accepted.checkout.tag.as_deref()),
        policy: policy_of(settings, &spec.name),
        admission: Arc::new(admission),
        commit: accepted.checkout.commit.clone(),
        hashes: stack.as_ref().map(|stack| Arc::new(StackHashes::of(stack))),
        stack: stack.map(Arc::new),
        findings: rendered.findings,
        rule_findings: Vec::new(),
        contents: Arc::new(rendered.contents),
        signer: accepted.signer.clone(),
        rejected: None,
        reads: Arc::new(reads),
        settings: Some(Arc::clone(settings)),
        spec,
    }
}

/// Whether rendering again would give the same result: no file that it has read has changed.
fn is_unchanged(before: &Rendered, settings: &config::Repository, spec: &AppSpec, files: &dyn Files) -> bool {
    before.rejected.is_none()
        && before.spec == *spec
        && *before.admission == *admission_of(settings, &spec.name)
        && before.reads.hold_in(files)
}

/// Keeps the application of the last commit that it accepted. Without one, the rejection is a finding.
fn keep_before(
    settings: &Arc<config::Repository>,
    spec: AppSpec,
    rejected: &RejectedCommit,
    before: Option<&Arc<Rendered>>,
) -> Rendered {
    let commit = Some(Arc::new(rejected.clone()));
    // An application that rejects its only commit has nothing to keep, and its finding is about an older check.
    let is_accepted = |before: &&Arc<Rendered>| {
        before.rejected.as_ref().is_none_or(|rejected| rejected.commit != before.commit)
    };
    if let Some(before) = before.filter(is_accepted) {
        return Rendered { rejected: commit, ..Rendered::clone(before) };
    }
    Rendered {
        repository: settings.name.clone(),
        url: settings.url.to_string(),
        reference: reference_text(&settings.reference, None),
        policy: policy_of(settings, &spec.name),
        admission: Arc::new(admission_of(settings, &spec.name).clone()),
        commit: rejected.commit.clone(),
        stack: None,
        hashes: None,
        findings: vec![rejected.finding()],
        rule_findings: Vec::new(),
        contents: Arc::default(),
        signer: None,
        rejected: commit,
        reads: Arc::default(),
        settings: Some(Arc::clone(settings)),
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
