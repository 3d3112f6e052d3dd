//! The state of an agent on the disk: one `SQLite` database with revisions, records, pins and events, and the files that
//! containers mount.
//!
//! [`Store`] is cheap to clone and synchronous: each call is one short transaction. What users rely on (revisions,
//! pins, suspensions) survives a power failure. The rest survives the end of the process, which saves a wait for the
//! disk in every round.
//!
//! The store decides nothing, and removes nothing that is within its limits. Without the database, the agent still makes
//! the host equal to Git. The database contains no secret file, only its digest. Stored stacks and records hold the values of
//! environment variables, so they are encrypted with a key file; the directory (mode 0700) and its files (0600) are closed to
//! other users.
//!
//! ```
//! use driftless_clock::Clock;
//! use driftless_model::{AppName, Record, StackHash};
//! use driftless_store::{Store, Suspension};
//!
//! # fn main() -> Result<(), driftless_store::Error> {
//! let store = Store::in_memory(Clock::System)?;
//! let app = AppName::from("shop");
//! let record = Record { settled: Some(StackHash("0123".to_owned())), ..Record::default() };
//! store.save_record(&app, &record)?;
//! store.set_suspended(&app, Suspension::Suspended)?;
//! assert_eq!(store.record(&app)?, record);
//! assert!(store.suspended(&app)?);
//! # Ok(())
//! # }
//! ```

mod agent_id;
mod agent_update;
mod app_file_change;
mod app_files;
mod applications;
mod archive;
mod audit;
mod backup;
mod commit_statuses;
mod commits;
mod containers;
mod contents;
mod database;
mod deliveries;
mod ended_sessions;
mod error;
mod events;
mod file_entry;
mod fleet;
mod fleet_key_file;
mod fleet_keys;
mod fleet_requests;
mod folder_mounts;
mod images;
mod in_place;
mod notifications;
mod open_paths;
mod overwrite;
mod partial_file;
mod queues;
mod release;
mod repair;
mod restored;
mod revisions;
mod safe_path;
mod salvage;
mod sealed;
mod state_dir;
mod store;
mod tokens;
mod written_folder;

pub use agent_id::former_agents;
pub use agent_update::{AgentUpdateNotes, EndedAgentUpdate};
pub use app_file_change::AppFileChange;
pub use archive::{RestoreOptions, Restored, back_up, restore};
pub use commit_statuses::StoredStatus;
pub use containers::InspectedContainers;
pub use contents::{ContentDir, LackingSecrets, Prepared, Visibility};
pub use deliveries::DeliveryState;
pub use error::Error;
pub use fleet::{
    FleetBounds, FleetChange, FleetFull, FleetRow, StoredConflict, StoredFleetEntry, StoredHost,
};
pub use fleet_keys::{FleetInvite, FleetKey, JoinOutcome, JoiningHost, RevokedKey, StoredEnrolment};
pub use fleet_requests::{RequestCreation, StoredRequest};
pub use notifications::IncidentUpdate;
pub use queues::QueueLength;
pub use sealed::is_database_key;
pub use state_dir::{FLEET_KEY, StateDir};
pub use store::{KnownApplication, NewRevision, Opened, OtherAgent, Store, Suspension};
pub use tokens::{CONFIGURED_TOKEN, TOKEN_PREFIX, is_token};
