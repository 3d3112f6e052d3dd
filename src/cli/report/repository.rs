//! The commits of a report: from a clone on disk, or fetched once from a server.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use super::{error::Error, options::GitArgs};
use crate::{
    cli::Context, cli::Error as CliError, cli::conflicts::conflicts, cli::hosts::HostArgs,
    cli::hosts::OfHost, cli::hosts::discover_for_host, cli::hosts::discover_unlisted,
    cli::sops_keys::decrypted,
};
use driftless_config::{ApplicationSettings, Reference, Secret, Settings};
use driftless_files::{AppSpec, Entry, Files, Reads, Recorder, Rendered};
use driftless_git::{Checkout, CommitSource, FetchPermits, LocalRepository, Repository, RepositoryOptions};
use driftless_manifest as manifest;
use driftless_manifest::Discovery;
use driftless_model::{AdmissionPolicy, AppName, CommitId, EffectiveSetting, Finding, HostIdentity};

/// A repository to read commits from.
pub(in crate::cli) enum Place {
    Local(Box<LocalRepository>),
    Server(Box<Settings>, tempfile::TempDir),
}

impl Place {
    pub(in crate::cli) fn open(text: &str, git: &GitArgs) -> Result<Self, CliError> {
        let is_local = !text.contains("://") && (Path::new(text).exists() || !text.contains(':'));
        if is_local {
            return Ok(Self::Local(Box::new(LocalRepository::open(Path::new(text)).map_err(Error::from)?)));
        }
        let mut settings = Settings::for_repository(text, "", Reference::Head).map_err(CliError::Findings)?;
        for repository in &mut settings.repositories {
            let file = git.git_password_file.clone().map(Secret::File);
            repository.ca_file.clone_from(&git.ca_file);
            let auth = &mut repository.auth;
            auth.username = git.git_username.clone().map(Secret::Plain);
            auth.password = file.or_else(|| git.git_password_env.clone().map(Secret::Environment));
            auth.ssh_key.clone_from(&git.ssh_key);
            auth.known_hosts.clone_from(&git.known_hosts);
        }
        Ok(Self::Server(Box::new(settings), tempfile::tempdir().map_err(Error::Temporary)?))
    }

    /// Name of the repository.
    pub(in crate::cli) fn name(&self) -> String {
        match self {
            Self::Local(local) => local.name(),
            Self::Server(settings, _) => {
                settings.repositories.first().map(|it| it.name.clone()).unwrap_or_default()
            }
        }
    }

    /// The folder to look for applications in, relative to the opened one.
    pub(in crate::cli) fn folder(&self, path: Option<&str>) -> String {
        let below = path.unwrap_or_default().trim_matches('/').trim_start_matches("./");
        let below = if below == "." { "" } else { below };
        let prefix = match self {
            Self::Local(local) => local.prefix(),
            Self::Server(..) => String::new(),
        };
        // Users write paths from the root of the repository or from the working directory.
        if prefix.is_empty() || below == prefix || below.starts_with(&format!("{prefix}/")) {
            return below.to_owned();
        }
        format!("{prefix}/{below}").trim_matches('/').to_owned()
    }

    pub(in crate::cli) async fn commit(
        &self,
        revision: &str,
        context: &Context<'_>,
    ) -> Result<Checkout, CliError> {
        let checkout = match self {
            Self::Local(local) => local.commit(revision).map_err(Error::from)?,
            Self::Server(settings, mirrors) => fetch(settings, mirrors.path(), revision, context).await?,
        };
        let files = decrypted(checkout.files, context)?;
        Ok(Checkout { files: Arc::new(files), ..checkout })
    }

    /// Whether it is a clone that was made without the content of all files.
    pub(in crate::cli) fn is_partial_clone(&self) -> bool {
        match self {
            Self::Local(local) => local.is_partial_clone(),
            Self::Server(..) => false,
        }
    }

    pub(in crate::cli) fn merge_base(&self, base: &str, head: &str) -> Result<String, Error> {
        match self {
            Self::Local(local) => Ok(local.merge_base(base, head)?),
            Self::Server(..) => Err(Error::Usage(
                "--merge-base needs a clone of the repository: give its folder instead of the URL".to_owned(),
            )),
        }
    }
}

/// Resolves a name as a branch, then as a tag.
async fn fetch(
    settings: &Settings,
    mirrors: &Path,
    revision: &str,
    context: &Context<'_>,
) -> Result<Checkout, Error> {
    let tries = match (revision, CommitId::parse(revision)) {
        ("HEAD", _) => vec![Reference::Head],
        (_, Ok(id)) => vec![Reference::Commit(id)],
        (name, Err(_)) => match name.strip_prefix("refs/tags/") {
            Some(tag) => vec![Reference::Tag(tag.to_owned())],
            None => vec![
                Reference::Branch(name.trim_start_matches("refs/heads/").to_owned()),
                Reference::Tag(name.to_owned()),
            ],
        },
    };
    let Some(repository) = settings.repositories.first() else {
        return Err(Error::Broken("there is no repository".to_owned()));
    };
    let mut failed = None;
    for (number, reference) in tries.into_iter().enumerate() {
        let safe: String =
            revision.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
        let mirror = mirrors.join(format!("{safe}-{number}"));
        let asked = driftless_config::Repository { reference, ..repository.clone() };
        let environment = context.environment.clone();
        let mut options = RepositoryOptions::new(&asked, mirror, environment, FetchPermits::default());
        options.download_pause = Duration::ZERO;
        let opened = tokio::task::spawn_blocking(move || Repository::open(options)).await;
        let repository = opened.map_err(|it| Error::Broken(it.to_string()))??;
        match repository.fetch(None).await {
            Ok(checkout) => return Ok(checkout),
            Err(error) if error.cause.retry() == driftless_git::Retry::AtPoll => {
                failed.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(failed.map_or_else(|| Error::Broken("no reference was given".to_owned()), Error::from))
}

/// A folder of a commit in which applications are found.
#[derive(Clone, Copy)]
pub(in crate::cli) struct RenderedFolder<'a> {
    pub(in crate::cli) files: &'a dyn Files,
    pub(in crate::cli) folder: &'a str,
    /// The name of the repository.
    pub(in crate::cli) name: &'a str,
    pub(in crate::cli) hosts: RenderedHosts<'a>,
    /// The engine, the files and the variables that the host gives to its applications.
    pub(in crate::cli) given: &'a HostArgs,
}

/// The hosts whose applications are rendered.
#[derive(Clone, Copy)]
pub(in crate::cli) enum RenderedHosts<'a> {
    /// This host. Without a name: none is known.
    One(&'a HostIdentity),
    /// Hosts that driftless.yaml does not list: those with an application that none of these has.
    Others(&'a [HostIdentity]),
}

/// One rendered commit: the stack of each application, and errors.
#[derive(Default)]
pub(in crate::cli) struct Rendering {
    pub(in crate::cli) applications: Vec<RenderedApp>,
    /// Errors that concern no single application.
    pub(in crate::cli) errors: Vec<Finding>,
    /// The folder of the applications, if it is not there. It may be new, or removed with the last application.
    pub(in crate::cli) missing_folder: Option<Finding>,
    /// The applications that driftless.yaml has for other hosts.
    pub(in crate::cli) elsewhere: Vec<AppName>,
    /// See [`Discovery::unread_files`].
    unread_files: Vec<Finding>,
    /// See [`Discovery::unsearched`].
    unsearched: Vec<String>,
}

/// One rendered application. Two commits share equal ones.
#[derive(Clone)]
pub(in crate::cli) struct RenderedApp {
    pub(in crate::cli) spec: AppSpec,
    pub(in crate::cli) rendered: Arc<Rendered>,
    /// Errors from the comparison with the other applications of the commit, which its own files do not decide.
    among_others: Vec<Finding>,
    /// Its policy, with the places in driftless.yaml.
    pub(in crate::cli) settings: Vec<EffectiveSetting>,
    /// The files that rendering read.
    reads: Arc<Reads>,
}

/// Renders the applications. An empty folder is no error, because all applications may be new. An application whose files are
/// the same as in the commit rendered `before` is reused. All are rendered, because they are compared with each other: one that
/// had a name or port in `before` keeps it.
///
/// With a policy, what it does not allow is an error.
pub(in crate::cli) fn render(
    source: &RenderedFolder<'_>,
    policy: Option<&AdmissionPolicy>,
    before: &Rendering,
) -> Rendering {
    let RenderedFolder { files, folder, name, hosts, given } = *source;
    let OfHost { discovery, settings, .. } = match hosts {
        RenderedHosts::One(host) => discover_for_host(files, folder, (name, host), &[]),
        RenderedHosts::Others(hosts) => discover_unlisted(files, folder, name, hosts),
    };
    let Discovery { apps, findings, empty_folder, unread_files, unsearched, .. } = discovery;
    let is_empty = apps.is_empty() && empty_folder.is_some();
    let is_missing =
        is_empty && !folder.is_empty() && !matches!(files.entry(folder), Ok(Some(Entry::Folder)));
    let (missing_folder, errors) = match findings.into_iter().filter(Finding::is_error) {
        mut findings if is_missing => (findings.next(), Vec::new()),
        _ if is_empty => (None, Vec::new()),
        findings => (None, findings.collect()),
    };
    let before: BTreeMap<&AppName, &RenderedApp> =
        before.applications.iter().map(|it| (&it.spec.name, it)).collect();
    let one = |mut spec: AppSpec| {
        given.apply(&mut spec);
        let known = before.get(&spec.name).filter(|it| it.spec == spec && it.reads.hold_in(files));
        match (known, policy) {
            (Some(known), None) => (*known).clone(),
            (Some(_) | None, _) => RenderedApp::render(files, spec, policy),
        }
    };
    let mut applications = manifest::on_all_cores(apps, one);
    let mut found = BTreeMap::new();
    if let Some(policy) = policy {
        let stacks: Vec<_> =
            applications.iter().filter_map(|it| Some((it.rendered.stack.as_ref()?, policy))).collect();
        found = manifest::admission::foreign_objects(files, &stacks);
    }
    if let Some(settings) = &settings {
        let stacks = applications.iter().map(|app| (&app.spec.name, app.rendered.stack.as_ref()));
        // An application with such an error in the commit before does not have what it claims there.
        let holders = before.values().filter(|app| !app.among_others.iter().any(Finding::is_error));
        let holders = holders.filter_map(|app| Some((&app.spec.name, app.rendered.stack.as_ref()?)));
        let holders: BTreeMap<_, _> = holders.collect();
        for (app, own) in conflicts(settings, stacks, &holders) {
            found.entry(app).or_default().extend(own);
        }
    }
    for app in &mut applications {
        let name = &app.spec.name;
        app.settings = settings.as_ref().map(|settings| settings.policy_settings(name)).unwrap_or_default();
        app.among_others = found.remove(name).unwrap_or_default();
    }
    let elsewhere = settings.iter().flat_map(|settings| &settings.elsewhere);
    let elsewhere = elsewhere.filter_map(ApplicationSettings::app_name).collect();
    Rendering { applications, errors, missing_folder, elsewhere, unread_files, unsearched }
}

impl Rendering {
    /// Whether it has an application of this name.
    pub(in crate::cli) fn has(&self, name: &AppName) -> bool {
        self.applications.iter().any(|app| app.spec.name == *name)
    }

    /// Whether it has an application of the same name and folder.
    pub(in crate::cli) fn has_at(&self, spec: &AppSpec) -> bool {
        self.applications.iter().any(|app| (&app.spec.name, &app.spec.path) == (&spec.name, &spec.path))
    }

    /// Why an application that it does not have may not have left Git, so that the agent does not remove it.
    pub(in crate::cli) fn why_unknown(&self, spec: &AppSpec) -> Option<String> {
        let unread = self.unread_files.iter().find(|it| manifest::may_hide(&it.location.file, &spec.path));
        if let Some(unread) = unread {
            return Some(unread.to_string());
        }
        let above = self.application_above(spec).filter(|above| above.rendered.stack.is_none())?;
        Some(format!("its folder is now part of the application `{}`, which has errors", above.spec.name))
    }

    /// Why the agent removes an application that it does not have only when a user confirms that.
    pub(in crate::cli) fn why_kept(&self, spec: &AppSpec) -> Option<String> {
        let file = self.unsearched_path(spec)?;
        let why = match self.application_above(spec) {
            Some(above) => format!("its folder is now part of the application `{}`", above.spec.name),
            None => format!("`{file}` has only kinds of another tool, so its folder is no application"),
        };
        Some(format!("{why}; its removal waits for `driftless remove {}`", spec.name))
    }

    /// The application above the folder of another one, because of which that one was not looked for.
    fn application_above(&self, spec: &AppSpec) -> Option<&RenderedApp> {
        self.unsearched_path(spec)?;
        self.applications.iter().find(|above| above.spec.has_below(&spec.path))
    }

    /// A path in the folder of an application because of which it may be missing by mistake.
    fn unsearched_path(&self, spec: &AppSpec) -> Option<&String> {
        self.unsearched.iter().find(|path| manifest::may_hide(path, &spec.path))
    }
}

impl RenderedApp {
    fn render(files: &dyn Files, spec: AppSpec, policy: Option<&AdmissionPolicy>) -> Self {
        let recorder = Recorder::new(files);
        let mut rendered = manifest::render(&recorder, &spec);
        if let Some(policy) = policy {
            manifest::admission::enforce(&recorder, policy, &mut rendered);
        }
        let rendered = Arc::new(rendered);
        let reads = Arc::new(recorder.finish());
        Self { spec, rendered, among_others: Vec::new(), settings: Vec::new(), reads }
    }

    /// All findings: about its manifests, and about it among the other applications.
    pub(in crate::cli) fn findings(&self) -> Vec<Finding> {
        self.rendered.findings.iter().chain(&self.among_others).cloned().collect()
    }
}

/// Errors of a manifest, one per line; `None` if there are none.
pub(in crate::cli) fn mistakes<'f>(findings: impl IntoIterator<Item = &'f Finding>) -> Option<String> {
    let errors = findings.into_iter().filter(|finding| finding.is_error());
    let all: Vec<String> = errors.map(ToString::to_string).collect();
    Some(all.join("\n")).filter(|text| !text.is_empty())
}

/// The errors of a commit, without those that its base has too. Lines may have moved between the two.
pub(in crate::cli) fn new_errors<'f>(head: &'f [Finding], base: &[Finding]) -> Vec<&'f Finding> {
    let key = |finding: &Finding| {
        (finding.location.file.clone(), finding.path.clone(), without_lines(&finding.message))
    };
    let known: BTreeSet<_> = base.iter().filter(|finding| finding.is_error()).map(key).collect();
    head.iter().filter(|finding| finding.is_error() && !known.contains(&key(finding))).collect()
}

/// A message without the lines and columns of places in it, such as `(sites/shop/compose.yaml:3:5)`.
fn without_lines(message: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let without = |part: &str| {
        let (rest, column) = part.rsplit_once(':')?;
        let (rest, line) = rest.rsplit_once(':')?;
        (is_number(line) && is_number(column)).then(|| rest.to_owned())
    };
    let parts = message.split(')').map(|part| without(part).unwrap_or_else(|| part.to_owned()));
    parts.collect::<Vec<_>>().join(")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_place_in_a_message_is_no_new_error() {
        let taken = |line: u32| {
            let message =
                format!("the host port 80/tcp is taken by application `a` (a/compose.yaml:{line}:5)");
            Finding::error(driftless_model::Location::new("b/compose.yaml", line, 5), "ports[0]", message)
        };
        assert_eq!(new_errors(&[taken(9)], &[taken(3)]), Vec::<&Finding>::new());
        let other = Finding { message: taken(3).message.replace("80/tcp", "81/tcp"), ..taken(3) };
        assert_eq!(new_errors(std::slice::from_ref(&other), &[taken(3)]), [&other]);
    }
}
