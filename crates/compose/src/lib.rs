//! A loader of Compose files that agrees with the reference implementation, and their rendering to a stack.
//!
//! [`load()`] does what `docker compose config` does: it reads the files of a project with `include`, `extends`,
//! overrides, profiles, `.env` and variables, checks them against the Compose specification, and returns the canonical
//! form as JSON. [`render`] goes on and turns the project into a [`Stack`] of workloads,
//! networks and volumes.
//!
//! Files come through [`Files`], so nothing outside of the given tree is ever read: no environment, no home folder, no
//! network. Every mistake is a [`Finding`] with file, line, column, path and help, and a key that is not supported is
//! an error, never silently ignored.
//!
//! ```
//! use driftless_compose::render;
//! use driftless_files::{AppSpec, MemoryFiles};
//!
//! let files = MemoryFiles::new([
//!     ("shop/compose.yaml", "services:\n  web:\n    image: nginx:${TAG}\n    ports: ['8080:80']\n    prots: []\n"),
//!     ("shop/.env", "TAG=1.29\n"),
//! ]);
//! let app = AppSpec::compose("shop", &["shop/compose.yaml"]);
//!
//! let rendered = render(&files, &app);
//! assert_eq!(
//!     rendered.findings[0].to_string(),
//!     "shop/compose.yaml:5:5: error: services.web.prots: unknown key `prots` (did you mean `ports`?)",
//! );
//!
//! let files = MemoryFiles::new([
//!     ("shop/compose.yaml", "services:\n  web:\n    image: nginx:${TAG}\n    ports: ['8080:80']\n"),
//!     ("shop/.env", "TAG=1.29\n"),
//! ]);
//! let stack = render(&files, &app).stack.unwrap();
//! let web = stack.workloads.values().next().unwrap();
//! assert_eq!(web.container.image, "nginx:1.29");
//! ```
//!
//! # Structure
//!
//! `load` → `spec` → `read` → `lower`: `load` merges the files of a project into one tree; `spec` holds the table of all
//! keys, the checks and the canonical form; `read` reads typed values from the tree; `lower` makes the stack. `load` and
//! `read` use `spec` only; `lower` uses all.

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;

use std::collections::BTreeMap;

use driftless_files::{AppSpec, Files, Rendered};
use driftless_model::{EngineKind, Finding, Mask, PortPlace, Protocol, Stack, Subject, WorkloadName};
use driftless_yaml::{Node, Report};

mod load;
mod lower;
mod read;
mod spec;
mod swarm;

use load::errors::errors_at;
use spec::value::Value;

/// A loaded project. Whether all of it can run here is not checked.
#[derive(Clone, Debug, Default)]
pub struct Project {
    /// The canonical form. `None` if any finding is an error.
    pub model: Option<serde_json::Value>,
    /// Errors and warnings, sorted by location.
    pub findings: Vec<Finding>,
}

/// Loads a Compose application. `folder` is the absolute path of its folder, for the paths in the canonical form;
/// `mask` hides values that may be secret.
pub fn load(files: &dyn Files, spec: &AppSpec, folder: &str, mask: Option<&Mask>) -> Project {
    let mut loaded = load::load(files, spec);
    let mut findings = std::mem::take(&mut loaded.findings);
    if let Some(root) = loaded.root.as_ref().filter(|root| !has_services(root)) {
        let message = "the file has no services, so the agent refuses it";
        let finding = root.warning("", message);
        findings
            .push(finding.help("add a service; a network or volume is made for the services that use it"));
    }
    loaded.name_missing_values(&mut findings);
    loaded.present(&mut findings);
    let has_error = findings.iter().any(Finding::is_error);
    let folder = loaded.absolute_folder(folder, spec);
    let model = if has_error { None } else { loaded.canonical(&folder, mask) };
    Project { model, findings }
}

/// Whether the variables of an application name its Compose files (`COMPOSE_FILE`).
pub fn names_files(files: &dyn Files, spec: &AppSpec) -> bool {
    load::names_files(files, spec)
}

/// A Markdown table of every key of the specification and what becomes of it.
pub fn keys() -> String {
    spec::page::page()
}

/// The places of all single host ports. A range has none: which of its ports is used is decided by the engine.
fn port_places(root: &Node, stack: &Stack) -> BTreeMap<(WorkloadName, u16, Protocol), PortPlace> {
    let mut places = BTreeMap::new();
    // A map of a file is searched from its beginning.
    let services: BTreeMap<&str, &Node> = root
        .get("services")
        .into_iter()
        .flat_map(Node::entries)
        .map(|it| (it.key.as_str(), &it.value))
        .collect();
    for Subject { name, workload } in stack.subjects() {
        let Some(service) = services.get(name.as_str()) else { continue };
        let items = published_items(service);
        for port in &workload.container.ports {
            let Some(host) = port.host.filter(|range| range.len() == 1) else { continue };
            if let Some((index, item)) = items.get(&(host.first, port.protocol.as_str())) {
                let path = format!("services.{name}.ports[{index}]");
                let place = PortPlace { location: item.place.location(), path };
                places.insert((name.clone(), host.first, port.protocol), place);
            }
        }
    }
    places
}

/// The items of `ports` with a single host port, by port and protocol. The last one counts, since the second of two equal
/// ports is one too many.
fn published_items(service: &Node) -> BTreeMap<(u16, &str), (usize, &Node)> {
    let items = service.get("ports").map(Node::items).unwrap_or_default().iter().enumerate();
    let key = |item| {
        let text = |key| Node::get(item, key).and_then(Node::as_scalar);
        Some((text("published")?.parse().ok()?, text("protocol").unwrap_or("tcp")))
    };
    items.filter_map(|(index, item)| Some((key(item)?, (index, item)))).collect()
}

/// Whether a project has a service.
fn has_services(root: &Node) -> bool {
    root.get("services").is_some_and(|services| !services.entries().is_empty())
}

/// Renders a Compose application to a stack. The stack is `None` if any finding is an error.
pub fn render(files: &dyn Files, spec: &AppSpec) -> Rendered {
    let mut loaded = load::load(files, spec);
    let mut findings = std::mem::take(&mut loaded.findings);
    let Some(root) = &loaded.root else {
        loaded.name_missing_values(&mut findings);
        loaded.present(&mut findings);
        return Rendered { findings, ..Rendered::default() };
    };
    let report = Report::default();
    let sections = read::project(&Value::new(root, "", &report));
    let mut more = report.into_findings();
    if sections.services.is_empty() && !findings.iter().any(Finding::is_error) {
        let finding = root.finding("", "the file has no services");
        more.push(finding.help("add a service; a network or volume is made for the services that use it"));
    }
    let (mut stack, contents) = lower::lower(files, spec, &loaded, &sections, &mut more);
    stack.port_places = port_places(root, &stack);
    // With those of encrypted label files, so that no finding has them.
    loaded.secret_values.extend(stack.secret_values.iter().cloned());
    if spec.engine == EngineKind::Swarm {
        swarm::drop_host_findings(&mut more);
        swarm::drop_host_findings(&mut findings);
        swarm::complete(root, &sections, &mut stack, &contents, &mut more);
    }
    more.extend(driftless_model::check(&stack));
    // One finding for each location: the loader may have reported the same mistake in other words.
    let mut reported = errors_at(&findings);
    reported.extend(loaded.incomplete_places.iter().cloned());
    more.retain(|finding| !reported.contains(&finding.location));
    findings.extend(more);
    loaded.report_missing_values(&mut findings);
    loaded.present(&mut findings);
    if findings.iter().any(Finding::is_error) {
        return Rendered { findings, ..Rendered::default() };
    }
    Rendered { stack: Some(stack), findings, contents, ..Rendered::default() }
}
