//! The steps of a plan for a Swarm as calls to a manager. A step whose result is already there succeeds.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use driftless_model::{
    AppName, ContentId, LARGEST_SWARM_FILE, ResolvedImage, SHARED_LABEL, STACK_NAMESPACE, SWARM_OWNER,
    SharedState, SwarmFile, SwarmFileKind, label,
};
use driftless_plan::{PresentFile, SwarmAction, SwarmResult};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::manager_api::{ManagerApi, get};
use crate::{
    call_error::CallError, docker::Effect, error::Error, percent_encoding::encode,
    registry_logins::RegistryLogins,
};

/// The content of the config whose label has the shared state. A content never changes, a label does.
const SHARED_CONTENT: &str = "The label driftless.shared has what the agents of all managers share.\n";

/// Performs steps for a Swarm.
pub(crate) struct SwarmActions<M> {
    manager: Arc<M>,
    logins: RegistryLogins,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct Distribution {
    descriptor: Descriptor,
    platforms: Option<Vec<Platform>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Descriptor {
    digest: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "ID")]
    id: String,
}

/// A config or secret.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StackFile {
    version: FileVersion,
    spec: FileSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FileVersion {
    index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FileSpec {
    name: String,
    labels: Option<BTreeMap<String, String>>,
    /// The program that provides a secret in the place of a content.
    driver: Option<Value>,
    /// The language in which the content is a template.
    templating: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Specified {
    spec: Value,
}

impl<M: ManagerApi> SwarmActions<M> {
    pub(crate) fn new(manager: &Arc<M>, logins: RegistryLogins) -> Self {
        Self { manager: Arc::clone(manager), logins }
    }

    pub(crate) async fn perform(&self, app: &AppName, action: &SwarmAction) -> Result<Effect, Error> {
        let doing = action.to_string();
        match action {
            SwarmAction::ResolveImage { image, secrets } => self.resolve(image, secrets).await,
            SwarmAction::CreateFile { project, file, present } => {
                self.create_file(app, project, file, present.as_ref(), &doing).await
            }
            SwarmAction::RemoveFile { name: _, id, secret } => {
                let path = format!("/{}/{id}", SwarmFileKind::of(*secret).path());
                self.check_owner(&path, app, None, &doing).await?;
                self.remove(&path, &doing).await
            }
            SwarmAction::CreateService { name, image, secrets, spec } => {
                let written = self.write(Method::POST, "/services/create", (image, secrets), spec).await;
                let id = match written {
                    Ok(body) => serde_json::from_slice::<Created>(&body)
                        .map(|created| created.id)
                        .unwrap_or(name.clone()),
                    Err(error) => return Err(hide(error, spec).classify(&doing)),
                };
                self.written(&id, &doing).await
            }
            // The planner has seen the labels of this version, as for an update: a service that it adopts has none yet.
            SwarmAction::StopService { name: _, id, version, spec } => {
                let path = format!("/services/{id}/update?version={version}");
                match self.manager.send(Method::POST, &path, &[], spec.to_string().into_bytes()).await {
                    Ok(_) => Ok(Effect::Done),
                    Err(error) if error.is_not_found() => Ok(Effect::Done),
                    Err(error) if error.contains(&["out of sequence"]) => {
                        Err(hide(error, spec).refused(&doing))
                    }
                    Err(error) => Err(hide(error, spec).classify(&doing)),
                }
            }
            SwarmAction::UpdateService { name: _, id, version, image, secrets, spec } => {
                let path = format!("/services/{id}/update?version={version}");
                match self.write(Method::POST, &path, (image, secrets), spec).await {
                    Ok(_) => self.written(id, &doing).await,
                    // Another one has written it since it was observed: look again.
                    Err(error) if error.contains(&["out of sequence"]) => {
                        Err(hide(error, spec).refused(&doing))
                    }
                    Err(error) => Err(hide(error, spec).classify(&doing)),
                }
            }
            SwarmAction::ShareState { project, name, present, state } => {
                self.share_state(app, (project, name), present.as_ref(), state, &doing).await
            }
            SwarmAction::RemoveService { name, id } => {
                self.check_owner(&format!("/services/{id}"), app, Some(name), &doing).await?;
                self.remove(&format!("/services/{id}"), &doing).await
            }
        }
    }

    /// The digest of an image, which the engine asks the registry for.
    async fn resolve(&self, image: &str, secrets: &[ContentId]) -> Result<Effect, Error> {
        let failed = |message: String| Error::Pull { image: image.to_owned(), message, retry_after: None };
        let headers = self.login(image, secrets).await.map_err(failed)?;
        let path =
            format!("/distribution/{}/json", image.split('/').map(encode).collect::<Vec<_>>().join("/"));
        let found: Distribution = self
            .manager
            .send(Method::GET, &path, &headers, Vec::new())
            .await
            .and_then(|body| serde_json::from_slice(&body).map_err(|error| CallError::unreachable(&error)))
            .map_err(|error| {
                let advice = match error.code() {
                    Some(401 | 403 | 404) => {
                        "; services of a Swarm have the digest of their image: push it to a registry that all nodes reach"
                    }
                    _ => "",
                };
                failed(format!("{error}{advice}"))
            })?;
        if found.descriptor.digest.is_empty() {
            return Err(failed("the registry has no digest of it".to_owned()));
        }
        let known = found.platforms.unwrap_or_default().into_iter();
        let platforms =
            known.filter(|it| it.os != "unknown" && !it.os.is_empty()).map(|it| (it.os, it.architecture));
        let resolved = ResolvedImage {
            image: if image.contains('@') {
                image.to_owned()
            } else {
                format!("{image}@{}", found.descriptor.digest)
            },
            platforms: platforms.collect(),
        };
        Ok(Effect::Swarm(Box::new(SwarmResult::Resolved(resolved))))
    }

    async fn create_file(
        &self,
        app: &AppName,
        project: &str,
        file: &SwarmFile,
        present: Option<&PresentFile>,
        doing: &str,
    ) -> Result<Effect, Error> {
        let paths = self.manager.paths();
        let folder = if file.secret { &paths.secret } else { &paths.content };
        let content = file.content.as_ref().map(|id| id.0.as_str()).unwrap_or_default();
        let bytes = read(folder, content, &file.path).await.map_err(|error| Error::Rejected {
            doing: doing.to_owned(),
            message: format!("the mounted file is missing in the state directory: {error}"),
        })?;
        let data = STANDARD.encode(bytes);
        if let Some(present) = present
            && self.adopt_file(app, project, file, (&present.id, &data), doing).await?
        {
            let adopted = SwarmResult::Adopted { name: present.name.clone(), kind: file.kind() };
            return Ok(Effect::Swarm(Box::new(adopted)));
        }
        let mut body = json!({
            "Name": file.name,
            "Labels": {
                label::AGENT: SWARM_OWNER, label::APPLICATION: app.as_str(), STACK_NAMESPACE: project,
            },
            "Data": data,
        });
        if let Some(language) = &file.template {
            body["Templating"] = json!({"Name": language});
        }
        let path = format!("/{}/create", file.kind().path());
        match self.manager.send(Method::POST, &path, &[], body.to_string().into_bytes()).await {
            Ok(_) => {}
            // It is named by its content, so it has the same content if it is our own.
            Err(error) if error.code() == Some(409) => {
                self.check_owner(&format!("/{}/{}", file.kind().path(), file.name), app, None, doing).await?;
            }
            Err(error) => return Err(error.classify(doing)),
        }
        Ok(Effect::Done)
    }

    /// Gives a config or secret of `docker stack deploy` the labels of the application. `false`: it has another content, or is
    /// none of this stack. A Swarm tells nobody what a secret contains, and refuses an update with another content.
    async fn adopt_file(
        &self,
        app: &AppName,
        project: &str,
        file: &SwarmFile,
        (id, data): (&str, &str),
        doing: &str,
    ) -> Result<bool, Error> {
        let path = format!("/{}/{id}", file.kind().path());
        let found: StackFile = match get(&*self.manager, &path).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error.classify(doing)),
        };
        let FileSpec { name, labels, driver, templating } = found.spec;
        let mut labels = labels.unwrap_or_default();
        let is_of_stack = labels.get(STACK_NAMESPACE).is_some_and(|it| it == project);
        let is_of_another = labels.get(label::APPLICATION).is_some_and(|it| it != app.as_str());
        let language = templating.and_then(|it| it.get("Name")?.as_str().map(str::to_owned));
        if !is_of_stack || is_of_another || driver.is_some() || language != file.template {
            return Ok(false);
        }
        let mut names: BTreeSet<&str> =
            labels.get(label::FILES).into_iter().flat_map(|it| it.split(',')).collect();
        names.insert(&file.name);
        let names = names.into_iter().collect::<Vec<_>>().join(",");
        let own = [(label::AGENT, SWARM_OWNER), (label::APPLICATION, app.as_str()), (label::FILES, &names)];
        labels.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let body = json!({"Name": name, "Labels": labels, "Data": data});
        let path = format!("{path}/update?version={}", found.version.index);
        match self.manager.send(Method::POST, &path, &[], body.to_string().into_bytes()).await {
            Ok(_) => Ok(true),
            Err(error) if error.contains(&["only updates to labels are allowed"]) => Ok(false),
            // Another one has written it since it was observed: look again.
            Err(error) if error.contains(&["out of sequence"]) => Err(error.refused(doing)),
            Err(error) => Err(error.classify(doing)),
        }
    }

    async fn share_state(
        &self,
        app: &AppName,
        (project, name): (&str, &str),
        present: Option<&(String, u64)>,
        state: &SharedState,
        doing: &str,
    ) -> Result<Effect, Error> {
        let rejected = |message: String| Error::Rejected { doing: doing.to_owned(), message };
        let text = serde_json::to_string(state).map_err(|error| rejected(error.to_string()))?;
        let body = json!({
            "Name": name,
            "Labels": {
                label::AGENT: SWARM_OWNER, label::APPLICATION: app.as_str(), STACK_NAMESPACE: project,
                SHARED_LABEL: text,
            },
            "Data": STANDARD.encode(SHARED_CONTENT),
        });
        let path = match present {
            None => "/configs/create".to_owned(),
            Some((id, version)) => format!("/configs/{id}/update?version={version}"),
        };
        match self.manager.send(Method::POST, &path, &[], body.to_string().into_bytes()).await {
            Ok(_) => Ok(Effect::Done),
            // Another agent has written it since it was observed: look again.
            Err(error) if error.code() == Some(409) || error.contains(&["out of sequence"]) => {
                Err(error.refused(doing))
            }
            Err(error) => Err(error.classify(doing)),
        }
    }

    /// Writes a service, with the ids of its configs, secrets and networks, and the login of its registry.
    async fn write(
        &self,
        method: Method,
        path: &str,
        (image, secrets): (&str, &[ContentId]),
        spec: &Value,
    ) -> Result<Vec<u8>, CallError> {
        let mut spec = spec.clone();
        for kind in SwarmFileKind::ALL {
            let pointer = format!("/TaskTemplate/ContainerSpec/{}", kind.list());
            let Some(references) = spec.pointer_mut(&pointer).and_then(Value::as_array_mut) else { continue };
            let ids = self.ids(kind).await?;
            for reference in references.iter_mut().filter_map(Value::as_object_mut) {
                let name = reference.get(kind.name_key()).and_then(Value::as_str);
                let found = name.and_then(|name| ids.get(name));
                if let Some(found) = found {
                    reference.insert(kind.id_key().to_owned(), found.as_str().into());
                }
            }
        }
        let message = |message: String| CallError::Status { code: 400, message };
        let headers = self.login(image, secrets).await.map_err(message)?;
        self.manager.send(method, path, &headers, spec.to_string().into_bytes()).await
    }

    async fn ids(&self, kind: SwarmFileKind) -> Result<BTreeMap<String, String>, CallError> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(rename = "ID")]
            id: String,
            #[serde(rename = "Spec")]
            spec: Name,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Name {
            name: String,
        }
        let all: Vec<Named> = get(&*self.manager, &format!("/{}", kind.path())).await?;
        Ok(all.into_iter().map(|object| (object.spec.name, object.id)).collect())
    }

    /// A service as the Swarm has it now.
    async fn written(&self, id: &str, doing: &str) -> Result<Effect, Error> {
        let found: Specified =
            get(&*self.manager, &format!("/services/{id}")).await.map_err(|error| error.classify(doing))?;
        Ok(Effect::Swarm(Box::new(SwarmResult::Written { id: id.to_owned(), spec: found.spec })))
    }

    /// Checks that an object has the labels of the application. One of them is enough for a service of its stack: the other was
    /// removed by hand. An object that is gone passes.
    async fn check_owner(
        &self,
        path: &str,
        app: &AppName,
        service: Option<&String>,
        doing: &str,
    ) -> Result<(), Error> {
        let found: Specified = match get(&*self.manager, path).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.classify(doing)),
        };
        let text = |name: &str| found.spec.get("Labels").and_then(|labels| labels.get(name)?.as_str());
        let is_of_stack = |name: &String| {
            let rest = text(STACK_NAMESPACE).and_then(|stack| name.strip_prefix(&stack.replace('.', "_")));
            rest.is_some_and(|rest| rest.starts_with('_'))
        };
        let is_own = match (text(label::AGENT), text(label::APPLICATION)) {
            (Some(agent), Some(owner)) => agent == SWARM_OWNER && owner == app.as_str(),
            (Some(agent), None) => agent == SWARM_OWNER && service.is_some_and(is_of_stack),
            (None, Some(owner)) => owner == app.as_str() && service.is_some_and(is_of_stack),
            (None, None) => false,
        };
        if is_own {
            return Ok(());
        }
        let message = "it does not carry the labels of this application".to_owned();
        Err(Error::Rejected { doing: doing.to_owned(), message })
    }

    async fn remove(&self, path: &str, doing: &str) -> Result<Effect, Error> {
        match self.manager.send(Method::DELETE, path, &[], Vec::new()).await {
            Ok(_) => Ok(Effect::Done),
            Err(error) if error.is_not_found() => Ok(Effect::Done),
            Err(error) => Err(error.classify(doing)),
        }
    }

    async fn login(&self, image: &str, secrets: &[ContentId]) -> Result<Vec<(&'static str, String)>, String> {
        let folder = &self.manager.paths().secret;
        let files: Vec<PathBuf> = secrets.iter().map(|id| folder.join(&id.0)).collect();
        let login = self.logins.login(image, &files).await?;
        Ok(login.map(|login| ("x-registry-auth", login.header(image))).into_iter().collect())
    }
}

/// Hides the values of variables in the engine's message.
fn hide(error: CallError, spec: &Value) -> CallError {
    let env = spec.pointer("/TaskTemplate/ContainerSpec/Env").and_then(Value::as_array);
    let pairs = env.into_iter().flatten().filter_map(|it| it.as_str()?.split_once('='));
    error.without_values(&pairs.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).collect())
}

/// Reads a file of a content, which is a file or a folder.
async fn read(folder: &Path, content: &str, path: &str) -> Result<Vec<u8>, std::io::Error> {
    let mut file = folder.join(content);
    if !path.is_empty() {
        file = file.join(path);
    }
    let size = tokio::fs::metadata(&file).await?.len();
    if size > LARGEST_SWARM_FILE as u64 {
        return Err(std::io::Error::other("it is too large for a Swarm"));
    }
    tokio::fs::read(&file).await
}
