//! The Docker Engine: observe it, follow its events, perform the steps of a plan. The only crate that knows bollard.
//!
//! [`Docker`] is the interface, in our own types. [`Engine`] talks to a real Docker Engine (or Podman) and is
//! tolerant: a step whose result is already there succeeds. `SimulatedEngine` (feature `simulated`, for tests) keeps
//! everything in memory and is strict. Nothing in this crate decides what should be done: that is the planner's part.
//!
//! | module | content |
//! |---|---|
//! | `transport`, `connection` | HTTP to the engine; the API version, deadlines, the agent's own container |
//! | `to_engine`, `from_engine` | our types as the engine's, and back. Pure |
//! | `catalogue`, `cache` | lists that are kept current by events; what was inspected |
//! | `attribution` | who caused what happened to containers |
//! | `container_list`, `inventory`, `observe` | reading: lists, cached inspections, the observed state of an application |
//! | `events` | the event stream: makes the cache forget, feeds the attribution, wakes the applications |
//! | `engine_report`, `host_snapshot` | facts about the engine and its host; what runs and belongs to no agent |
//! | `crash_output` | the last lines of containers that exited by themselves |
//! | `agent_claims` | which agents live on the engine, and whose objects belong to this agent |
//! | `agent_update` | the containers of an agent that is being replaced, for the helper container |
//! | `stray_processes` | processes of a container that the engine does not know, for the helper container that ends them |
//! | `actions` | the steps: containers, networks, volumes, hooks, images; trials of definitions |
//! | `swarm` | services, tasks and configs of a Docker Swarm |
//! | `image_list` | the images with the containers that use them |
//! | `image_build` | builds with `BuildKit` or the classic builder |
//!
//! # Example
//!
//! A workload's network is created on a simulated engine and then observed:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use driftless_clock::Clock;
//! use driftless_docker::{Docker, Effect, ObserveScope, SimulatedEngine};
//! use driftless_model::{AgentId, AppName, Network};
//! use driftless_plan::Action;
//!
//! let engine = SimulatedEngine::new(AgentId::from("home"), Clock::System);
//! let shop = AppName::from("shop");
//! let (name, project, network) = ("shop_default".to_owned(), "shop".to_owned(), Network::default());
//! let create = Action::CreateNetwork { name, network, project, addresses: None };
//! assert_eq!(engine.perform(&shop, &create, &|_| {}).await?, Effect::Done);
//!
//! let observed = engine.observe(&shop, &ObserveScope::default()).await?;
//! assert!(observed.networks.contains_key("shop_default"));
//! # Ok::<_, driftless_docker::Error>(())
//! # })?;
//! # Ok(())
//! # }
//! ```

mod actions;
mod agent_claims;
mod agent_update;
mod api_calls;
mod attribution;
mod body_writer;
mod build_cache;
mod cache;
mod call_error;
mod catalogue;
mod connection;
mod container_files;
mod container_list;
mod crash_output;
mod credential_helper;
mod deadline;
mod disk_space;
mod docker;
mod engine;
mod engine_report;
mod engine_start;
mod error;
mod events;
mod exec;
mod find_image;
mod from_engine;
mod helper_image;
mod host_ports;
mod host_snapshot;
mod image_build;
mod image_list;
mod inventory;
mod logs;
mod mount_paths;
mod observe;
mod peer_names;
mod percent_encoding;
mod platforms;
mod podman;
mod pull;
mod raw_event;
mod registry;
mod registry_login;
mod registry_logins;
mod remembered;
mod removed_socket;
mod self_container;
mod shared_images;
#[cfg(feature = "simulated")]
mod simulated;
mod stray_processes;
mod swarm;
mod tls;
mod to_engine;
mod transport;

pub use agent_update::{AgentContainer, AgentContainers, AgentUpdate};
pub use api_calls::api_calls;
pub use connection::EngineInfo;
pub use docker::{
    Claim, CommandResult, Docker, Effect, EngineEvent, FileChanges, ImageParents, ObserveScope,
};
pub use engine::{Engine, EngineFacts, EngineOptions, OwnContainer};
pub use engine_report::{EngineReport, engine_report};
pub use error::Error;
pub use host_snapshot::{HostSnapshot, SnapshotContainer, host_snapshot};
pub use image_build::{BuildInputs, BuildSecrets};
pub use logs::{LogOptions, LogSource, LogStream};
pub use registry::{
    ImageQuestion, NewestImage, RegistryError, SignatureError, SignatureQuestion, SignedImage, key_contents,
};
pub use registry_logins::{ReadSecret, RegistryLogins};
pub use remembered::{KnownContainers, Remembered, RememberedChange};
pub use removed_socket::removed_socket;
#[cfg(feature = "simulated")]
pub use simulated::{
    ChangedBy, EndedTask, EventDelivery, Faults, IMAGE_BYTES, Outage, SimulatedEngine, SimulatedSwarm,
    SwarmFaults, SwarmWrite, TranscriptEntry, UserAction,
};
pub use stray_processes::StrayProcesses;
pub use transport::ApiVersion;
