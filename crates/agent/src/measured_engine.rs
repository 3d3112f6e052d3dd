//! The engine with a measurement of each call.

use std::{collections::BTreeSet, future::Future, time::Duration};

use tokio::{sync::broadcast, time::Instant};

use driftless_docker::{
    BuildInputs, Claim, CommandResult, Docker, Effect, EngineEvent, Error, FileChanges, ImageParents,
    ImageQuestion, LogOptions, LogStream, NewestImage, ObserveScope, RegistryError, SignatureError,
    SignatureQuestion, SignedImage,
};
use driftless_metrics::{Called, EngineCall, Metrics};
use driftless_model::{
    AgentId, AppName, Build, ContainerId, DiskSpace, Healthcheck, ListedImage, Observed, Timestamp,
};
use driftless_plan::{Action, Creation, SwarmAction};

/// Measures the calls to an engine. A call that is dropped before its end is not counted.
pub(crate) struct MeasuredEngine<D> {
    engine: D,
    metrics: Metrics,
}

impl<D> MeasuredEngine<D> {
    pub(crate) fn new(engine: D, metrics: Metrics) -> Self {
        Self { engine, metrics }
    }

    async fn measure<T>(
        &self,
        call: EngineCall,
        calling: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let result = calling.await;
        let called = if result.is_ok() { Called::Done } else { Called::Failed };
        self.metrics.engine_called(call, called, began.elapsed());
        result
    }
}

impl<D: Docker> Docker for MeasuredEngine<D> {
    async fn observe(&self, app: &AppName, scope: &ObserveScope) -> Result<Observed, Error> {
        self.measure(EngineCall::new("observe"), Box::pin(self.engine.observe(app, scope))).await
    }

    async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        self.measure(EngineCall::new("list_applications"), self.engine.applications()).await
    }

    async fn perform(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Effect, Error> {
        // Boxed: the future of each step of each application would be as large as the largest action.
        self.measure(call(action), Box::pin(self.engine.perform(app, action, progress))).await
    }

    async fn try_definition(&self, creation: &Creation) -> Result<(), Error> {
        let trial = Box::pin(self.engine.try_definition(creation));
        self.measure(EngineCall::new("try_container"), trial).await
    }

    async fn build(
        &self,
        app: &AppName,
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        let building = self.engine.build(app, image, build, inputs, progress);
        self.measure(EngineCall::of_image("build_image"), building).await
    }

    async fn images(&self) -> Result<Vec<ListedImage>, Error> {
        self.measure(EngineCall::new("list_images"), self.engine.images()).await
    }

    /// It asks a registry and not the engine, so it is not measured as a call of the engine.
    async fn newest_image(&self, question: &ImageQuestion) -> Result<NewestImage, RegistryError> {
        self.engine.newest_image(question).await
    }

    /// It asks mostly a registry, so it is not measured as a call of the engine.
    async fn verify_image(&self, question: &SignatureQuestion) -> Result<SignedImage, SignatureError> {
        self.engine.verify_image(question).await
    }

    async fn disk_space(&self) -> Result<DiskSpace, Error> {
        self.measure(EngineCall::new("info"), self.engine.disk_space()).await
    }

    async fn prune_build_cache(&self, keep: u64) -> Result<u64, Error> {
        self.measure(EngineCall::new("prune_build_cache"), self.engine.prune_build_cache(keep)).await
    }

    async fn remove_image(&self, image: &ListedImage, parents: ImageParents) -> Result<(), Error> {
        self.measure(EngineCall::new("remove_image"), self.engine.remove_image(image, parents)).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.measure(EngineCall::new("ping"), self.engine.ping()).await
    }

    async fn exec(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandResult, Error> {
        self.measure(EngineCall::new("exec"), self.engine.exec(container, command, timeout)).await
    }

    async fn probe(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandResult, Error> {
        self.measure(EngineCall::new("exec"), self.engine.probe(container, command, timeout)).await
    }

    async fn check_health(&self, container: &ContainerId, check: &Healthcheck) -> Result<bool, Error> {
        self.measure(EngineCall::new("exec"), self.engine.check_health(container, check)).await
    }

    async fn logs(&self, container: &str, options: &LogOptions) -> Result<LogStream, Error> {
        self.measure(EngineCall::new("open_logs"), self.engine.logs(container, options)).await
    }

    async fn changed_files(&self, container: &ContainerId) -> Result<FileChanges, Error> {
        self.measure(EngineCall::new("list_changed_files"), self.engine.changed_files(container)).await
    }

    async fn modified_at(&self, container: &ContainerId, path: &str) -> Result<Option<Timestamp>, Error> {
        self.measure(EngineCall::new("stat_file"), self.engine.modified_at(container, path)).await
    }

    async fn claim(&self, agent: &AgentId, patience: Duration) -> Result<Claim, Error> {
        self.measure(EngineCall::new("claim"), self.engine.claim(agent, patience)).await
    }

    fn take_over(&self, former: &BTreeSet<AgentId>) {
        self.engine.take_over(former);
    }

    fn events(&self) -> broadcast::Receiver<EngineEvent> {
        self.engine.events()
    }
}

/// The label of a step.
fn call(action: &Action) -> EngineCall {
    match action {
        Action::PullImage { .. } => EngineCall::of_image("pull_image"),
        Action::VerifyImage { .. } => EngineCall::of_image("verify_image"),
        Action::BuildImage { .. } => EngineCall::of_image("build_image"),
        Action::ImportImage { .. } => EngineCall::of_image("import_image"),
        Action::CreateNetwork { .. } => EngineCall::new("create_network"),
        Action::RemoveNetwork { .. } => EngineCall::new("remove_network"),
        Action::CreateVolume { .. } => EngineCall::new("create_volume"),
        Action::RemoveVolume { .. } => EngineCall::new("remove_volume"),
        Action::CreateInstance(_) => EngineCall::new("create_container"),
        Action::WriteFiles { .. } => EngineCall::new("write_files"),
        Action::StartInstance { .. } => EngineCall::new("start_container"),
        Action::RunHooks { .. } => EngineCall::new("run_hooks"),
        Action::SignalInstance { .. } => EngineCall::new("signal_container"),
        Action::StopInstance { .. } => EngineCall::new("stop_container"),
        Action::RemoveInstance { .. } => EngineCall::new("remove_container"),
        Action::UnpauseInstance { .. } => EngineCall::new("unpause_container"),
        Action::RenameInstance { .. } => EngineCall::new("rename_container"),
        Action::UpdateInstance { .. } => EngineCall::new("update_container"),
        Action::Connect { .. } => EngineCall::new("connect_network"),
        Action::Disconnect { .. } => EngineCall::new("disconnect_network"),
        Action::ReplaceAgent(_) => EngineCall::new("replace_agent"),
        Action::Swarm(action) => swarm_call(action),
    }
}

fn swarm_call(action: &SwarmAction) -> EngineCall {
    match action {
        SwarmAction::ResolveImage { .. } => EngineCall::new("inspect_distribution"),
        SwarmAction::CreateFile { file, .. } if file.secret => EngineCall::new("create_secret"),
        SwarmAction::CreateFile { .. } | SwarmAction::ShareState { present: None, .. } => {
            EngineCall::new("create_config")
        }
        SwarmAction::RemoveFile { secret: true, .. } => EngineCall::new("remove_secret"),
        SwarmAction::RemoveFile { .. } => EngineCall::new("remove_config"),
        SwarmAction::CreateService { .. } => EngineCall::new("create_service"),
        SwarmAction::UpdateService { .. } | SwarmAction::StopService { .. } => {
            EngineCall::new("update_service")
        }
        SwarmAction::ShareState { present: Some(_), .. } => EngineCall::new("update_config"),
        SwarmAction::RemoveService { .. } => EngineCall::new("remove_service"),
    }
}
