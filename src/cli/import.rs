//! `driftless import`: writes the containers that run on an engine as applications for Git.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;

use super::{
    context::{Context, ExitStatus},
    error::{CommandError, Error as CliError},
    findings::{counted, render_findings},
    folder::docker_host,
    options::TextOrJson,
    output::{json, print},
    screen::plain,
    yaml,
};
use driftless_agent as controller;
use driftless_config::{DockerHost, RUNTIME_DIR, STATE_DIR};
use driftless_docker::{HostSnapshot, SnapshotContainer, host_snapshot};
use driftless_files::AppSpec;
use driftless_git::Directory;
use driftless_manifest as manifest;
use driftless_manifest::import::{self, FoundContainer, FoundHost, FoundObject, FoundService, ImportedApp};
use driftless_model::{AppName, Condition, Dependency, Finding, State, WorkloadName, label};

/// Write what runs on a Docker host as Compose files for Git.
///
/// Makes a folder for each Compose project (started by `docker compose`, Portainer or another tool) and for each other
/// container that runs. The files contain what the containers have beyond the defaults of their images, so that the agent can
/// adopt the containers without a restart: `driftless adopt --all --dry-run` shows that after the push. Values that may
/// be secret are written to a `.env` next to the Compose file, which Git ignores; the Compose file refers to them.
///
/// Changes nothing on the engine, and overwrites no file. Warnings name what the files do not say. Containers that do not run,
/// and those that an agent manages, are left out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless import ~/infra/sites
  driftless import ~/infra/sites shop pihole  # a project and a container
  driftless import ~/infra/sites -o json
  driftless import ~/infra/nas \\
    --docker-host unix:///tmp/nas.sock")]
pub(super) struct ImportArgs {
    /// Folder to write to. It is created if it is missing.
    pub(super) dir: PathBuf,
    /// Compose projects, and containers that belong to none [default: all that run]
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// Address of the Docker Engine [default: that of `DOCKER_HOST`, or the local socket]
    #[arg(long, value_name = "URL")]
    pub(super) docker_host: Option<String>,
    /// Format of the report.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
}

/// The result as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Imported {
    applications: Vec<Written>,
    findings: Vec<Finding>,
    left_out: Vec<LeftOut>,
    /// The number of containers that an agent manages.
    managed: usize,
}

/// An application that was written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    name: AppName,
    folder: PathBuf,
    containers: BTreeSet<String>,
    /// The names of the variables in `.env`.
    secrets: Vec<String>,
    /// The changes of an adoption, in words.
    adoption: Vec<String>,
    /// Why the file was not compared with what runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A container that was not imported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeftOut {
    container: String,
    reason: &'static str,
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("could not read what runs on the engine")]
    Engine(#[from] driftless_docker::Error),
    #[error("no Compose project and no container that runs has the name {0}")]
    NoSuchName(String, Vec<String>),
    #[error("{} exists already, so nothing was written", .0.display())]
    Exists(PathBuf),
    #[error("could not write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::NoSuchName(_, names) if names.is_empty() => {
                Some("nothing runs on this engine that no agent manages".to_owned())
            }
            Self::NoSuchName(_, names) => Some(format!("there are {}", names.join(", "))),
            Self::Exists(_) => {
                Some("name the projects and containers to import, or another folder".to_owned())
            }
            Self::Engine(_) | Self::Write { .. } => None,
        }
    }
}

pub(super) async fn import(args: &ImportArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let host = docker_host(args.docker_host.as_deref(), context);
    let snapshot = host_snapshot(&host).await.map_err(Error::from)?;
    let managed = snapshot.managed;
    let (found, left_out) = found_host(snapshot);
    let found = selected(found, &args.names)?;
    let apps = import::import(&found);
    write(&args.dir, &apps)?;
    let mut imported = Imported {
        applications: Vec::new(),
        findings: apps.iter().flat_map(|app| app.findings.clone()).collect(),
        left_out: Vec::new(),
        managed: if args.names.is_empty() { managed } else { 0 },
    };
    for app in &apps {
        imported.applications.push(written(app, &args.dir, &host).await);
    }
    if args.names.is_empty() {
        let reason = |(container, reason)| LeftOut { container, reason };
        imported.left_out = left_out.into_iter().map(reason).collect();
    }
    match args.output {
        TextOrJson::Json => print(&json(&imported))?,
        TextOrJson::Text => {
            let screen = context.screen;
            if !imported.findings.is_empty() {
                screen.say(render_findings(&imported.findings, screen.colours()).trim_end());
            }
            print(&text(&imported, &args.dir))?;
        }
    }
    Ok(ExitStatus::Success)
}

/// The report for people.
fn text(imported: &Imported, dir: &Path) -> String {
    let mut text: String = imported.applications.iter().map(describe).collect();
    for LeftOut { container, reason } in &imported.left_out {
        text.push_str(&plain(&format!("left out: {container}, {reason}\n")));
    }
    if imported.managed > 0 {
        let count = counted(imported.managed, "container");
        let _ = writeln!(text, "left out: {count}, which an agent manages");
    }
    text.push_str(&next_steps(&imported.applications, dir));
    text
}

/// The containers that can be imported, and the names of others with the reason.
fn found_host(snapshot: HostSnapshot) -> (FoundHost, Vec<(String, &'static str)>) {
    let HostSnapshot { containers, managed: _, networks, volumes } = snapshot;
    let mut host = FoundHost::default();
    let mut left_out = Vec::new();
    for container in containers {
        let name = container.instance.name.clone();
        match obstacle(&container) {
            Some(why) => left_out.push((name, why)),
            None => host.containers.push(found_container(container)),
        }
    }
    let object = |(name, (project, object))| (name, FoundObject { project, object });
    host.networks = networks.into_iter().map(object).collect();
    let object = |(name, (project, object))| (name, FoundObject { project, object });
    host.volumes = volumes.into_iter().map(object).collect();
    (host, left_out)
}

/// Why a container is not imported.
fn obstacle(container: &SnapshotContainer) -> Option<&'static str> {
    let has = |name: &str| container.labels.contains_key(name);
    let is_one_off =
        container.labels.get(label::compose::ONEOFF).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if has("com.docker.swarm.service.id") {
        Some("which Docker Swarm manages")
    } else if has("io.kubernetes.pod.name") {
        Some("which Kubernetes manages")
    } else if is_one_off {
        Some("which `docker compose run` started")
    } else {
        match container.instance.state {
            State::Running { .. } | State::Paused | State::Restarting { .. } => None,
            State::Created | State::Exited { .. } | State::Removing | State::Dead => {
                Some("which does not run")
            }
        }
    }
}

fn found_container(container: SnapshotContainer) -> FoundContainer {
    let SnapshotContainer { instance, defaults, mut labels, is_removed_at_exit, is_published } = container;
    let project = labels.remove(label::compose::PROJECT);
    let service = labels.remove(label::compose::SERVICE);
    let service = project.zip(service).map(|(project, name)| FoundService {
        project,
        name,
        number: instance.instance.slot,
        depends_on: dependencies(labels.get(label::compose::DEPENDS_ON).map_or("", String::as_str)),
        folder: labels.remove(label::compose::WORKING_DIR).unwrap_or_default(),
    });
    FoundContainer {
        id: instance.id,
        name: instance.name,
        service,
        config: instance.config.as_ref().clone(),
        defaults: defaults.as_ref().clone(),
        is_removed_at_exit,
        is_published,
    }
}

/// Parses Compose's label: `db:service_healthy:true,cache:service_started:false`. The last word is whether the service
/// restarts with the other one.
fn dependencies(text: &str) -> Vec<Dependency> {
    let parse = |text: &str| {
        let mut words = text.split(':');
        let workload = WorkloadName(words.next().filter(|name| !name.is_empty())?.to_owned());
        let condition = match words.next() {
            Some("service_healthy") => Condition::Healthy,
            Some("service_completed_successfully") => Condition::CompletedSuccessfully,
            Some(_) | None => Condition::Started,
        };
        let restart = words.next() == Some("true");
        Some(Dependency { workload, condition, required: true, restart })
    };
    text.split(',').filter_map(parse).collect()
}

/// The containers with these names, or in projects with these names.
fn selected(mut host: FoundHost, names: &[String]) -> Result<FoundHost, Error> {
    if names.is_empty() {
        return Ok(host);
    }
    let name_of = |container: &FoundContainer| {
        container.service.as_ref().map_or_else(|| container.name.clone(), |service| service.project.clone())
    };
    let known: BTreeSet<String> = host.containers.iter().map(name_of).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(*name)) {
        return Err(Error::NoSuchName(unknown.clone(), known.into_iter().collect()));
    }
    host.containers.retain(|container| names.contains(&name_of(container)));
    Ok(host)
}

/// Writes all applications, or none: they are written next to their places and then renamed.
fn write(dir: &Path, apps: &[ImportedApp]) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Write { path, source }
    };
    if let Some(existing) = apps.iter().map(|app| dir.join(app.name.as_str())).find(|path| path.exists()) {
        return Err(Error::Exists(existing));
    }
    fs::create_dir_all(dir).map_err(failed(dir))?;
    let staging = tempfile::Builder::new().prefix(".driftless-import-").tempdir_in(dir);
    let staging = staging.map_err(failed(dir))?;
    for app in apps {
        let folder = staging.path().join(app.name.as_str());
        fs::create_dir(&folder).map_err(failed(&folder))?;
        let text = format!("# Written by `driftless import`.\n{}", yaml::render(&app.document));
        file(&folder.join(import::FILE), &text, 0o644)?;
        if !app.variables.is_empty() {
            file(&folder.join(".env"), &import::env_file(&app.variables), 0o600)?;
            file(&folder.join(".gitignore"), "# Secrets.\n/.env\n", 0o644)?;
        }
    }
    for app in apps {
        let to = dir.join(app.name.as_str());
        fs::rename(staging.path().join(app.name.as_str()), &to).map_err(failed(&to))?;
    }
    Ok(())
}

fn file(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// An application that was written, with what the agent will do with each of its containers.
async fn written(app: &ImportedApp, dir: &Path, host: &DockerHost) -> Written {
    let (adoption, error) = match plan(app, dir, host).await {
        Ok(adoption) => (adoption, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    Written {
        name: app.name.clone(),
        folder: dir.join(app.name.as_str()),
        containers: app.containers.clone(),
        secrets: app.variables.keys().cloned().collect(),
        adoption,
        error,
    }
}

/// One application: its folder, and what the agent will do with each of its containers.
fn describe(app: &Written) -> String {
    let Written { name, folder, containers, secrets, adoption, error } = app;
    let count = counted(containers.len(), "container");
    let mut lines = vec![format!("{name}: {count}, written to {}", folder.display())];
    if !secrets.is_empty() {
        lines.push(format!("  secrets in {}: {}", folder.join(".env").display(), secrets.join(", ")));
    }
    match error {
        None => {
            let all = adoption.iter().flat_map(|object| object.lines());
            lines.extend(all.map(|line| format!("  {}", plain(line))));
        }
        Some(error) => lines.push(format!("  not compared with what runs: {}", plain(error))),
    }
    lines.join("\n") + "\n"
}

/// Compares the written file with what runs, as an adoption would.
async fn plan(app: &ImportedApp, dir: &Path, host: &DockerHost) -> Result<Vec<String>, String> {
    let files = Directory::with_ignored(dir).map_err(|error| error.to_string())?;
    let file = format!("{}/{}", app.name, import::FILE);
    let spec = AppSpec::compose(app.name.as_str(), &[&file]);
    let rendered = manifest::render(&files, &spec);
    let Some(stack) = rendered.stack else {
        let errors = rendered.findings.iter().filter(|finding| finding.is_error());
        return Err(errors.map(ToString::to_string).collect::<Vec<_>>().join("; "));
    };
    let (state_dir, runtime_dir) = (Path::new(STATE_DIR), Path::new(RUNTIME_DIR));
    let plan = Box::pin(controller::plan_stack(&spec, &stack, host, state_dir, runtime_dir)).await;
    plan.map(|plan| plan.dry_run.adoption).map_err(|error| driftless_model::error_chain(&error))
}

/// The next steps of a user.
fn next_steps(apps: &[Written], dir: &Path) -> String {
    if apps.is_empty() {
        return "nothing to import\n".to_owned();
    }
    let mut text = "next:\n".to_owned();
    if apps.iter().any(|app| !app.secrets.is_empty()) {
        text.push_str(
            "  give the agent the variables in .env: `valuesFrom` of the application, or encrypted in Git (docs/secrets.md)\n",
        );
    }
    let _ = writeln!(text, "  driftless validate {}       # after `git add`", dir.display());
    text.push_str("  git commit and git push, then on the host:\n");
    text.push_str("  driftless adopt --all --dry-run\n  driftless adopt --all\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_the_label_of_compose() {
        let all = dependencies("db:service_healthy:true,cache:service_started:false,job");
        let shown: Vec<_> = all.iter().map(|it| (it.workload.as_str(), it.condition, it.restart)).collect();
        let wanted = [
            ("db", Condition::Healthy, true),
            ("cache", Condition::Started, false),
            ("job", Condition::Started, false),
        ];
        assert_eq!(shown, wanted);
        assert!(dependencies("").is_empty());
    }
}
