//! The counters of proxies, read from their containers when somebody asks for metrics.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use driftless_docker::{CommandResult, Docker};
use driftless_metrics::ProxyCounts;
use driftless_model::{AppName, ContainerId, PortCounters, proxy_of};
use driftless_plan::ProxyEndpoints;
use futures_util::{StreamExt, stream};
use tokio::{sync::Mutex as AsyncMutex, time::Instant};

use crate::error::chain;

/// The deadline of one proxy.
const DEADLINE: Duration = Duration::from_secs(5);
/// Counters that were read so recently are not read again: each read is a command in each proxy.
const FRESH: Duration = Duration::from_secs(5);
/// Maximum number of proxies that are read at the same time.
const CONCURRENT: usize = 8;

/// A source of the counters of all proxies.
pub trait ProxyCounters: Send + Sync {
    /// The counters of all proxies that answer.
    fn read<'a>(&'a self) -> Pin<Box<dyn Future<Output = Arc<Vec<ProxyCounts>>> + Send + 'a>>;
}

/// The running proxies of all applications, as their last rounds saw them.
#[derive(Debug, Default)]
pub(crate) struct Proxies(Mutex<BTreeMap<AppName, Vec<Proxy>>>);

#[derive(Clone, Debug)]
struct Proxy {
    name: String,
    container: ContainerId,
    entrypoint: Vec<String>,
}

impl Proxies {
    /// Replaces the proxies of an application.
    pub(crate) fn set(&self, app: &AppName, proxies: &[ProxyEndpoints]) {
        let proxy = |proxy: &ProxyEndpoints| Proxy {
            name: proxy_of(proxy.workload.as_str()).to_owned(),
            container: proxy.container.clone(),
            entrypoint: proxy.entrypoint.clone(),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if proxies.is_empty() {
            all.remove(app);
        } else {
            all.insert(app.clone(), proxies.iter().map(proxy).collect());
        }
    }

    fn all(&self) -> Vec<(AppName, Proxy)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().flat_map(|(app, of)| of.iter().map(|proxy| (app.clone(), proxy.clone()))).collect()
    }
}

/// The counters of the proxies on the engine.
pub(crate) struct EngineProxyCounters<D> {
    docker: Arc<D>,
    proxies: Arc<Proxies>,
    last: AsyncMutex<Option<(Instant, Arc<Vec<ProxyCounts>>)>>,
}

impl<D: Docker> EngineProxyCounters<D> {
    pub(crate) fn new(docker: Arc<D>, proxies: Arc<Proxies>) -> Self {
        Self { docker, proxies, last: AsyncMutex::default() }
    }

    async fn read_one(&self, app: AppName, proxy: Proxy) -> Option<ProxyCounts> {
        let command: Vec<String> =
            proxy.entrypoint.into_iter().chain(["proxy-counters".to_owned()]).collect();
        let text = match self.docker.exec(&proxy.container, &command, DEADLINE).await {
            Ok(CommandResult { code: 0, output }) => output,
            // A proxy that is being replaced, or of an earlier release.
            Ok(CommandResult { output, .. }) => {
                tracing::debug!(%app, proxy = proxy.name, output, "could not read the counters of a proxy");
                return None;
            }
            Err(error) => {
                tracing::debug!(%app, proxy = proxy.name, error = chain(&error), "could not read the counters of a proxy");
                return None;
            }
        };
        // A proxy from which another one has taken over has no ports.
        let ports: Vec<PortCounters> = serde_json::from_str(&text).ok()?;
        (!ports.is_empty()).then_some(ProxyCounts { application: app, proxy: proxy.name, ports })
    }
}

impl<D: Docker> ProxyCounters for EngineProxyCounters<D> {
    fn read<'a>(&'a self) -> Pin<Box<dyn Future<Output = Arc<Vec<ProxyCounts>>> + Send + 'a>> {
        Box::pin(async move {
            let mut last = self.last.lock().await;
            if let Some((at, counts)) = &*last
                && at.elapsed() < FRESH
            {
                return Arc::clone(counts);
            }
            let reads = self.proxies.all().into_iter().map(|(app, proxy)| self.read_one(app, proxy));
            let reads: Vec<_> = stream::iter(reads).buffered(CONCURRENT).collect().await;
            let counts = Arc::new(reads.into_iter().flatten().collect());
            *last = Some((Instant::now(), Arc::clone(&counts)));
            counts
        })
    }
}
