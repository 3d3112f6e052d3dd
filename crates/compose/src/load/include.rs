//! `include`: the files of other projects as a part of this one. Each has its own folder for relative paths and its own
//! `.env`. Where both define the same, the including file wins.

use driftless_files::files::Entry as FileEntry;
use driftless_yaml::{Entry, Kind, Node, Report};

use crate::{
    load::{
        loader::{Loader, Scope, cycle},
        merge,
        resets::Resets,
    },
    spec::{
        canonical, paths, strict,
        tree::{self, as_text},
        value::Value,
    },
};

/// The most includes within includes.
const DEEPEST: usize = 32;

/// The top-level keys that are included.
const KINDS: &[&str] = &["services", "volumes", "networks", "secrets", "configs", "models"];

/// One entry of `include`.
struct Included<'n> {
    paths: Vec<(&'n Node, String)>,
    /// From the repository's root.
    folder: String,
    env_files: Vec<String>,
}

impl Loader<'_> {
    /// Adds the included files to a document. `trail` is the chain of including files, the current one last.
    pub(crate) fn include(
        &mut self,
        document: &mut Node,
        scope: &Scope<'_>,
        trail: &[String],
        resets: &Resets,
    ) {
        let Some(Entry { value: list, .. }) = tree::remove(document, "include") else { return };
        if list.is_null() {
            return;
        }
        let report = Report::default();
        strict::check_include(&Value::new(&list, "include", &report));
        self.findings.extend(report.into_findings());
        for (index, item) in list.items().iter().enumerate() {
            let at = format!("include[{index}]");
            let Some(included) = self.entry(item, scope, &at) else { continue };
            let Some((node, main)) = included.paths.first() else { continue };
            if trail.contains(main) {
                let message = format!("the includes form a cycle: {}", cycle(trail, main));
                self.findings.push(node.finding(at, message));
                continue;
            }
            if trail.len() > DEEPEST {
                self.findings
                    .push(node.finding(at, format!("includes are nested deeper than {DEEPEST} levels")));
                continue;
            }
            let variables = scope.variables.below(
                self.files,
                &included.env_files,
                &self.progress.texts,
                &mut self.findings,
            );
            self.secret_values.extend(variables.secret_values().cloned());
            let inner = Scope { folder: &included.folder, variables: &variables };
            let manifests: Vec<String> = included.paths.iter().map(|(_, path)| path.clone()).collect();
            let mut imported = self.model(&manifests, &inner, trail);
            self.keep_variables(&imported, scope, &inner, &at);
            canonical::rebase(&mut imported, &paths::relative(scope.folder, &included.folder));
            for kind in KINDS {
                self.import(&mut imported, document, kind, resets);
            }
        }
    }

    /// Reads one entry. `None`: it is wrong, which was reported.
    fn entry<'n>(&mut self, item: &'n Node, scope: &Scope<'_>, at: &str) -> Option<Included<'n>> {
        let listed = if tree::is_mapping(item) { item.get("path")? } else { item };
        let mut found = Vec::new();
        for node in one_or_many(listed) {
            let text = as_text(node)?;
            found.push((node, self.file_at(node, text, scope.folder, at)?));
        }
        let (_, main) = found.first()?;
        let folder = match item.get("project_directory").and_then(|it| Some((it, as_text(it)?))) {
            Some((node, text)) if !text.is_empty() => match paths::join(scope.folder, text) {
                Some(folder) if !text.starts_with('/') => folder,
                Some(_) | None => {
                    self.findings.push(node.finding(at, format!("`{text}` is outside of the repository")));
                    return None;
                }
            },
            Some(_) | None => paths::parent(main).to_owned(),
        };
        let mut env_files = Vec::new();
        if let Some(listed) = item.get("env_file").filter(|it| !it.is_null()) {
            for node in one_or_many(listed) {
                match as_text(node)? {
                    "/dev/null" => {}
                    text => env_files.push(self.file_at(node, text, scope.folder, at)?),
                }
            }
        } else {
            let path = paths::join(&folder, ".env").unwrap_or_default();
            if matches!(self.files.entry(&path), Ok(Some(FileEntry::File { .. }))) {
                env_files.push(path);
            }
        }
        Some(Included { paths: found, folder, env_files })
    }

    /// The path of a file that another one names. `None`: there is no such file, which was reported.
    pub(crate) fn file_at(&mut self, node: &Node, text: &str, folder: &str, at: &str) -> Option<String> {
        if text.contains("://") || text.starts_with("git@") || text.starts_with("oci:") {
            let finding = node.finding(at, "remote files are not fetched");
            self.findings.push(finding.help("add the file to the repository and write its path"));
            return None;
        }
        let message = match paths::join(folder, text).filter(|_| !text.starts_with(['/', '~'])) {
            None => format!("`{text}` is outside of the repository"),
            Some(path) => match self.files.entry(&path) {
                Ok(Some(FileEntry::File { .. })) => {
                    self.progress.missing_values.forget_compose_file(&node.place.location());
                    return Some(path);
                }
                Ok(Some(FileEntry::Folder | FileEntry::Submodule)) => format!("`{path}` is not a file"),
                Ok(None) => format!("`{path}` does not exist in the repository"),
                Err(error) => error.to_string(),
            },
        };
        self.findings.push(node.finding(at, message));
        None
    }

    /// Keeps the variables that included configs and secrets need: they are read later, from the variables of the project.
    fn keep_variables(&mut self, imported: &Node, outer: &Scope<'_>, inner: &Scope<'_>, at: &str) {
        for kind in ["configs", "secrets"] {
            for Entry { value, .. } in tree::children(imported, kind) {
                let Some((node, name)) = value.get("environment").and_then(|it| Some((it, as_text(it)?)))
                else {
                    continue;
                };
                let Some(found) = inner.variables.get(name).filter(|_| outer.variables.get(name).is_none())
                else {
                    continue;
                };
                let is_other = self.included_variables.get(name).is_some_and(|known| known != found);
                self.included_variables.add_missing(inner.variables.only(name));
                if is_other {
                    let message =
                        format!("the variable `{name}` has different values in two included projects");
                    self.findings.push(node.finding(at, message));
                }
            }
        }
    }

    fn import(&mut self, imported: &mut Node, document: &mut Node, kind: &str, resets: &Resets) {
        let Some(Entry { key_place, value, .. }) = tree::remove(imported, kind) else { return };
        let Kind::Mapping(entries) = value.kind else { return };
        tree::set_missing(document, kind, |_| tree::mapping(&key_place, []));
        let Some(Kind::Mapping(own)) = tree::get_mut(document, kind).map(|it| &mut it.kind) else { return };
        for mut entry in entries {
            let Some(conflict) = own.iter_mut().find(|it| it.key == entry.key) else {
                own.push(entry);
                continue;
            };
            resets.apply_below(&mut entry.value, &[kind, &entry.key]);
            let over = std::mem::replace(&mut conflict.value, tree::null(&entry.key_place));
            conflict.value = merge::part(entry.value, over, &[kind, &entry.key], &mut self.findings);
        }
    }
}

fn one_or_many(node: &Node) -> &[Node] {
    match &node.kind {
        Kind::Sequence(items) => items,
        Kind::Scalar { .. } | Kind::Mapping(_) => std::slice::from_ref(node),
    }
}
