//! Reports of `driftless drift` and `driftless preview`: their options, filters, outputs and comments on a forge.

pub(super) mod damage;
pub(super) mod error;
pub(super) mod live;
pub(super) mod options;
pub(super) mod output;
pub(super) mod repository;
pub(super) mod selection;

mod ci_job;
mod post;
