//! The commands of `driftless`. Only this module reads arguments, environment and working directory, and prints.
//! `run` starts the agent, most commands are clients of its API, and `validate`, `config`, `convert` and `preview`
//! need neither an agent nor Docker.
//!
//! Each command has a file of its name, with its arguments and their help texts: `driftless rollback` is
//! `rollback.rs`. The kubectl-compatible ones are in `kubectl`. [`Invocation`] lists them all.

mod command_line;
mod context;
mod error;
mod reference;
mod unknown_command;

// Commands, by name. The help has the order of `Command`.
mod adopt;
mod audit;
mod backup;
mod completion;
mod config;
mod convert;
mod diff;
mod doctor;
mod drift;
mod events;
mod fleet;
mod forget;
mod healthcheck;
mod history;
mod images;
mod import;
mod init;
mod kubectl;
mod notify;
mod plan;
mod preview;
mod promote;
mod recover;
mod release;
mod remove;
mod resume;
mod rollback;
mod run;
mod scale;
mod status;
mod suspend;
mod sync;
mod token;
mod ui;
mod validate;
mod wait;
mod webhook;
// Commands of helper containers.
mod pause;
mod proxy;

// Shared by several commands.
mod client;
mod conflicts;
mod connection;
mod end_processes;
mod findings;
mod fold;
mod folder;
mod goal;
mod helper_container;
mod hosts;
mod log_export;
mod log_format;
mod missing;
mod on_host;
mod options;
mod output;
mod policy_file;
mod progress;
mod replace_agent;
mod report;
mod screen;
mod sops_keys;
mod span;
mod table;
mod topic;
mod work_tree;
mod yaml;

pub use command_line::{Invocation, Logging};
pub use context::Environment;
pub use end_processes::end_processes;
pub use findings::{render_findings, summary};
pub use history::render_history;
pub use log_export::LogExport;
pub use log_format::{LineTaker, LogLine};
pub use pause::pause;
pub use plan::{PlanResult, render_plan};
pub use proxy::{proxy, proxy_counters, proxy_drain, proxy_ready};
pub use reference::reference;
pub use replace_agent::replace_agent;
pub use run::LogFormat;
pub use screen::{Colours, LogWriter, Screen};
pub use status::{Detail, render_application, render_status};

pub(crate) use context::{Context, ExitStatus};
pub(crate) use error::Error;
