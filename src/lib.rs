//! Driftless makes what runs on a Docker host equal to what Git says, and keeps it so.
//!
//! Pure functions turn (Git, Docker, memory, time) into a plan; a dumb executor performs it; the loop looks
//! again. Modules live on floors and import downwards only; `docs/architecture.md` shows the house.
//!
//! | floor | modules |
//! |---|---|
//! | 0 | [`model`] nouns, [`clock`] time |
//! | 1 | [`config`] settings, [`manifest`] files → stack, [`convert`] stack → the other format, [`plan`] the decisions |
//! | 2 | [`source`] Git, [`docker`] the engine, [`store`] the memory, [`probe`] probes, [`proxy`] what forwards for a Service, [`forge`] commit statuses and comments, [`report`] reports, [`webhook`] what forges say |
//! | 3 | [`controller`] the loop |
//! | 4 | [`web`] API |
//! | 5 | [`cli`] commands |
//!
//! Start reading at [`plan`], then [`controller`].

pub mod cli;
pub mod clock;
pub mod config;
pub mod controller;
pub mod convert;
pub mod docker;
pub mod forge;
pub mod manifest;
pub mod model;
pub mod plan;
pub mod probe;
pub mod proxy;
pub mod report;
pub mod source;
pub mod store;
pub mod web;
pub mod webhook;
