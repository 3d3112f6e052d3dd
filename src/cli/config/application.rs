//! `driftless config DIR`: an application as it is read. Of a Compose application the canonical form, with everything put
//! in, merged and filled out; of Kubernetes the documents, as its kustomization makes them if it has one. It needs
//! neither agent nor Docker.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde_json::{Value, json};

use crate::cli::{
    context::{Context, ExitStatus},
    error::Error as CliError,
    findings::render_findings,
    folder::{Error, repository_name},
    options::{SecretParser, YamlOrJson, parse_variable},
    output::{self, print},
    sops_keys::decrypted,
    yaml,
};
use driftless_agent as controller;
use driftless_compose as compose;
use driftless_files::{AppSpec, Files};
use driftless_git::Directory;
use driftless_kubernetes as kubernetes;
use driftless_manifest as manifest;
use driftless_manifest::Configured;
use driftless_model::{AppName, Finding, Format, Mask};

/// The application to print.
#[derive(Debug, Args)]
pub(in crate::cli) struct ApplicationArgs {
    /// Folder, taken as the root of a repository.
    #[arg(required = true)]
    pub(in crate::cli) dir: Option<PathBuf>,
    /// Folder of the application inside it [default: its root]
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(in crate::cli) path: String,
    /// Compose file, relative to the application's folder; later files are merged onto earlier ones [default: found by name]
    #[arg(short, long, value_name = "FILE")]
    pub(in crate::cli) file: Vec<String>,
    /// File with variables, relative to the application's folder [default: .env]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) env_file: Vec<String>,
    /// Variable; overrides those from files.
    #[arg(long, value_name = "NAME=VALUE", value_parser = SecretParser(parse_variable))]
    pub(in crate::cli) variable: Vec<(String, String)>,
    /// Active profile.
    #[arg(long, value_name = "PROFILE")]
    pub(in crate::cli) profile: Vec<String>,
    /// Print values that may be secret.
    #[arg(long)]
    pub(in crate::cli) show_secrets: bool,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = YamlOrJson::Yaml)]
    pub(in crate::cli) output: YamlOrJson,
}

impl ApplicationArgs {
    /// Required without a subcommand, and with one it is not asked for.
    fn folder(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new("."))
    }
}

pub(in crate::cli) fn config(args: &ApplicationArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let dir = args.folder();
    let files = Directory::open(dir).map_err(|source| Error::Open { path: dir.to_owned(), source })?;
    let directory = Arc::new(files);
    let files = decrypted(Arc::<Directory>::clone(&directory), context)?;
    let root = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let spec = application(&files, &root, args)?;
    if spec.findings.iter().any(Finding::is_error) {
        return Err(CliError::Findings(spec.findings));
    }
    let folder = root.join(&spec.path);
    let mask = (!args.show_secrets).then(|| Mask::new(controller::random_key()));
    let (text, findings) = match spec.format {
        Format::Compose => {
            let project = compose::load(&files, &spec, &folder.to_string_lossy(), mask.as_ref());
            (project.model.map(|it| model(it, args.output)), project.findings)
        }
        Format::Kubernetes => {
            let found = kubernetes::documents(&files, &spec, mask.as_ref());
            (found.documents.map(|it| documents(&it, args.output)), found.findings)
        }
    };
    let mut shown = directory.ignored_findings();
    shown.extend(findings.iter().cloned());
    if !shown.is_empty() {
        context.screen.say(render_findings(&shown, context.screen.colours()).trim_end());
    }
    let Some(text) = text else { return Ok(ExitStatus::Negative) };
    print(&text)?;
    Ok(if findings.iter().any(Finding::is_error) { ExitStatus::Negative } else { ExitStatus::Success })
}

fn model(mut model: Value, output: YamlOrJson) -> String {
    escape(&mut model);
    match output {
        YamlOrJson::Yaml => yaml::render(&model),
        YamlOrJson::Json => output::json(&model),
    }
}

/// The documents one after the other, or as one list.
fn documents(documents: &[Value], output: YamlOrJson) -> String {
    match output {
        YamlOrJson::Yaml => documents.iter().map(yaml::render).collect::<Vec<_>>().join("---\n"),
        YamlOrJson::Json => output::json(&json!({ "apiVersion": "v1", "kind": "List", "items": documents })),
    }
}

/// The application that the arguments select.
fn application(files: &dyn Files, root: &Path, args: &ApplicationArgs) -> Result<AppSpec, CliError> {
    let name = repository_name(root);
    let path = args.path.trim_matches('/');
    let configured = Configured {
        path: path.to_owned(),
        profiles: args.profile.clone(),
        files: args.file.clone(),
        env_files: args.env_file.clone(),
        variables: args.variable.iter().cloned().collect(),
        ..Configured::default()
    };
    // Without options the application is found as the agent finds it.
    let is_found = args.file.is_empty()
        && args.profile.is_empty()
        && args.env_file.is_empty()
        && args.variable.is_empty();
    let configured = if is_found { &[] } else { std::slice::from_ref(&configured) };
    let discovery = manifest::discover(files, path, &name, configured);
    // A Compose file takes precedence over manifests in the same folder.
    let (mut found, others): (Vec<AppSpec>, Vec<AppSpec>) =
        discovery.apps.into_iter().partition(|it| it.format == Format::Compose);
    if found.is_empty() && is_found {
        found = others;
    }
    if found.len() > 1 {
        let names: Vec<&AppName> = found.iter().map(|it| &it.name).collect();
        return Err(Error::SeveralApplications(names.iter().map(ToString::to_string).collect()).into());
    }
    match found.pop() {
        Some(spec) => Ok(spec),
        None if discovery.findings.is_empty() => Err(Error::NoApplication(args.folder().join(path)).into()),
        None => Err(CliError::Findings(discovery.findings)),
    }
}

/// Doubles dollars: a reader of the output would take one for the start of a variable.
fn escape(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('$') => *text = text.replace('$', "$$"),
        Value::Array(items) => items.iter_mut().for_each(escape),
        Value::Object(entries) => entries.values_mut().for_each(escape),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
