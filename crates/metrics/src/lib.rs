//! The metrics of the agent, in the text format of Prometheus. `docs/metrics.md` lists them.
//!
//! [`Metrics`] holds what is counted as it happens: rounds, fetches, calls to the engine, deliveries. The other metrics
//! are read from the published status when they are asked for, so that the API, the page and the metrics agree. Labels
//! have values from a fixed list, or names from the configuration and from Git; nothing that a client or a container
//! chooses becomes one.
//!
//! ```
//! use std::time::Duration;
//!
//! use driftless_metrics::{Fetched, Metrics, Snapshot};
//!
//! let metrics = Metrics::default();
//! metrics.fetched("infra", Fetched::Failed, Duration::from_millis(120));
//! let text = metrics.render(&Snapshot::default());
//! assert!(text.contains(r#"driftless_git_fetch_fail_total{repository="infra"} 1"#));
//! ```

mod counters;
mod engine_call;
mod process;
mod render;
mod table;

pub use counters::{Fetched, Metrics, RoundFailure};
pub use engine_call::{Called, EngineCall};
pub use render::{FleetHost, ProxyCounts, Queue, Snapshot};
pub use table::{Kind, METRICS, Metric};
