//! `driftless config`: an application as it is read. Of a Compose application the canonical form, with everything put
//! in, merged and filled out; of Kubernetes the documents, as its kustomization makes them if it has one. It needs
//! neither agent nor Docker.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    Context, Error, Verdict,
    args::{ConfigArgs, YamlOrJson},
    findings::render_findings,
    screen::print,
    show, yaml,
};
use driftless_agent as controller;
use driftless_compose as compose;
use driftless_files::AppSpec;
use driftless_git::Directory;
use driftless_kubernetes as kubernetes;
use driftless_manifest as manifest;
use driftless_manifest::Configured;
use driftless_model::{AppName, Finding, Format, Mask};

pub(super) fn config(args: &ConfigArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let files =
        Directory::open(&args.dir).map_err(|source| Error::Open { path: args.dir.clone(), source })?;
    let root = args.dir.canonicalize().unwrap_or_else(|_| args.dir.clone());
    let spec = application(&files, &root, args)?;
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
    if !findings.is_empty() {
        context.screen.say(render_findings(&findings, context.screen.colours()).trim_end());
    }
    let Some(text) = text else { return Ok(Verdict::No) };
    print(&text)?;
    Ok(if findings.iter().any(Finding::is_error) { Verdict::No } else { Verdict::Yes })
}

fn model(mut model: Value, output: YamlOrJson) -> String {
    escape(&mut model);
    match output {
        YamlOrJson::Yaml => yaml::render(&model),
        YamlOrJson::Json => show::json(&model),
    }
}

/// One after the other, or as one list.
fn documents(documents: &[Value], output: YamlOrJson) -> String {
    match output {
        YamlOrJson::Yaml => documents.iter().map(yaml::render).collect::<Vec<_>>().join("---\n"),
        YamlOrJson::Json => show::json(&json!({ "apiVersion": "v1", "kind": "List", "items": documents })),
    }
}

/// The application that the arguments select.
fn application(files: &Directory, root: &Path, args: &ConfigArgs) -> Result<AppSpec, Error> {
    let name = root.file_name().map_or_else(|| "root".to_owned(), |it| it.to_string_lossy().into_owned());
    let path = args.path.trim_matches('/');
    let configured = Configured {
        path: path.to_owned(),
        profiles: args.profile.clone(),
        files: args.file.clone(),
        env_files: args.env_file.clone(),
        variables: args.variable.iter().cloned().collect(),
        ..Configured::default()
    };
    // Without a word about it, it is found as the agent finds it.
    let is_found = args.file.is_empty()
        && args.profile.is_empty()
        && args.env_file.is_empty()
        && args.variable.is_empty();
    let configured = if is_found { &[] } else { std::slice::from_ref(&configured) };
    let discovery = manifest::discover(files, path, &name, configured);
    // Compose files beside other things are what people ask for most.
    let (mut found, others): (Vec<AppSpec>, Vec<AppSpec>) =
        discovery.apps.into_iter().partition(|it| it.format == Format::Compose);
    if found.is_empty() && is_found {
        found = others;
    }
    if found.len() > 1 {
        let names: Vec<&AppName> = found.iter().map(|it| &it.name).collect();
        return Err(Error::SeveralApplications(names.iter().map(ToString::to_string).collect()));
    }
    match found.pop() {
        Some(spec) => Ok(spec),
        None if discovery.findings.is_empty() => Err(Error::NoComposeFile(args.dir.join(path))),
        None => Err(Error::Findings(discovery.findings)),
    }
}

/// What is printed may be read again, where a dollar would be the beginning of a variable.
fn escape(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('$') => *text = text.replace('$', "$$"),
        Value::Array(items) => items.iter_mut().for_each(escape),
        Value::Object(entries) => entries.values_mut().for_each(escape),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
