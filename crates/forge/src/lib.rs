//! Forges (GitHub, GitLab, Gitea, Forgejo and others): webhooks in, commit statuses and comments out.
//!
//! [`Forge`] sets the status of a commit and keeps one comment on a pull or merge request up to date. It retries
//! nothing and follows no redirect, which could carry the token to another host. The token is in no error and in no
//! log. [`webhook`] verifies and reads deliveries.
//!
//! ```
//! use driftless_forge::webhook::Origin;
//!
//! assert_eq!(Origin::of("git@github.com:me/infra.git"), Origin::of("https://github.com/me/infra"));
//! ```

mod call;
mod client;
mod kind;
pub mod webhook;

pub use call::{Connection, Error};
pub use client::{Forge, LONGEST_COMMENT, State, Status, Written, sent_description};
pub use kind::ForgeKind;
