//! [`driftless_docker::Engine`] against an engine that is made for these tests: faults that a real engine does not show
//! when it is asked to.

#![allow(clippy::unwrap_used)]

mod agent_claims;
mod events;
mod exec;
mod fake_engine;
mod networks;
mod observe;
mod output;
mod start;
mod volumes;
