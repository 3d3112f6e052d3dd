//! The configuration of the agent: text in, typed settings out.
//!
//! [`Settings::parse`] reads a configuration file. Every mistake in a key or value is a
//! [`Finding`](driftless_model::Finding) with file, line, column and path; then the rules between values are checked.
//! Nothing else is read: no environment, no working directory. Secrets stay names of files and variables until they are
//! used, and no message repeats a value that may be secret.
//!
//! ```
//! use driftless_config::Settings;
//!
//! let text = "repositories:\n- url: https://git.example.com/me/infra.git\n  pol: 60s\n";
//! let findings = Settings::parse("driftless.yaml", text).unwrap_err();
//! assert_eq!(
//!     findings[0].to_string(),
//!     "driftless.yaml:3:3: error: repositories[0].pol: unknown key `pol` (did you mean `poll`?)",
//! );
//!
//! let settings = Settings::parse("driftless.yaml", &text.replace("pol:", "poll:")).unwrap();
//! assert_eq!(settings.repositories[0].name, "infra");
//! ```

mod access;
mod admission;
mod allow;
mod api_socket;
mod check;
mod client_hosts;
mod docker_host;
mod file;
mod fleet;
mod fleet_place;
mod host;
mod identify;
mod in_git;
mod keys;
mod listen_tls;
mod listeners;
mod located;
mod named_files;
mod notifications;
mod oidc;
mod origins;
mod policy;
mod protected_paths;
mod registry;
mod repository_keys;
mod schema;
mod secret;
mod settings;
mod status;
mod trust;
mod trusted_proxy;
mod url;
mod value;
mod values_from;
mod webhook;

pub use admission::parse_policy;
pub use allow::Allow;
pub use api_socket::{ApiSocket, SOCKET_FOLDER, SOCKET_NAME, SocketGroup, SocketPlace};
pub use client_hosts::{ClientHost, client_hosts};
pub use docker_host::{DockerHost, DockerTls};
pub use fleet::{Enrolment, Fleet, FleetReports};
pub use fleet_place::{FleetBucket, FleetFolder, FleetPlace, PlaceKind};
pub use identify::machine_labels;
pub use in_git::{AtCommit, SETTINGS_FILE};
pub use listen_tls::ListenTls;
pub use listeners::addresses_overlap;
pub use named_files::{NamedFile, named_files, named_state_dir, names_engine};
pub use notifications::{
    Email, Login, MailTls, NotificationReceiver, NotificationRoute, Notifications, Target,
};
pub use oidc::Oidc;
pub use origins::Origins;
pub use policy::PolicyEntry;
pub use schema::{schema, schema_of_repository};
pub use secret::Secret;
pub use settings::{
    ApplicationSettings, Auth, CommitStatus, GithubApp, Metrics, Proxy, RUNTIME_DIR, Reference, Registry,
    Repository, STATE_DIR, Settings, StatusProvider, Verify, VerifyMode, Webhook, Webhooks, local_url,
};
pub use trusted_proxy::{Audit, TrustedProxy};
pub use url::HOST_PLACEHOLDER;
pub use values_from::{ValueOrigin, ValueSource};
