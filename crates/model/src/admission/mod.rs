//! The admission policy: what the manifests of a repository may contain. It is checked on the stack, after everything is
//! rendered, so no spelling of a manifest goes around it.

mod container;
mod nested_mounts;
mod objects;
pub(crate) mod paths;
mod policy;
mod ports;
mod violation;

pub use objects::{ForeignObject, foreign_objects};
pub use policy::{AdmissionPolicy, Trust};
pub use ports::PortRule;
pub use violation::{ViolatingObject, Violation};

use crate::Stack;

impl AdmissionPolicy {
    /// Everything in a stack that the policy does not allow, by workload.
    pub fn violations(&self, stack: &Stack) -> Vec<Violation> {
        let mut found = Vec::new();
        for subject in stack.subjects() {
            container::check_workload(self, subject, &mut found);
        }
        nested_mounts::check(self, stack, &mut found);
        objects::check(self, stack, &mut found);
        found
    }
}

#[cfg(test)]
mod tests;
