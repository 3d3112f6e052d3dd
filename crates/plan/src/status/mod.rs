//! The status of an application: sync, health, conditions and counts, from the target, the observed state and the plan.
//!
//! It is computed in every round. Only the time of a condition's last transition comes from the status before.

pub(crate) mod assess;
mod conditions;
mod counts;
pub(crate) mod endpoints;
pub(crate) mod failure;
mod health;
mod inputs;
mod instances;
mod kube;
pub(crate) mod pod_spec;
mod remark;
mod traffic;
mod work;
