//! Renders an application at an older commit than the newest, for what is not stored: the contents of its mounted secrets.

use std::sync::{Arc, Mutex, PoisonError};

use driftless_config as config;
use driftless_files::{AppSpec, Files};
use driftless_manifest as manifest;
use driftless_model::{AppName, Contents, EngineKind};

use crate::{
    host_values::{ReadValues, Sharing},
    render::discover_at,
};

/// Reads the applications of older commits of one repository: with the settings of that commit, and the values that lie on the
/// host now.
#[derive(Clone, Debug)]
pub(crate) struct OlderCommits {
    /// The settings of the repository in the configuration of the host.
    host: Arc<config::Repository>,
    /// As of their last reading.
    values: Arc<Mutex<Arc<ReadValues>>>,
}

impl OlderCommits {
    pub(crate) fn new(host: config::Repository) -> Self {
        Self { host: Arc::new(host), values: Arc::default() }
    }

    /// Notes the values that lie on the host.
    pub(crate) fn note_values(&self, values: Arc<ReadValues>) {
        *self.values.lock().unwrap_or_else(PoisonError::into_inner) = values;
    }

    /// An application as a commit has it. `newest` is the same application at the newest commit: it stands for one that this commit
    /// does not have, or whose settings there cannot be read. Blocks on the disk.
    pub(crate) fn app_at(&self, files: &dyn Files, newest: &AppSpec) -> AppSpec {
        self.find_at(files, &newest.name).unwrap_or_else(|| newest.clone())
    }

    /// As [`Self::app_at`], for the engine that runs the application now: a commit may have another one, whose stacks have other objects.
    pub(crate) fn app_on(&self, engine: EngineKind, files: &dyn Files, newest: &AppSpec) -> AppSpec {
        AppSpec { engine, ..self.app_at(files, newest) }
    }

    /// The contents that an application mounts at a commit. A source of `valuesFrom` that cannot be read is no obstacle: contents are
    /// used by their digests only, so those of an incomplete rendering are right or not used. Blocks on the disk.
    pub(crate) fn contents_at(&self, files: &dyn Files, newest: &AppSpec) -> Contents {
        let mut spec = self.app_at(files, newest);
        spec.findings.retain(|finding| !finding.is_error());
        manifest::render(files, &spec).contents
    }

    fn find_at(&self, files: &dyn Files, name: &AppName) -> Option<AppSpec> {
        let (settings, discovery) = discover_at(&self.host, files).ok()?;
        let sharing = Sharing::of(&discovery.apps);
        let mut spec = discovery.apps.into_iter().find(|spec| spec.name == *name)?;
        let values = Arc::clone(&self.values.lock().unwrap_or_else(PoisonError::into_inner));
        values.give(&settings, sharing, &mut spec);
        Some(spec)
    }
}

#[cfg(test)]
mod tests {
    use driftless_config::Settings;
    use driftless_files::MemoryFiles;
    use driftless_model::{Content, Finding, Location};

    use super::*;

    #[test]
    fn contents_are_those_of_the_settings_of_the_commit() {
        let text = "repositories: [{url: 'https://git.example/infra.git'}]\n";
        let host = Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0);
        let older = OlderCommits::new(host);
        let settings = "applications: [{path: shop, files: [app.yaml], variables: {WORD: first}}]\n";
        let compose = "services: {web: {image: 'web:1', secrets: [word]}}\n\
                       secrets: {word: {environment: WORD}}\n";
        let files = MemoryFiles::new([("driftless.yaml", settings), ("shop/app.yaml", compose)]);
        // The newest commit has another file, which the older one does not have, and a source that cannot be read.
        let mut newest = AppSpec::compose("shop", &["shop/compose.yaml"]);
        newest.findings.push(Finding::error(Location::default(), "valuesFrom", "no"));
        let contents = older.contents_at(&files, &newest);
        let is_word =
            |content: &Content| matches!(content, Content::File { bytes, .. } if bytes[..] == *b"first");
        assert!(contents.values().any(is_word), "{} contents", contents.len());
    }

    #[test]
    fn older_commit_is_compared_for_the_present_engine() {
        let text = "repositories: [{url: 'https://git.example/infra.git', allow: [default, engine]}]\n";
        let host = Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0);
        let older = OlderCommits::new(host);
        let settings = "engine: swarm\napplications: [{path: shop}]\n";
        let files = MemoryFiles::new([
            ("driftless.yaml", settings),
            ("shop/compose.yaml", "services: {web: {image: 'web:1'}}\n"),
        ]);
        let newest = AppSpec::compose("shop", &["shop/compose.yaml"]);
        assert_eq!(older.app_at(&files, &newest).engine, EngineKind::Swarm);
        let compared = older.app_on(newest.engine, &files, &newest);
        assert_eq!(compared.engine, EngineKind::Docker);
        assert_eq!(manifest::render(&files, &compared).stack.map(|stack| stack.swarm.len()), Some(0));
    }
}
