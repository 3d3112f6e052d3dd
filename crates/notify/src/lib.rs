//! Sends notifications to chats, phones, mailboxes and other programs. `docs/notifications.md` describes them.
//!
//! [`Sender`] writes the message of one receiver from its templates and sends it. [`due`] and [`receivers`] decide, without
//! IO, when messages are sent and who gets them. The task that does so is in `crates/agent`.
//!
//! ```
//! use driftless_config::Notifications;
//! use driftless_model::Urgency;
//! use driftless_notify::{receivers, sample};
//!
//! let incident = sample(driftless_model::IncidentKind::Degraded, driftless_model::Timestamp(0));
//! assert_eq!(incident.urgency, Urgency::Critical);
//! assert!(receivers(&incident, &Notifications::default()).is_empty(), "there is no receiver");
//! ```

mod answers;
mod client;
mod email;
mod error;
mod message;
mod recipient;
mod route;
mod sample;
mod schedule;
mod sender;
mod sender_host;
mod services;

pub use error::{Error, Refusal};
pub use message::Message;
pub use recipient::RefusedRecipient;
pub use route::{describe_routes, receivers};
pub use sample::sample;
pub use schedule::{Due, RATE_TIME, due};
pub use sender::{ReadSecret, Sender};
pub use sender_host::SenderHost;
