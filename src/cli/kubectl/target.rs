//! One object, named as KIND/NAME or as APP/WORKLOAD, and its application.

use serde_json::Value;

use super::{
    args::ScopeArgs,
    objects::{Error, Scope, Wanted, at, kind_of, objects, say_missing},
    unobserved::warn_of_unobserved,
};
use crate::{
    cli::Context, cli::Error as CliError, cli::client, cli::client::Client, cli::client::application_path,
};
use driftless_model::{Kind, label};

/// An object and the routes of its application.
pub(super) struct Target {
    pub(super) item: Value,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) app: String,
    /// Empty if the object is neither a workload nor an instance.
    pub(super) workload: String,
}

impl Target {
    /// The selected object. `None`: there is none, which was reported.
    pub(super) async fn find(
        wanted: &Wanted,
        scope: &ScopeArgs,
        client: &Client,
        context: &Context<'_>,
    ) -> Result<Option<Self>, CliError> {
        let scope =
            Scope { namespace: scope.namespace.as_deref(), app: scope.app.as_deref(), selector: None };
        let mut found = objects(client, wanted, &scope).await?;
        let Some(item) = found.pop() else {
            say_missing(wanted, scope.app, client, context).await;
            return Ok(None);
        };
        let target = Self::of(item);
        if found.is_empty() {
            return Ok(Some(target));
        }
        Err(Self::of(found.remove(0)).ambiguous_with(&target).into())
    }

    /// The workload of an application, as Compose users name it: `shop/web`. `None`: there is none, which was reported.
    pub(super) async fn of_application(
        app: &str,
        workload: &str,
        scope: &ScopeArgs,
        client: &Client,
        context: &Context<'_>,
    ) -> Result<Option<Self>, CliError> {
        if let Some(other) = scope.app.as_deref().filter(|other| *other != app) {
            let text = format!(
                "`{app}/{workload}` names the application `{app}`, and --app names `{other}`: leave out --app"
            );
            return Err(Error::Usage(text).into());
        }
        let namespace = scope.namespace.as_deref();
        let all = workloads(Some(app), client).await?.into_iter().map(Self::of);
        let is_it = |target: &Self| {
            target.name == workload && namespace.is_none_or(|namespace| target.namespace == namespace)
        };
        let (mut found, others): (Vec<Self>, Vec<Self>) = all.partition(is_it);
        let Some(target) = found.pop() else {
            let place = namespace.map(|namespace| format!(", namespace `{namespace}`")).unwrap_or_default();
            context
                .screen
                .say(format!("error: there is no workload `{workload}` in an application `{app}`{place}"));
            let option = |target: &Self| namespace.map(|_| format!(" -n {}", target.namespace));
            let names = others
                .iter()
                .map(|other| format!("{app}/{}{}", other.name, option(other).unwrap_or_default()));
            context.screen.say(match names.collect::<Vec<String>>().as_slice() {
                [] => format!(
                    "help: no kind has the name `{app}` either; `driftless status` lists the applications"
                ),
                names => format!("help: there is {}", names.join(", ")),
            });
            warn_of_unobserved(Some(app), &[], client, context).await;
            return Ok(None);
        };
        match found.first() {
            Some(other) => Err(other.ambiguous_with(&target).into()),
            None => Ok(Some(target)),
        }
    }

    /// The error about a name that another object has as well.
    fn ambiguous_with(&self, other: &Self) -> Error {
        let (name, other_name) = (self.qualified(), other.qualified());
        let other_name = if name == other_name { String::new() } else { format!("{other_name} ") };
        let advice = match (self.app == other.app, self.namespace == other.namespace) {
            (false, false) => "select one with -n or --app".to_owned(),
            (true, false) => "select one with -n".to_owned(),
            (false, true) => "select one with --app".to_owned(),
            (true, true) => format!("select one by its kind, as in `{name} --app {}`", self.app),
        };
        let (app, namespace) = (&self.app, &self.namespace);
        Error::Usage(format!(
            "the name is ambiguous: {name} of {app} in namespace {namespace}, and {other_name}of {} in namespace {}; {advice}",
            other.app, other.namespace
        ))
    }

    pub(super) fn of(item: Value) -> Self {
        let own = |key: &str| item["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
        Self {
            kind: kind_of(&item),
            name: at(&item, "/metadata/name"),
            namespace: at(&item, "/metadata/namespace"),
            app: own(label::APPLICATION),
            workload: own(label::WORKLOAD),
            item,
        }
    }

    /// Reads the object again.
    pub(super) async fn again(&self, client: &Client) -> Result<Option<Value>, client::Error> {
        let wanted = Wanted { kinds: vec![self.kind], name: Some(self.name.clone()) };
        let scope = Scope { namespace: Some(&self.namespace), app: Some(&self.app), selector: None };
        Ok(objects(client, &wanted, &scope).await?.pop())
    }

    /// The Pods of a workload, ready ones first.
    pub(super) async fn pods(&self, client: &Client) -> Result<Vec<Value>, client::Error> {
        let selector = format!("{}={},{}={}", label::APPLICATION, self.app, label::WORKLOAD, self.workload);
        let wanted = Wanted { kinds: vec![Kind::Pod], name: None };
        let scope = Scope { selector: Some(&selector), ..Scope::default() };
        let mut pods = objects(client, &wanted, &scope).await?;
        pods.sort_by_cached_key(|pod| {
            let is_ready = pod.pointer("/status/containerStatuses/0/ready") == Some(&Value::Bool(true));
            let has_container = pod.pointer("/status/containerStatuses/0/containerID").is_some();
            (!is_ready, !has_container, at(pod, "/metadata/name"))
        });
        Ok(pods)
    }

    /// `deployment.apps/web`
    pub(super) fn qualified(&self) -> String {
        format!("{}/{}", self.kind.qualified(), self.name)
    }

    /// A route of its application.
    pub(super) fn route(&self, below: &str) -> Result<String, CliError> {
        Ok(application_path(&self.app, below)?)
    }
}

/// The parts of `APP/WORKLOAD`. `None`: the text is no pair, or its first part is a kind.
pub(super) fn app_and_workload(text: &str) -> Option<(&str, &str)> {
    let has_no_kind = matches!(Wanted::pair(text), Err(Error::NoSuchKind(_)));
    text.split_once('/').filter(|_| has_no_kind)
}

/// The workloads of an application, or of all.
pub(super) async fn workloads(app: Option<&str>, client: &Client) -> Result<Vec<Value>, CliError> {
    let kinds = vec![Kind::Deployment, Kind::StatefulSet, Kind::DaemonSet, Kind::Job];
    Ok(objects(client, &Wanted { kinds, name: None }, &Scope { app, ..Scope::default() }).await?)
}
