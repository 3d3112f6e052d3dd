//! What a build is made from: the files of the commit that is applied, which for a rollback is an older one, and the
//! secrets that its manifest names. It is read when a build begins, and never kept.

use std::{collections::BTreeMap, sync::Arc};

use driftless_docker::{BuildInputs, BuildSecrets, Docker};
use driftless_files::{AppSpec, Context, Files};
use driftless_git::Source;
use driftless_manifest as manifest;
use driftless_model::{Build, Content};
use driftless_plan::Target;

use crate::{app::App, error::chain, image_tasks::Fetching, revisions::Goal};

impl<D: Docker, S: Source> App<D, S> {
    /// How a build of this target comes by what it is made from.
    pub(crate) fn materials(
        &self,
        goal: &Goal,
        target: &Target<'_>,
    ) -> impl Fn(&Build) -> Fetching + Send + Sync + use<D, S> {
        let (source, spec) = (self.source.clone(), goal.wanted.spec.clone());
        // What is fallen back to may have to be built as well.
        let before = target.fallback.and(self.shared.store.last_succeeded(&self.name).ok().flatten());
        let commits: Vec<String> =
            [Some(goal.commit.id.clone()), before.map(|it| it.commit.id)].into_iter().flatten().collect();
        move |build: &Build| fetch(source.clone(), commits.clone(), spec.clone(), build)
    }
}

/// From the first of these commits whose files are those that the build is named after. There are two while the
/// workloads of the revision before are kept.
fn fetch<S: Source>(source: Option<Arc<S>>, commits: Vec<String>, spec: AppSpec, build: &Build) -> Fetching {
    let build = build.clone();
    Box::pin(async move {
        let source = source.ok_or("the repository is not in the configuration any more")?;
        let mut error = "there is no commit to build from".to_owned();
        for commit in commits {
            let files = match source.local(&commit).await {
                Ok(checkout) => checkout.files,
                Err(it) => {
                    error = chain(&it);
                    continue;
                }
            };
            let (spec, build) = (spec.clone(), build.clone());
            let read = tokio::task::spawn_blocking(move || read(files, &spec, &build)).await;
            match read.unwrap_or_else(|it| Err(it.to_string())) {
                Ok(materials) => return Ok(materials),
                Err(message) => error = message,
            }
        }
        Err(error)
    })
}

fn read(files: Arc<dyn Files>, spec: &AppSpec, build: &Build) -> Result<BuildInputs, String> {
    if Context::of(files.as_ref(), build)?.digest(files.as_ref())? != build.files {
        return Err("the files of the commit are not those that the image is named after".to_owned());
    }
    let mut secrets = BTreeMap::new();
    if !build.secrets.is_empty() {
        let contents = manifest::render(files.as_ref(), spec).contents;
        for id in build.secrets.values() {
            // What is not there is told by whoever builds, who knows its name.
            if let Some(Content::File { bytes, .. }) = contents.get(id) {
                secrets.insert(id.clone(), Arc::clone(bytes));
            }
        }
    }
    Ok(BuildInputs { files, secrets: BuildSecrets(secrets) })
}
