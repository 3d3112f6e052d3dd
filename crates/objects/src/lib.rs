//! Objects in S3-compatible buckets and in folders of WebDAV servers: get, put under a condition, list.
//!
//! Both kinds of servers keep small files under names, and say with each answer what time it is there and when an object
//! was written. So the age of an object is judged by one clock, that of the server. Requests to buckets are signed with
//! Signature Version 4; requests to WebDAV servers carry a name and password. Neither is in an error or in a log.
//!
//! ```
//! use std::sync::Arc;
//!
//! use driftless_clock::Clock;
//! use driftless_config::FleetPlace;
//! use driftless_objects::{Objects, SecretSource};
//!
//! let secrets = SecretSource { environment: Arc::new(|_: &str| None), read: |_, _| Err("none".to_owned()) };
//! let bucket = FleetPlace::parse("s3://fleet/prod").unwrap();
//! assert!(Objects::open(&bucket, secrets.clone(), Clock::System).unwrap().is_some());
//! // Another agent keeps reports, and no objects.
//! let agent = FleetPlace::parse("https://hub.example.com").unwrap();
//! assert!(Objects::open(&agent, secrets, Clock::System).unwrap().is_none());
//! ```

mod answer;
mod bucket;
mod credentials;
mod error;
mod folder;
mod listed;
mod objects;
mod sign;
mod xml;

pub use credentials::{Lookup, SecretSource};
pub use error::Error;
pub use listed::Listed;
pub use objects::{Condition, Listing, Object, Objects, Written};
